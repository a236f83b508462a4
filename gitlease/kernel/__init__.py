"""The kernel: rules, git, settings, the store and the ledger. It knows no part and no door."""
