"""Verbs that take, keep and end leases."""
