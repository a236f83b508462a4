"""The board: tasks and leases as they stand now, on a terminal, on a page, and as a file."""
