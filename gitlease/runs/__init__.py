"""Runs, and the heartbeats that keep their leases."""
