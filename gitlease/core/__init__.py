"""The rules: values and pure functions, of the standard library alone."""

from gitlease import exports

__getattr__ = exports(__name__)
