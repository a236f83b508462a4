"""Verbs: what each takes, does and answers, declared once for every door."""
