"""The outside world: the only home of pygit2, yaml, filelock, subprocesses and the environment."""
