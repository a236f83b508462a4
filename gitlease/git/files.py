"""Files of gitlease's own, and files that may be anything: opened, kept and moved safely."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from typing import Any, BinaryIO

from gitlease.core.errors import Invalid

LEFT_OVER = 3600  # seconds after which nobody still writes a temporary file
CACHE = ".cache"
STAMP, WORD = ".stamp", ".word"
_AGES = {".tmp": LEFT_OVER, CACHE: 90 * 86_400, STAMP: 30 * 86_400, WORD: 30 * 86_400}


class Unreadable(Exception):
    """A file or an object cannot be read; the text says why."""


def open_regular(path: str, folder: int | None = None) -> BinaryIO | None:
    """A regular file, open for reading; None for what is none. Raises OSError, for a link too.

    A relative path begins at the open ``folder``. A pipe is never waited for.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags, dir_fd=folder)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return open(handle, "rb")
    os.close(handle)
    return None


def read_up_to(opened: BinaryIO, limit: int) -> bytes:
    """The bytes of an open file; more than ``limit`` of them say that it is too large."""
    # What is asked for is allocated, however small the file is.
    return opened.read(min(limit, os.fstat(opened.fileno()).st_size) + 1)


def read_regular(path: str, limit: int) -> bytes | None:
    """The bytes of a file, as ``read_up_to`` has them; None for what is no regular file.

    Raises OSError, for a link too.
    """
    opened = open_regular(path)
    if opened is None:
        return None
    with opened:
        return read_up_to(opened, limit)


def read_small(path: str, limit: int) -> bytes | None:
    """What a regular file of at most ``limit`` bytes holds; None for anything else."""
    try:
        data = read_regular(path, limit)
    except OSError:
        return None
    return data if data is not None and len(data) <= limit else None


def load_json(file: str, limit: int) -> Any:
    """What a file of ours holds; None when that cannot be read, or is larger than ``limit``."""
    try:
        data = read_small(file, limit)
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return None


def store_json(file: str, value: object) -> None:
    """Write a value aside and move it into place. Raises OSError."""
    replace_file(file, json.dumps(value, separators=(",", ":")).encode())


def replace_file(
    file: str, data: bytes, *, dated: int | None = None, aside: str | None = None
) -> None:
    """Write a file ``aside`` and move it into place: a kill leaves the old or the new one.

    ``dated`` is when it shall seem to be from, in nanoseconds since the epoch. Raises OSError.
    """
    temporary = aside or f"{file}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    try:
        with open(temporary, "xb") as opened:
            opened.write(data)
        if dated is not None:
            os.utime(temporary, ns=(dated, dated))
        os.replace(temporary, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def drop_leftovers(folder: str) -> None:
    """Remove what killed processes left half written, and what is of use to nobody any more."""
    now = time.time()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            age = next((a for end, a in _AGES.items() if entry.name.endswith(end)), None)
            if age is not None and now - entry.stat(follow_symlinks=False).st_mtime > age:
                os.unlink(entry.path)


def cannot_keep(path: str, error: OSError) -> Invalid:
    """The refusal where private state cannot be written."""
    return Invalid(
        f"gitlease cannot keep its state in {path}: {error.strerror}",
        hints=("it needs to write below the clone's git directory",),
    )
