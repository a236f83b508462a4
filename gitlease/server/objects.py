"""The objects of a push that is not accepted yet, read on the server without believing any.

git keeps them in a quarantine until its hook has agreed, and knows that place from its own
environment. Nothing is written there or elsewhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from gitlease.git.objects import GitObjects, PipedObjects
from gitlease.git.repository import OFFLINE

MEMORY = 512 * 1024 * 1024  # bytes that a hook may ask of the system for itself


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Have the system refuse this process, and what it starts, memory beyond all that is needed.

    What a push holds may unfold without measure in places where nobody asks for its size first.
    """
    try:
        import resource as limits

        before = limits.getrlimit(limits.RLIMIT_DATA)
        most = MEMORY if before[1] == limits.RLIM_INFINITY else min(MEMORY, before[1])
        if before[0] == limits.RLIM_INFINITY or before[0] > most:
            limits.setrlimit(limits.RLIMIT_DATA, (most, before[1]))
    except (ImportError, ValueError, OSError):
        yield
        return
    try:
        yield
    finally:
        limits.setrlimit(limits.RLIMIT_DATA, before)


def open_pushed(git_dir: str, environ: Mapping[str, str]) -> GitObjects:
    """The objects of a repository, of the push's quarantine, and of what git was told besides."""
    return PipedObjects(git_dir, {**environ, **OFFLINE, "LC_ALL": "C"})
