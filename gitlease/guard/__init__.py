"""Others' leases on the files that a commit or a push touches."""

from gitlease import exports

__getattr__ = exports(__name__)
