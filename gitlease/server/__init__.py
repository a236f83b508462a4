"""The decision of a server's pre-receive hook."""

from gitlease import exports

__getattr__ = exports(__name__)
