"""The face for agents that speak the Model Context Protocol."""
