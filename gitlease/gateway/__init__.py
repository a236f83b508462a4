"""The steps of many actors on one ledger, joined into as few pushes as they can be."""
