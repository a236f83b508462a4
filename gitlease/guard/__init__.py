"""Others' leases on the files that a commit or a push touches."""
