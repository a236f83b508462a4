"""Merges: what they change on their own account, and whose work they give up."""
