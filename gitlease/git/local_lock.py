"""A lock between processes of one clone. It only saves work: every guarantee holds without it.

The kernel's lock is taken, which a killed process cannot leave behind. The library filelock would
take the same one, but its import costs 45 ms, more than all that a hook does, and it neither shares
a lock nor goes on where a file system has none.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gitlease.git.files import share

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@contextmanager
def exclusive(path: str, *, timeout: float, shared: bool = False) -> Iterator[bool]:
    """Hold the lock on ``path``, or go on without it after ``timeout`` seconds (False is given).

    So it does where there can be no lock, since something else is in its place, say. ``shared``
    holders only keep an exclusive one out, not each other.
    """
    deadline = time.monotonic() + timeout
    try:
        descriptor = open_lock(path)
    except OSError:
        yield False
        return
    try:
        while (held := take(descriptor, shared=shared)) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        yield bool(held)
    finally:
        with contextlib.suppress(OSError):  # a child that was forked meanwhile has it as well
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def open_lock(path: str) -> int:
    """The descriptor of a lock's file, which is made if need be. Raises OSError, for a link too."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    share(path, descriptor)
    return descriptor


def take(descriptor: int, *, shared: bool = False) -> bool | None:
    """Take an open lock without waiting. None if another has it, False where there are no locks."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in _NO_LOCKS else None
    return True
