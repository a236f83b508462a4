"""Installing beside files that others own, and taking it out to the byte."""
