"""Terminals of their own for the programs that tests start."""

from __future__ import annotations

import os


def all_written(master: int) -> str:
    """All that is written to a terminal until it is closed."""
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(master, 65_536)
        except OSError:  # Linux says so when the other side is closed
            part = b""
        if not part:
            os.close(master)
            return b"".join(parts).decode()
        parts.append(part)
