"""The verbs: decide on the last known ledger, swap, and decide again."""

from gitlease import exports

__getattr__ = exports(__name__)
