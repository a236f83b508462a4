"""The gateway's face: requests over HTTP, translated to the engine's verbs and back."""
