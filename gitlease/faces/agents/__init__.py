"""The hooks of coding agents: an event in, a decision out.

Each host has a module that parses its events and formats the answers; ``handling`` is shared.
"""

from gitlease import exports

__getattr__ = exports(__name__)
