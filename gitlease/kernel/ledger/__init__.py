"""The verbs: decide on the last known ledger, swap, and decide again."""
