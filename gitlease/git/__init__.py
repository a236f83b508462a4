"""Everything that asks git."""
