"""Commits against the leases of their time."""
