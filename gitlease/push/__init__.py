"""The fenced push."""
