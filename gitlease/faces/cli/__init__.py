"""The command line."""

from gitlease import exports

__getattr__ = exports(__name__)
