"""Text of ours in other people's files: added, found again, and removed to the byte."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator


def find_marked(data: bytes, begin: bytes, end: bytes) -> re.Match[bytes] | None:
    """The lines from one that begins with ``begin`` to one that is ``end``; both are patterns."""
    lines = rb"^" + begin + rb"[^\n]*\n(?:[^\n]*\n)*?" + end + rb"(?:\r?\n|\Z)"
    return re.search(lines, data, re.MULTILINE)


def swap(data: bytes, found: re.Match[bytes], new: bytes = b"") -> bytes:
    """The text with the match replaced, or removed."""
    return data[: found.start()] + new + data[found.end() :]


def mode_of(path: str) -> int | None:
    """The permissions of a file, None if it does not exist."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def written_aside(path: str, data: bytes, *, mode: int | None, new: int = 0o666) -> Iterator[None]:
    """Write a file beside ``path``, and move it there if the block succeeds.

    ``mode`` are its exact permissions, None for those of a ``new`` file. If anything fails,
    ``path`` is unchanged and nothing else is left. Raises OSError.
    """
    temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, new)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            if mode is not None:
                os.fchmod(handle, mode)
        yield
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
