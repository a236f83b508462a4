"""The composition roots of a gateway."""
