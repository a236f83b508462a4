"""Waiting until something is free, and watching what happens."""
