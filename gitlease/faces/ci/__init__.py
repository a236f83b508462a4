"""The forms in which a check is told: for people, for programs, and for what runs it."""
