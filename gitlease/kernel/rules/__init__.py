"""The rules: values and pure functions, of the standard library alone."""
