"""The steps of many actors on one ledger, joined into as few pushes as they can be."""

from gitlease import exports

__getattr__ = exports(__name__)
