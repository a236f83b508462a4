"""Hooks of coding agents."""
