"""Faces: they translate in, call the service and translate out; no rule lives here."""
