"""The command line: ``run`` is the whole of it for whoever starts it."""
