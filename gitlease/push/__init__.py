"""The fenced push."""

from gitlease import exports

__getattr__ = exports(__name__)
