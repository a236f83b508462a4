"""Checks for continuous integration."""
