"""The face for agents that speak the Model Context Protocol."""

from gitlease import exports

__getattr__ = exports(__name__)
