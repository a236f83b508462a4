"""What a git server calls: its pre-receive hook."""
