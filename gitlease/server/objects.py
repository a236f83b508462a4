"""The objects of a push that is not accepted yet, read on the server without believing any.

git keeps them in a quarantine until its hook has agreed. libgit2 is told of that place as of
a further one to look in; a format that it does not know is read by git, which knows the place from
its own environment. Nothing is written there or elsewhere.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from gitlease.core.errors import Invalid
from gitlease.git.libgit2 import load_pygit2, open_bare
from gitlease.git.objects import GitObjects, LibraryObjects, PipedObjects
from gitlease.git.query import OFFLINE

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
    """The objects of a repository, of the push's quarantine, and of what git was told besides.

    git has decided already that it may be used: whoever owns its files is not asked again.
    """
    load_pygit2()
    import pygit2

    with contextlib.suppress(AttributeError, pygit2.GitError):
        pygit2.settings.owner_validation = False
    repo = open_bare(git_dir)
    if repo is None:
        return PipedObjects(git_dir, {**environ, **OFFLINE, "LC_ALL": "C"})
    try:
        own = os.path.realpath(os.path.join(git_dir, "objects"))
        others = environ.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", "").split(os.pathsep)
        for folder in (environ.get("GIT_OBJECT_DIRECTORY", ""), *others):
            place = folder.strip('"')
            if place and os.path.realpath(place) != own and os.path.isdir(place):
                repo.odb.add_disk_alternate(os.path.abspath(place))
    except (pygit2.GitError, KeyError, ValueError, OSError) as error:
        raise Invalid(f"the repository cannot be read: {error}") from None
    return LibraryObjects(repo)
