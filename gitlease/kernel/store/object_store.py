"""The objects and refs of a private store, which git's commands or libgit2 read and write.

Both ways offer the same methods, and write repositories that git and each other read.

Both map packs into memory, as git does everywhere: if another program cuts a pack short in place
while a process reads it, the system ends that process (SIGBUS); with git's commands it ends only
the git that was started. Neither gitlease nor git changes a pack once it has its name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Protocol

from gitlease.kernel.git.objects import (
    SHA256,
    Absent,
    GitObjects,
    WritableObjects,
    check_object,
    object_id,
)

New = Mapping[str, tuple[str, bytes]]  # by id: the kind of an object, and its bytes


class ObjectStore(WritableObjects, Protocol):
    """Reads and writes the objects and refs of a bare repository of gitlease's own."""

    def together(self) -> contextlib.AbstractContextManager[NewObjects]:
        """Add what the block writes at its end. Raises OSError."""

    def ref(self, name: str) -> str | None:
        """The id that a ref has; None if there is none."""

    def set_refs(self, refs: Mapping[str, str | None]) -> None:
        """Have refs keep objects, and delete those with None: all or none. Raises OSError."""


def open_objects(path: str, id_bytes: int, *, brief: bool) -> ObjectStore:
    """Open the objects of a store by libgit2, unless git's commands suit it better.

    ``brief``: this process is one command or hook, which handles few objects.
    """
    by_git = (
        brief  # to import pygit2 takes 4.4 starts of Python, the gits of a claim about one
        or id_bytes == SHA256  # pygit2's wheels read SHA-1 only
        or _owner(path) != os.geteuid()  # libgit2 refuses what another user owns
    )
    if not by_git:
        with contextlib.suppress(OSError):
            from gitlease.kernel.store.libgit import LibgitObjects

            return LibgitObjects(path)
    from gitlease.kernel.store.plumbing import PlumbingObjects

    return PlumbingObjects(path, id_bytes)


def _owner(path: str) -> int:
    try:
        return os.stat(path).st_uid
    except OSError:
        return -1


class NewObjects:
    """Collects the ``new`` objects of a step by their ids, on top of others if there are any."""

    def __init__(self, objects: GitObjects | None, id_bytes: int) -> None:
        self._objects, self._id_bytes = objects, id_bytes
        self.new: dict[str, tuple[str, bytes]] = {}

    def read(self, id: str, kind: str, limit: int) -> bytes:
        if (new := self.new.get(id)) is not None:
            check_object(new[0] == kind, len(new[1]), kind, limit)
            return new[1]
        if self._objects is None:
            raise Absent
        return self._objects.read(id, kind, limit)

    def write(self, kind: str, data: bytes) -> str:
        id = object_id(kind, data, self._id_bytes)
        self.new[id] = kind, data
        return id
