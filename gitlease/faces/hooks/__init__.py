"""The face that git sees: its hooks."""

from gitlease import exports

__getattr__ = exports(__name__)
