"""Runs, and the heartbeats that keep their leases."""

from gitlease import exports

__getattr__ = exports(__name__)
