"""Finds and reads the task files of a commit, without a checkout and without a connection.

Trees come from whoever can push: sizes are asked before contents are read, and what a partial
clone does not have is said, never fetched.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gitlease.adapters.git import run_git
from gitlease.adapters.libgit2 import load_pygit2
from gitlease.adapters.repository import TIMEOUT, Repository
from gitlease.adapters.settings_schema import shown
from gitlease.adapters.task_scan import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_FILES,
    Content,
    Found,
    Kind,
    Unreadable,
    Wanted,
    heads_to,
    link,
    problem,
)
from gitlease.domain.errors import Invalid, NotFound

if TYPE_CHECKING:
    import pygit2

MAX_TREE = 16 * 1024 * 1024  # bytes of one folder
MAX_ENTRIES = 2_000_000  # of all folders: the same one may lie in many places
MAX_LINK = 4096

_BLOBS, _LINK, _TREE = (0o100644, 0o100755, 0o100664), 0o120000, 0o040000
_ABSENT = "is not in this clone, which has only a part of its objects"


class Entry(NamedTuple):
    """An entry of a tree; a name that is no text has surrogates in it, as in a work tree."""

    name: str
    mode: int
    id: str


class Objects(Protocol):
    """Reads trees and blobs. Every method raises Unreadable for what is missing or too large."""

    def tree(self, id: str) -> Sequence[Entry]: ...

    def blob(self, id: str, limit: int) -> bytes: ...


class RefTree:
    """The files of the commit that a ref names. Raises NotFound where there is none."""

    def __init__(self, repository: Repository, ref: str, wanted: Wanted) -> None:
        self._wanted = wanted
        self._objects, self._root = _open(repository, ref)
        self._ids: dict[str, str] = {}

    def walk(self, known: Container[str] = ()) -> Iterator[Found]:
        """Everything in the place of a task file. ``known`` keys are covered for certain.

        Raises Invalid when there is too much.
        """
        count, entries, folders = 0, 0, [("", self._root, self._wanted.rules, 1)]
        while folders:
            folder, id, rules, depth = folders.pop()
            try:
                tree = self._objects.tree(id)
            except Unreadable as error:
                yield problem(folder or ".", str(error))
                continue
            entries += len(tree)
            if entries > MAX_ENTRIES:
                raise Invalid(f"there are more than {MAX_ENTRIES} files and folders to look at")
            for entry in tree:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if _is_odd(entry.name) or not heads_to(rules, entry.name, depth):
                    continue
                if entry.mode == _TREE:
                    inner = tuple(rule for rule in rules if rule.enters(path, depth))
                    if inner and depth < MAX_DEPTH:
                        folders.append((path, entry.id, inner, depth + 1))
                    elif inner:
                        yield problem(path, f"is more than {MAX_DEPTH} folders deep")
                    continue
                found = None
                if entry.mode == _LINK:
                    found = link(path, rules, depth, folder=True)
                elif entry.mode in _BLOBS:
                    key = f"{entry.id}:{path}"
                    if key in known or any(rule.covers(path) for rule in rules):
                        found = Found(path, Kind.FILE, key)
                if found is not None:
                    count += 1
                    if count > MAX_FILES:
                        raise self._wanted.too_many(path)
                    self._ids[path] = entry.id
                    yield found

    def load(self, found: Found) -> Content:
        """The bytes of a file that was found. Raises Unreadable."""
        return Content(self._objects.blob(self._ids[found.path], MAX_BYTES))

    def linked(self, path: str) -> tuple[str | None, bytes]:
        """Where a link leads to, and what is there if that is a file which was found."""
        with contextlib.suppress(Unreadable):
            text = os.fsdecode(self._objects.blob(self._ids[path], MAX_LINK))
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), text))
            if target in self._ids:
                return target, b""
        return None, b""


def _is_odd(name: str) -> bool:
    """Whether no file of a work tree can be called so."""
    return name in ("", ".", "..") or "/" in name or name.lower() == ".git"


def _open(repository: Repository, ref: str) -> tuple[Objects, str]:
    """The objects of a repository, and the tree of the commit that a ref names."""
    if not ref or ref.startswith("-") or not ref.isprintable():
        raise _no_ref(ref)
    load_pygit2()
    import pygit2

    flag = pygit2.enums.RepositoryOpenFlag.NO_SEARCH
    try:
        repo = pygit2.Repository(repository.git_dir, flag)
    except (pygit2.GitError, KeyError, ValueError, OSError):
        return _open_by_git(repository, ref)  # a format of objects or refs that only git knows
    try:
        commit = repo.revparse_single(f"{ref}^{{commit}}").peel(pygit2.Commit)
        return _Libgit2Objects(repo), str(commit.tree_id)
    except (pygit2.GitError, KeyError, ValueError):
        raise _no_ref(ref) from None


def _no_ref(ref: str) -> NotFound:
    hint = "name a branch, a tag or a commit of this clone; git fetch brings others here"
    return NotFound(f"there is no ref {shown(ref)}", hints=(hint,))


class _Libgit2Objects:
    def __init__(self, repo: pygit2.Repository) -> None:
        self._repo = repo

    def tree(self, id: str) -> Sequence[Entry]:
        import pygit2

        found = self._get(id, MAX_TREE)
        if not isinstance(found, pygit2.Tree):
            raise Unreadable("is not a folder")
        return [Entry(os.fsdecode(e.raw_name or b""), int(e.filemode), str(e.id)) for e in found]

    def blob(self, id: str, limit: int) -> bytes:
        import pygit2

        found = self._get(id, limit)
        if not isinstance(found, pygit2.Blob):
            raise Unreadable("is not a file")
        return bytes(found.read_raw())

    def _get(self, id: str, limit: int) -> pygit2.Object:
        import pygit2

        try:
            oid = pygit2.Oid(hex=id)
            if self._repo.odb.read_header(oid)[1] > limit:
                raise Unreadable(f"is larger than {limit // 1024} KiB")
            return self._repo[oid]
        except (KeyError, pygit2.GitError):
            raise Unreadable(_ABSENT) from None


def _open_by_git(repository: Repository, ref: str) -> tuple[Objects, str]:
    objects = _GitObjects(repository.git_dir)
    said = objects.ask("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}^{{tree}}")
    if said is None:
        raise _no_ref(ref)
    return objects, said.decode().strip()


class _GitObjects:
    """The same with one git process for each object: slow, and needed once for each of them."""

    def __init__(self, git_dir: str) -> None:
        self._git_dir = git_dir

    def tree(self, id: str) -> Sequence[Entry]:
        listed = self._object("tree", id, MAX_TREE, "ls-tree", "-z", id)
        entries = []
        for line in os.fsdecode(listed).split("\0")[:-1]:
            about, _, name = line.partition("\t")
            mode, _, inner = about.split(" ")
            entries.append(Entry(name, int(mode, 8), inner))
        return entries

    def blob(self, id: str, limit: int) -> bytes:
        return self._object("blob", id, limit, "cat-file", "blob", id)

    def _object(self, kind: str, id: str, limit: int, *words: str) -> bytes:
        size = self.ask("cat-file", "-s", id)
        if size is not None and int(size) > limit:
            raise Unreadable(f"is larger than {limit // 1024} KiB")
        read = None if size is None else self.ask(*words)
        if read is None:
            raise Unreadable(_ABSENT)
        return read

    def ask(self, *words: str) -> bytes | None:
        """What git answers; None where it fails. It opens no connection for what is missing."""
        command = (f"--git-dir={self._git_dir}", *words)
        offline = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
        said = run_git(command, cwd=self._git_dir, timeout=TIMEOUT, env=offline)
        return said.out if said.code == 0 and not said.timed_out else None
