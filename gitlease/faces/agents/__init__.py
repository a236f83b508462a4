"""The hooks of coding agents: an event in, a decision out."""

from gitlease import exports

__getattr__ = exports(__name__)
