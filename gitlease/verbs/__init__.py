"""Verbs: what each takes, does and answers, declared once for every door."""

from gitlease import exports

__getattr__ = exports(__name__)
