"""What others hold of what a commit or a push touches."""
