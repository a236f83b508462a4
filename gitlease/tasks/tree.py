"""Finds and reads the task files of a commit, without a checkout and without a connection.

Trees come from whoever can push: sizes are asked before contents are read, and what a partial
clone does not have is said, never fetched.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Container, Iterator

from gitlease.core.errors import Invalid, NotFound, shown
from gitlease.git.objects import (
    BLOB,
    BatchObjects,
    GitObjects,
    LibraryObjects,
    Unreadable,
    open_library,
    read_tree,
)
from gitlease.git.query import ask
from gitlease.git.repository import Repository
from gitlease.tasks.scan import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_FILES,
    Content,
    Found,
    Kind,
    Wanted,
    heads_to,
    link,
    problem,
)

MAX_TREE = 16 * 1024 * 1024  # bytes of one folder
MAX_ENTRIES = 2_000_000  # of all folders: the same one may lie in many places
MAX_LINK = 4096

_BLOBS, _LINK, _TREE = (0o100644, 0o100755), 0o120000, 0o040000


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
                tree = read_tree(self._objects, id, MAX_TREE)
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
        return Content(self._objects.read(self._ids[found.path], BLOB, MAX_BYTES))

    def linked(self, path: str) -> tuple[str | None, bytes]:
        """Where a link leads to, and what is there if that is a file which was found."""
        with contextlib.suppress(Unreadable):
            text = os.fsdecode(self._objects.read(self._ids[path], BLOB, MAX_LINK))
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), text))
            if target in self._ids:
                return target, b""
        return None, b""


def _is_odd(name: str) -> bool:
    """Whether no file of a work tree can be called so."""
    return name in ("", ".", "..") or "/" in name or name.lower() == ".git"


def _open(repository: Repository, ref: str) -> tuple[GitObjects, str]:
    """The objects of a repository, and the tree of the commit that a ref names."""
    if not ref or ref.startswith("-") or not ref.isprintable():
        raise _no_ref(ref)
    repo = open_library(repository)
    if repo is None:  # a format of objects or refs that only git knows
        words = ("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}^{{tree}}")
        said = ask(repository, *words)
        if said.code != 0:
            raise _no_ref(ref)
        return BatchObjects(repository), said.out.decode().strip()
    import pygit2

    try:
        commit = repo.revparse_single(f"{ref}^{{commit}}").peel(pygit2.Commit)
        return LibraryObjects(repo), str(commit.tree_id)
    except (pygit2.GitError, KeyError, ValueError):
        raise _no_ref(ref) from None


def _no_ref(ref: str) -> NotFound:
    hint = "name a branch, a tag or a commit of this clone; git fetch brings others here"
    return NotFound(f"there is no ref {shown(ref)}", hints=(hint,))
