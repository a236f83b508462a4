"""Everything that asks git."""

from gitlease import exports

__getattr__ = exports(__name__)
