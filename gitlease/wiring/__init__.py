"""A repository and its settings become ready services."""

from gitlease import exports

__getattr__ = exports(__name__)
