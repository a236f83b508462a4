"""Findings as continuous integration reads them."""
