"""What others hold of what a commit or a push touches."""

from gitlease import exports

__getattr__ = exports(__name__)
