"""The hook of a server."""
