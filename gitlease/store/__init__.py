"""Ledgers on git refs."""

from gitlease import exports

__getattr__ = exports(__name__)
