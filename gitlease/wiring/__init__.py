"""A repository and its settings become ready services."""
