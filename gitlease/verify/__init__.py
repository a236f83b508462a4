"""The verification of a ledger's history."""
