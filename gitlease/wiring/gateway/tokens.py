"""The composition root of a gateway's tokens."""

from __future__ import annotations

import os

from gitlease.gateway.tokens import Tokens
from gitlease.git.repository import discover


def open_tokens(directory: str = ".") -> Tokens:
    """The tokens of the gateway to the clone around ``directory``."""
    return Tokens(os.path.join(discover(directory).common_dir, "gitlease", "serve"))
