"""Ledgers on git refs."""
