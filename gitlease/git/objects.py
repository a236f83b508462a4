"""git's objects, read without trusting them: their size is checked before their contents are read.

No connection is opened for objects that a partial clone lacks. libgit2 reads if it is loaded
anyway, else ``git cat-file --batch``, which knows every format and starts sooner.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gitlease.core.errors import Invalid
from gitlease.git.files import Unreadable
from gitlease.git.query import ask, is_id, lines_as_input, refusal
from gitlease.git.repository import TIMEOUT, Repository

if TYPE_CHECKING:
    import pygit2

BLOB, TREE, COMMIT = "blob", "tree", "commit"
FILE, EXECUTABLE, FOLDER = 0o100644, 0o100755, 0o040000  # modes of a tree's entries
LACKING = 32  # absent objects at which git may stop, before the rest counts as absent
AT_ONCE = 64  # expected objects that are read, and kept, together

_ENTRIES = rb"(?s)([0-7]{1,6}) ([^\0]*)\0(.{%d})"  # by the bytes of an id
_NUMBERS = {COMMIT: 1, TREE: 2, BLOB: 3}  # as git itself numbers them
_KINDS = {BLOB: "file", TREE: "folder", COMMIT: "commit"}


class Absent(Unreadable):
    """This repository does not have the object, or it is damaged."""

    def __init__(self) -> None:
        super().__init__("is not in this clone, which has only a part of its objects")


class TooLarge(Unreadable):
    """The object has more bytes than are read."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"is larger than {limit // 1024} KiB")


class OtherKind(Unreadable):
    """The object is no blob, or tree, or commit, as it should be."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"is not a {_KINDS[kind]}")


class Malformed(Unreadable):
    """The bytes of an object are not such as git writes."""

    def __init__(self) -> None:
        super().__init__("is malformed")


class GitObjects(Protocol):
    """Reads objects by their full ids."""

    def read(self, id: str, kind: str, limit: int) -> bytes:
        """The bytes of an object. Raises Unreadable, as for more than ``limit`` of them."""


class WritableObjects(GitObjects, Protocol):
    """Reads and writes objects."""

    def write(self, kind: str, data: bytes) -> str:
        """Add an object; return its id."""


class LibraryObjects:
    """The objects of a repository that libgit2 has open."""

    def __init__(self, repo: pygit2.Repository) -> None:
        self._repo = repo

    def read(self, id: str, kind: str, limit: int) -> bytes:
        import pygit2

        from gitlease.git.libgit2 import object_header

        try:
            oid = pygit2.Oid(hex=id)
            number, size = object_header(self._repo, oid)
            check_object(number == _NUMBERS[kind], size, kind, limit)
            return bytes(self._repo.odb.read(oid)[1])
        except (KeyError, ValueError, OSError, pygit2.GitError):
            raise Absent from None

    def write(self, kind: str, data: bytes) -> str:
        return str(self._repo.write(_NUMBERS[kind], data))


class BatchObjects:
    """The objects of a repository by git alone: one process for ``at_once`` of the ``expected``."""

    def __init__(
        self,
        repository: Repository,
        expected: Iterable[str] = (),
        *,
        at_once: int = AT_ONCE,
        seconds: float = TIMEOUT,
    ) -> None:
        self._repository, self._expected = repository, list(dict.fromkeys(expected))
        self._at_once, self._seconds = at_once, seconds
        self._read: dict[tuple[str, str, int], bytes | Unreadable] = {}

    def read(self, id: str, kind: str, limit: int) -> bytes:
        found = self._read.get((id, kind, limit))
        if found is None:
            at = self._expected.index(id) + 1 if id in self._expected else len(self._expected)
            some = [id, *self._expected[at : at + self._at_once - 1]]
            read = read_objects(self._repository, some, kind, most=limit, seconds=self._seconds)
            self._read = {(oid, kind, limit): data for oid, data in read.items()}
            found = self._read[id, kind, limit]
        if isinstance(found, Unreadable):
            raise found
        return found


class PipedObjects:
    """The objects of a repository by one long-running ``git cat-file``.

    ``environ`` is that of the process, and may name further places of objects.
    """

    def __init__(self, git_dir: str, environ: Mapping[str, str]) -> None:
        self._git_dir, self._environ = git_dir, environ
        self._process: subprocess.Popen[bytes] | None = None
        self._pid, self._lock = 0, threading.Lock()

    def __del__(self) -> None:
        self._close()

    def read(self, id: str, kind: str, limit: int) -> bytes:
        if not is_id(id):
            raise Absent
        with self._lock:
            process = self._running()
            try:
                data = self._answer(process, id, kind, limit)
            except (OSError, ValueError):
                data = None
            except BaseException:
                self._close()  # the rest of its output would answer a later question
                raise
            # Whatever went wrong: the bytes are those of that object, or it counts as absent.
            if data is None or object_id(kind, data, len(id) // 2)[0] != id:
                self._close()
                raise Absent
            return data

    def _answer(
        self, process: subprocess.Popen[bytes], id: str, kind: str, limit: int
    ) -> bytes | None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("the process has no pipes")
        process.stdin.write(id.encode() + b"\n")
        process.stdin.flush()
        _, found, *sizes = process.stdout.readline().decode("ascii", "replace").split() or ("", "")
        if not sizes:
            return None  # "missing", or its end
        size = int(sizes[0])
        check_object(found == kind, size, kind, limit)
        data = process.stdout.read(size + 1)
        return data[:-1] if len(data) == size + 1 else None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._pid != os.getpid():  # after a fork the other process goes on with the old one
            self._process, self._pid = None, os.getpid()
        if self._process is None:
            git = ("git", "--no-replace-objects", f"--git-dir={self._git_dir}")
            try:
                self._process = subprocess.Popen(
                    [*git, "cat-file", "--batch"],
                    env=dict(self._environ),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            except OSError as error:
                raise Invalid(f"git cannot be run: {error.strerror}") from None
        return self._process

    def _close(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._pid == os.getpid():
            process.kill()
            with contextlib.suppress(OSError), process:
                pass  # its pipes are closed, and it is waited for


def object_id(kind: str, data: bytes, id_bytes: int) -> tuple[str, bytes]:
    """The id that git gives an object, and the bytes that it is the digest of."""
    from hashlib import sha1, sha256  # OpenSSL, for which hooks have no time

    whole = b"%s %d\0%s" % (kind.encode(), len(data), data)
    made = sha1(whole, usedforsecurity=False) if id_bytes == 20 else sha256(whole)
    return made.hexdigest(), whole


class TreeEntry(NamedTuple):
    """An entry of a tree; a name that is not UTF-8 has surrogates in it."""

    name: str
    mode: int
    id: str


def read_tree(objects: GitObjects, id: str, limit: int) -> list[TreeEntry]:
    """The entries of a tree, old modes as today's. Raises Unreadable."""
    data, found, at = objects.read(id, TREE, limit), [], 0
    for entry in re.finditer(_ENTRIES % (len(id) // 2), data):
        if entry.start() != at:
            raise Malformed
        mode, name, oid = entry.groups()
        found.append(TreeEntry(os.fsdecode(name), _usual(int(mode, 8)), oid.hex()))
        at = entry.end()
    if at != len(data):
        raise Malformed
    return found


def tree_bytes(entries: Iterable[TreeEntry]) -> bytes:
    """The bytes of a tree, with its entries in git's order."""

    def place(entry: TreeEntry) -> bytes:
        return os.fsencode(entry.name) + b"/" * (entry.mode == FOLDER)

    return b"".join(
        b"%o %s\0%s" % (entry.mode, os.fsencode(entry.name), bytes.fromhex(entry.id))
        for entry in sorted(entries, key=place)
    )


def _usual(mode: int) -> int:
    if stat.S_ISREG(mode):
        return EXECUTABLE if mode & 0o100 else FILE
    return stat.S_IFMT(mode)


def read_blobs(
    repository: Repository, oids: Iterable[str], *, most: int, seconds: float, at_once: int = 2_000
) -> Iterator[tuple[str, bytes | None]]:
    """The contents of blobs, None for one that is absent or larger than ``most`` bytes.

    One process for every ``at_once`` of them. Raises Invalid if git does not answer.
    """
    wanted = list(dict.fromkeys(filter(is_id, oids)))
    for start in range(0, len(wanted), at_once):
        some = wanted[start : start + at_once]
        read = read_objects(repository, some, BLOB, most=most, seconds=seconds)
        for oid, data in read.items():
            yield oid, None if isinstance(data, Unreadable) else data


def read_objects(
    repository: Repository, oids: Iterable[str], kind: str, *, most: int, seconds: float
) -> dict[str, bytes | Unreadable]:
    """The bytes of some objects, or why each cannot be read, in one process.

    ``most`` is how many bytes one may have. Raises Invalid if git does not answer.
    """
    found: dict[str, bytes | Unreadable] = {oid: Absent() for oid in oids}
    wanted = [oid for oid in found if is_id(oid)]
    for _ in range(LACKING):  # in a partial clone git may stop at an absent one
        if not wanted:
            break
        answer = _Answer(kind, most)
        with lines_as_input(wanted) as source:
            words = ("cat-file", "--batch")
            said = ask(repository, *words, timeout=seconds, source=source, on_out=answer.more)
        if said.timed_out:
            raise refusal(said, "the objects cannot be read")
        found.update(zip(wanted, answer.read, strict=False))
        wanted = wanted[len(answer.read) + 1 :]  # where it stopped, that one is absent
    return found


class _Answer:
    """Parses the output of ``cat-file --batch`` as it arrives; too large objects are dropped."""

    def __init__(self, kind: str, limit: int) -> None:
        self._kind, self._limit = kind, limit
        self._data, self._left = bytearray(), 0  # of the present object, with its line end
        self._why: Unreadable | None = None
        self.read: list[bytes | Unreadable] = []

    def more(self, data: bytes) -> None:
        self._data += data
        while self._data and (self._object() if self._left else self._line()):
            pass

    def _line(self) -> bool:
        end = self._data.find(b"\n")
        if end < 0:
            return False
        _, kind, *sizes = self._data[:end].decode("ascii", "replace").split(" ")
        del self._data[: end + 1]
        if not sizes or not sizes[0].isdigit():
            self.read.append(Absent())
            return True
        self._left, self._why = int(sizes[0]) + 1, None
        try:
            check_object(kind == self._kind, int(sizes[0]), self._kind, self._limit)
        except Unreadable as why:
            self._why = why
        return True

    def _object(self) -> bool:
        if self._why is not None:  # dropped, except its line end
            dropped = min(self._left - 1, len(self._data))
            del self._data[:dropped]
            self._left -= dropped
        if len(self._data) < self._left:
            return False
        self.read.append(self._why or bytes(self._data[: self._left - 1]))
        del self._data[: self._left]
        self._left = 0
        return True


def check_object(is_kind: bool, size: int, kind: str, limit: int) -> None:
    """Raise OtherKind or TooLarge for an object that is not of a kind, or larger than a limit."""
    if not is_kind:
        raise OtherKind(kind)
    if size > limit:
        raise TooLarge(limit)
