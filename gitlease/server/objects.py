"""The objects of a push that is not accepted yet, read on the server without believing any.

git keeps them in a quarantine until its hook has agreed. libgit2 is told of that place as of
a further one to look in; nothing is written there or elsewhere. Sizes are asked before contents
are read, and trees and commits are read as bytes: what git would make of odd ones does not matter.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.core.instant import MS
from gitlease.core.moves.audit import Illegal
from gitlease.git.libgit2 import load_pygit2
from gitlease.git.objects import Absent, LibraryObjects, OtherKind, TooLarge
from gitlease.store.damage import CacheDamaged
from gitlease.store.history import MAX_COMMIT
from gitlease.store.tree import MAX_TREE, Objects

if TYPE_CHECKING:
    import pygit2

MEMORY = 512 * 1024 * 1024  # bytes that a hook may ask of the system for itself
MAX_BYTES = 64 * 1024 * 1024  # of all records that are read for one push

TREE, FILE = "40000", "100644"
_SIGNATURE = re.compile(rb"([^<>\n]*) <([^<>\n]*)> ([0-9]{1,11}) [+-][0-9]{4}")
_ID = re.compile(rb"[0-9a-f]{40}")
_SIGNED = (b"gpgsig", b"gpgsig-sha256")


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a tree: git's mode as written there, and the id."""

    mode: str
    oid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit as its bytes say: nothing of it is believed. ``at`` is in milliseconds."""

    oid: str
    tree: str
    parents: tuple[str, ...]
    author: str
    at: int
    message: str


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


class PushedObjects:
    """The objects of a repository on the server, with those of the push that its hook judges."""

    def __init__(self, git_dir: str, environ: Mapping[str, str]) -> None:
        self.repo = _open(git_dir, environ)
        self._objects, self._read = Objects(self.repo), 0

    def blob(self, oid: pygit2.Oid, limit: int) -> bytes:
        data = self._objects.blob(oid, limit)
        self._read += len(data)
        if self._read > MAX_BYTES:
            raise Illegal("too-large", f"its records are more than {MAX_BYTES // 2**20} MiB")
        return data

    def unmetered(self, oid: pygit2.Oid, limit: int) -> bytes:
        """The bytes of a blob that is there already: of those the push is not to blame."""
        return self._objects.blob(oid, limit)

    def entries(self, tree: str, what: str) -> Iterator[tuple[str, Entry]]:
        """The entries of a tree, in git's order; Illegal where it is malformed."""
        data = self._bytes(tree, "tree", MAX_TREE, what)
        at, before = 0, b""
        while at < len(data):
            blank = data.find(b" ", at, at + 8)
            end = data.find(b"\0", blank)
            if blank < 0 or end < 0 or end + 21 > len(data) or end - blank > 4_096:
                raise Illegal("tree", f"its folder {what} is malformed")
            mode, name = data[at:blank].decode("latin-1"), data[blank + 1 : end]
            place = name + (b"/" if mode == TREE else b"")
            if not name or b"/" in name or (before and place <= before):
                raise Illegal("tree", f"its folder {what} is malformed")
            yield os.fsdecode(name), Entry(mode, data[end + 1 : end + 21].hex())
            at, before = end + 21, place

    def commit(self, oid: str) -> Commit:
        """A commit; Illegal where it is none, or none that gitlease could have written."""
        data = self._bytes(oid, "commit", MAX_COMMIT, "commit")
        head, _, message = data.partition(b"\n\n")
        fields: dict[bytes, list[bytes]] = {}
        for line in head.split(b"\n"):
            key, _, value = line.partition(b" ")
            if key:
                fields.setdefault(key, []).append(value)
        known = {b"tree", b"parent", b"author", b"committer", *_SIGNED}
        trees, parents = fields.get(b"tree", []), fields.get(b"parent", [])
        if fields.keys() - known or len(trees) != 1:
            raise Illegal("commit", "its commit has a header that no ledger's commit has")
        if not all(_ID.fullmatch(x) for x in (*trees, *parents)):
            raise Illegal("commit", "its commit is malformed")
        author, committer = (fields.get(key, []) for key in (b"author", b"committer"))
        signature = _SIGNATURE.fullmatch(author[0]) if len(author) == 1 else None
        if signature is None or author != committer:
            raise Illegal("commit", "its commit has not one author who is its committer as well")
        return Commit(
            oid=oid,
            tree=trees[0].decode(),
            parents=tuple(x.decode() for x in parents),
            author=signature[2].decode("utf-8", "replace"),
            at=int(signature[3]) * MS,
            message=message.decode("utf-8", "replace"),
        )

    def _bytes(self, oid: str, kind: str, limit: int, what: str) -> bytes:
        try:
            return LibraryObjects(self.repo).read(oid, kind, limit)
        except OtherKind:
            raise Illegal("kind", f"{what} is no {kind}") from None
        except TooLarge:
            raise Illegal("too-large", f"its {what} is larger than {limit} bytes") from None
        except Absent:
            raise CacheDamaged(f"object {oid} cannot be read") from None


def _open(git_dir: str, environ: Mapping[str, str]) -> pygit2.Repository:
    """The repository, with the objects of the push's quarantine and of what git was told besides.

    git has decided already that it may be used: whoever owns its files is not asked again.
    """
    load_pygit2()
    import pygit2

    with contextlib.suppress(AttributeError, pygit2.GitError):
        pygit2.settings.owner_validation = False
    try:
        repo = pygit2.Repository(git_dir, pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
        own = os.path.realpath(os.path.join(git_dir, "objects"))
        others = environ.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", "").split(os.pathsep)
        for folder in (environ.get("GIT_OBJECT_DIRECTORY", ""), *others):
            place = folder.strip('"')
            if place and os.path.realpath(place) != own and os.path.isdir(place):
                repo.odb.add_disk_alternate(os.path.abspath(place))
    except (pygit2.GitError, KeyError, ValueError, OSError) as error:
        raise Invalid(f"the repository cannot be read: {error}") from None
    return repo
