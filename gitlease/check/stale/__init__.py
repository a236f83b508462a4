"""Claims that nobody works under."""
