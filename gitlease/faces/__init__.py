"""Faces: they translate in, call the engine and translate out; no rule lives here."""

from gitlease import exports

__getattr__ = exports(__name__)
