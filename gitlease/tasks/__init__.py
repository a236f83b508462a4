"""Task files, and the edges in them."""
