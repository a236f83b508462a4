"""The objects of the private store, written and mostly read without any git: as files of their own.

A command writes a few objects, and reads those that a fetch or another command has just brought
here. git keeps such ones as files that any zlib reads, in either format of ids, so no process is
worth its start for them. What is in a pack is read by git.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Mapping

from gitlease.git.files import open_regular, replace_file, share
from gitlease.git.objects import Absent, PipedObjects, check_object, object_id
from gitlease.git.repository import OFFLINE, is_id
from gitlease.git.run import clean_environment

HEADER = 32  # bytes of "commit 1234567\0" at most
_LEVEL = 1  # as fast as can be: an object has a few hundred bytes


class LooseObjects:
    """The objects of a bare repository of gitlease's own, of one format of ids."""

    def __init__(self, path: str, id_bytes: int, environ: Mapping[str, str]) -> None:
        self._path, self._id_bytes = path, id_bytes
        self._packed = PipedObjects(path, {**clean_environment(environ), **OFFLINE})

    def read(self, id: str, kind: str, limit: int) -> bytes:
        if not is_id(id) or len(id) != 2 * self._id_bytes:
            raise Absent
        try:
            opened = open_regular(self._file(id))
        except FileNotFoundError:
            return self._packed.read(id, kind, limit)
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
