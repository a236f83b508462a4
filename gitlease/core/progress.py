"""What this process does at present, for a face that shows what takes long.

Words, innermost last; whoever shows them reads them from a thread of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_DOING: list[str] = []


@contextmanager
def doing(text: str) -> Iterator[None]:
    """Say what is done while the block runs: ``reading task files``."""
    _DOING.append(text)
    try:
        yield
    finally:
        _DOING.remove(text)


def at_present() -> str | None:
    """The innermost of what is being done; None where nothing says so."""
    doing = _DOING[-1:]
    return doing[0] if doing else None
