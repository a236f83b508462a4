"""The face that git sees: its hooks."""
