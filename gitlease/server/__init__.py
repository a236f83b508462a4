"""The decision of a server's pre-receive hook."""
