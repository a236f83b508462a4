"""A lock between processes of one clone. It only saves work: every guarantee holds without it."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gitlease.git.files import share

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""The errors of a file system that has no locks."""


@contextmanager
def exclusive(path: str, *, timeout: float, shared: bool = False) -> Iterator[bool]:
    """Hold the lock on ``path``, or go on without it after ``timeout`` seconds (False is given).

    So it does where there can be no lock, since something else is in its place, say. ``shared``
    holders only keep an exclusive one out, not each other. On POSIX the kernel's lock is taken,
    which a killed process cannot leave behind; elsewhere filelock serves, which costs too much to
    import for a command that hooks run on every commit.
    """
    if os.name != "posix":
        with _portable(path, timeout) as held:
            yield held
        return
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield False
        return
    share(path, descriptor)
    try:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        yield _try(lambda: fcntl.flock(descriptor, kind | fcntl.LOCK_NB), timeout)
    finally:
        with contextlib.suppress(OSError):  # a child that was forked meanwhile has it as well
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _try(take: object, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while True:
        try:
            take()  # type: ignore[operator]
        except OSError as error:
            if error.errno in NO_LOCKS:
                return False
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)
        else:
            return True


@contextmanager
def _portable(path: str, timeout: float) -> Iterator[bool]:
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        lock.acquire(timeout=timeout)
    except (Timeout, OSError):
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
