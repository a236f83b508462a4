"""Task files, and the edges in them."""

from gitlease import exports

__getattr__ = exports(__name__)
