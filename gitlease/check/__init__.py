"""Checks for continuous integration."""

from gitlease import exports

__getattr__ = exports(__name__)
