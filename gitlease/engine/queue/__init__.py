"""The task queue: what is claimable, in which order."""
