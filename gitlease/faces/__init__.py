"""Faces: they translate in, call the engine and translate out; no rule lives here."""
