"""Git hooks, beside every hook manager."""
