"""What goes on in the background, for programs that log: under the logger ``gitlease``.

A command that nobody configured logging in does not import it for that.
"""

from __future__ import annotations

import sys
from typing import Literal

NAME = "gitlease"


def log(level: Literal["debug", "info", "warning"], text: str, *words: object) -> None:
    """Log a line; nothing where the program has no use for it. No secrets: as in messages."""
    logging = sys.modules.get("logging")
    if logging is None:
        return
    logger = logging.getLogger(NAME)
    if not logger.handlers:  # else a warning would be printed where nothing is configured
        logger.addHandler(logging.NullHandler())
    getattr(logger, level)(text, *words)
