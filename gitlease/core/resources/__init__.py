"""What is leased: names and path patterns, and when two overlap."""
