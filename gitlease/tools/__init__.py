"""What keeps a clone healthy: the examination of a machine, a clone and its remote."""
