"""The verification of a ledger's history."""

from gitlease import exports

__getattr__ = exports(__name__)
