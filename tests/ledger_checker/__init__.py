"""An independent check of a ledger's history: it shares no rule with what wrote it."""
