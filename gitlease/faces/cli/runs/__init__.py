"""Verbs that run commands, and sessions."""
