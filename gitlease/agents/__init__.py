"""The hooks of coding agents: an event in, a decision out."""
