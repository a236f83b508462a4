"""Verbs of the task queue."""
