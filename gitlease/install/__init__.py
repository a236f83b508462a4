"""Installing beside files that others own, and taking it out to the byte."""

from gitlease import exports

__getattr__ = exports(__name__)
