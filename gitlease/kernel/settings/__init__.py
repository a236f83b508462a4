"""Settings, where they come from, and who speaks."""
