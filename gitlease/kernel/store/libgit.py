"""The objects of a private store by libgit2, for a process that lives long or reads much.

libgit2 reads packs only. Of the objects that lie in files of their own, git reads: libgit2 1.9
never returns from one that is cut short (its issue 7342), or from a pipe in the place of one.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any

import pygit2

from gitlease.kernel.git.bare import error_of
from gitlease.kernel.git.files import share
from gitlease.kernel.git.objects import SHA1, Absent, check_object
from gitlease.kernel.git.repository import is_id
from gitlease.kernel.store.object_store import New, NewObjects
from gitlease.kernel.store.plumbing import PlumbingObjects, drop_folder

FEW = 24  # objects of a step that become files of their own
_LEVEL = 1  # of compression: as fast as can be, since an object has a few hundred bytes
_KINDS = {"commit": 1, "tree": 2, "blob": 3}


class LibgitObjects:
    """The objects and refs of a bare repository of gitlease's own with ids of SHA-1."""

    def __init__(self, path: str) -> None:
        self._git = PlumbingObjects(path, SHA1)
        self._path = os.path.abspath(path)
        self._objects = os.path.join(self._path, "objects")
        self.ref, self.set_refs = self._git.ref, self._git.set_refs
        self._open()

    def _open(self) -> None:
        self._packs, self._files = pygit2.Odb(), pygit2.Odb()
        self._seen = self._changed_at()
        try:
            self._of_packs = pygit2.OdbBackendPack(self._objects)
            self._packs.add_backend(self._of_packs, 1)
            files = pygit2.OdbBackendLoose(self._objects, _LEVEL, False)
        except (pygit2.GitError, KeyError, OSError) as error:
            raise error_of(str(error), self._path) from None
        self._files.add_backend(files, 1)

    def read(self, id: str, kind: str, limit: int) -> bytes:
        if not is_id(id) or len(id) != 2 * SHA1:
            raise Absent
        for _ in range(2):
            try:
                # Its size first: an object may have any. Asked of the whole database, it would look
                # for new packs each time that an object is in none.
                number, size = self._of_packs.read_header(id)
                check_object(number == _KINDS[kind], size, kind, limit)
                return self._packs.read(id)[-1]
            except (KeyError, ValueError):
                before, self._seen = self._seen, self._changed_at()
                if self._seen == before:
                    break
                self._of_packs.refresh()
            except (pygit2.GitError, OSError):
                with contextlib.suppress(OSError):
                    self._open()  # a pack is damaged, or was joined with others meanwhile
                break
        return self._git.read(id, kind, limit)

    def _changed_at(self) -> int:
        """When packs came or went."""
        with contextlib.suppress(OSError):
            return os.stat(os.path.join(self._objects, "pack")).st_mtime_ns
        return 0

    def write(self, kind: str, data: bytes) -> str:
        with self.together() as new:
            return new.write(kind, data)

    @contextlib.contextmanager
    def together(self) -> Iterator[NewObjects]:
        yield (objects := NewObjects(self, SHA1))
        self._add(objects.new)

    def _add(self, new: New) -> None:
        try:
            # Each pack costs every later git a little; a few files cost less.
            if len(new) > FEW:
                self._add_pack(new)
                return
            for kind, data in new.values():
                id = str(self._files.write(_KINDS[kind], data))
                folder = os.path.join(self._objects, id[:2])
                for path in (folder, os.path.join(folder, id[2:])):
                    share(path)
        except (pygit2.GitError, OSError, KeyError, ValueError) as error:
            raise error_of(str(error), self._path) from None

    def _add_pack(self, new: New) -> None:
        repository, odb = pygit2.Repository(), pygit2.Odb()
        odb.add_backend(_InMemory(new), 1)
        repository.set_odb(odb)
        builder = pygit2.PackBuilder(repository)
        builder.set_threads(1)
        for id in new:
            builder.add(pygit2.Oid(hex=id))
        aside = os.path.join(self._objects, f"tmp_{os.urandom(8).hex()}")  # which git prunes
        os.mkdir(aside)
        try:
            builder.write(aside)
            names = sorted(os.listdir(aside))
            if not names:
                raise OSError(errno.EIO, "libgit2 wrote no pack", self._path)
            # The index last: by it git finds a pack, which must be whole then.
            for name in sorted(names, key=lambda x: x.endswith(".idx")):
                share(os.path.join(aside, name))
                os.replace(os.path.join(aside, name), os.path.join(self._objects, "pack", name))
        finally:
            drop_folder(aside)


class _InMemory(pygit2.OdbBackend):
    """The objects of a step, from which a pack is made."""

    def __init__(self, new: New) -> None:
        super().__init__()
        self._new = new

    def read_cb(self, oid: Any) -> tuple[int, bytes]:
        kind, data = self._new[str(oid)]
        return _KINDS[kind], data

    def read_header_cb(self, oid: Any) -> tuple[int, int]:
        kind, data = self._new[str(oid)]
        return _KINDS[kind], len(data)

    def exists_cb(self, oid: Any) -> bool:
        return str(oid) in self._new

    def read_prefix_cb(self, oid: Any) -> None:
        raise KeyError(str(oid))

    exists_prefix_cb = read_prefix_cb

    def refresh_cb(self) -> None:
        """Nothing is added to it."""
