"""A lock between processes of one clone. It only saves work: every guarantee holds without it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def exclusive(path: str, *, timeout: float, shared: bool = False) -> Iterator[bool]:
    """Hold the lock on ``path``; after ``timeout`` seconds go on without it, and yield False.

    Likewise if the file cannot be opened. ``shared`` holders only keep an exclusive one out, not
    each other. A killed process leaves no lock behind.
    """
    import fcntl  # most hooks take no lock

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield False
        return
    try:
        yield _lock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, timeout)
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child forked meanwhile has it as well
        os.close(descriptor)


def _lock(descriptor: int, kind: int, timeout: float) -> bool:
    import fcntl

    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)
        else:
            return True
