"""The objects of the private store, written and mostly read without any git: as files of their own.

A command writes a few objects, and reads those that a fetch or another command has just brought
here. git keeps such ones as files that any zlib reads, in either format of ids, so neither a
process nor libgit2 (18 ms of a command, and SHA-1 alone) is worth its start for them. What is in a
pack is read by git, and by libgit2 once there is much of it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import zlib
from collections.abc import Mapping
from functools import cached_property

from gitlease.git.files import open_regular, replace_file, share
from gitlease.git.objects import (
    Absent,
    GitObjects,
    LibraryObjects,
    PipedObjects,
    check_object,
    object_id,
)
from gitlease.git.query import OFFLINE, is_id
from gitlease.git.run import clean_environment

HEADER = 32  # bytes of "commit 1234567\0" at most
FEW = 64  # packed objects that git itself is asked for
_LEVEL = 1  # as fast as can be: an object has a few hundred bytes


class LooseObjects:
    """The objects of a bare repository of gitlease's own, of one format of ids."""

    def __init__(self, path: str, id_bytes: int, environ: Mapping[str, str]) -> None:
        self._path, self._id_bytes, self._environ = path, id_bytes, environ
        self._asked = 0

    def read(self, id: str, kind: str, limit: int) -> bytes:
        if not is_id(id) or len(id) != 2 * self._id_bytes:
            raise Absent
        try:
            opened = open_regular(self._file(id))
        except FileNotFoundError:
            return self._packed().read(id, kind, limit)
        except OSError:
            raise Absent from None
        if opened is None:
            raise Absent
        with opened:
            return _inflated(opened.read(limit + limit // 512 + 1024), id, kind, limit)

    def write(self, kind: str, data: bytes) -> str:
        """Add an object; returns its id. Raises OSError."""
        id, whole = object_id(kind, data, self._id_bytes)
        file = self._file(id)
        with contextlib.suppress(FileNotFoundError, PermissionError):  # or it is another user's
            if os.stat(file).st_size:  # an empty one is what a loss of power leaves
                os.utime(file)  # or the next gc might let go of it
                return id
        folder = os.path.dirname(file)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
            share(folder)
        aside = os.path.join(folder, f"tmp_obj_{os.urandom(8).hex()}")  # which git tidies up
        replace_file(file, zlib.compress(whole, _LEVEL), aside=aside)
        return id

    def _file(self, id: str) -> str:
        return os.path.join(self._path, "objects", id[:2], id[2:])

    def _packed(self) -> GitObjects:
        self._asked += 1
        library = "pygit2" in sys.modules or self._asked > FEW
        return (self._library if library else None) or self._git

    @cached_property
    def _git(self) -> GitObjects:
        env = {**clean_environment(self._environ), **OFFLINE}
        return PipedObjects(self._path, env)

    @cached_property
    def _library(self) -> GitObjects | None:
        from gitlease.git.libgit2 import open_bare

        repo = open_bare(self._path) if self._id_bytes == 20 else None
        return None if repo is None else LibraryObjects(repo)


def _inflated(packed: bytes, id: str, kind: str, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        whole = stream.decompress(packed, limit + HEADER + 1)
    except zlib.error:
        raise Absent from None
    head, _, data = whole.partition(b"\0")
    name, _, size = head.partition(b" ")
    if not size.isdigit() or len(head) > HEADER:
        raise Absent
    check_object(name == kind.encode(), int(size), kind, limit)
    if not stream.eof or int(size) != len(data) or object_id(kind, data, len(id) // 2)[0] != id:
        raise Absent  # cut short, or spoilt
    return data
