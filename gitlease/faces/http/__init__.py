"""The gateway's face: requests over HTTP, translated to the engine's verbs and back."""

from gitlease import exports

__getattr__ = exports(__name__)
