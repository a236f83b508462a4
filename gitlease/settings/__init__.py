"""Settings, where they come from, and who speaks."""

from gitlease import exports

__getattr__ = exports(__name__)
