"""Reads the commits of a ledger from the oldest on, and what each changes in the tree.

Only one state is kept. Everything is untrusted: what is wrong is reported with its commit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pygit2

from ledger_checker.commit import StepCommit, read_commit

COMMIT, TREE, BLOB = pygit2.GIT_OBJECT_COMMIT, pygit2.GIT_OBJECT_TREE, pygit2.GIT_OBJECT_BLOB
MOST = {COMMIT: 1024 * 1024, TREE: 8 * 1024 * 1024}
MAX_RECORD = 64 * 1024
MAX_LISTING = 512 * 1024
MAX_HEADER = 128 * 1024
FILE, FOLDER = b"100644", b"40000"
HEADER = "ledger.yaml"
LEASES = ("leases", "paths")
LISTINGS = ("notes", "notices", "waiting")
_FAN = re.compile(r"[0-9a-f]{2}")
_ENTRY = re.compile(rb"([0-7]+) ([^\0]+)\0(.{20})", re.DOTALL)


class Entry(NamedTuple):
    """One entry of a tree."""

    mode: bytes
    id: str


Folder = dict[str, Entry]


@dataclass(slots=True)
class FileChange:
    """A file that a commit changes, by its path: its new bytes, None if it is gone.

    ``problem`` says why its bytes cannot be read.
    """

    path: str
    blob: str
    data: bytes | None = None
    problem: str = ""


@dataclass(slots=True)
class TreeStep:
    """A commit and its changes. ``problems`` has a rule and a sentence for each thing wrong.

    ``header`` is None without one, or if the whole is the ``same_tree`` as before.
    """

    id: str
    commit: StepCommit | None
    header: FileChange | None = None
    same_tree: bool = False
    changes: list[FileChange] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)


class Objects:
    """The objects of a repository: their bytes, or why they cannot be read."""

    def __init__(self, git_dir: Path | str) -> None:
        self._repository = pygit2.Repository(str(git_dir))
        self.folder = lru_cache(maxsize=10_000)(self._folder)

    def read(self, oid: str, kind: int, most: int = 0) -> bytes | str:
        try:
            found, data = self._repository.read(oid)
        except (KeyError, ValueError):
            return "is not in this repository"
        if found != kind:
            return "is another kind of object"
        return "is too large" if len(data) > (most or MOST[kind]) else data

    def commit(self, oid: str) -> StepCommit | None:
        data = self.read(oid, COMMIT)
        return read_commit(data) if isinstance(data, bytes) else None

    def first_parents(self, tip: str) -> list[str]:
        """The commits of a history, the oldest first: as far as they are there."""
        found, oid = list[str](), tip
        while isinstance(self.read(oid, COMMIT), bytes):
            found.append(oid)
            commit = self.commit(oid)
            if commit is None or not commit.parents:
                break
            oid = commit.parents[0]
        return found[::-1]

    def _folder(self, oid: str) -> tuple[Folder, str]:
        """The entries of a tree, and what is wrong with it."""
        data = self.read(oid, TREE) if oid else b""
        if isinstance(data, str):
            return {}, data
        entries = [
            (os.fsdecode(name), Entry(mode, id.hex())) for mode, name, id in _ENTRY.findall(data)
        ]
        found = dict(entries)
        if oid and not entries:
            return found, "is empty"
        if len(found) != len(entries):
            return found, "has an entry twice"
        written = [os.fsencode(name) + b"/" * (x.mode == FOLDER) for name, x in entries]
        return found, "" if sorted(written) == written else "is out of order"


class TreeReader:
    """Reads one commit after the other, each against the one before."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._root = ""

    def step(self, oid: str) -> TreeStep:
        """The changes of the next commit."""
        step = TreeStep(oid, self._objects.commit(oid))
        if step.commit is None:
            step.problems.append(("commit", "the commit cannot be read"))
        elif step.commit.tree == self._root:
            step.same_tree = True
        else:
            before, self._root = self._objects.folder(self._root)[0], step.commit.tree
            self._advance(step, before, self._opened(step, self._root, "the tree"))
        return step

    def _opened(self, step: TreeStep, oid: str, what: str) -> Folder:
        found, wrong = self._objects.folder(oid)
        step.problems += [("tree", f"{what} {wrong}")] if wrong else []
        return found

    def _advance(self, step: TreeStep, before: Folder, after: Folder) -> None:
        for name, entry in after.items():
            if name == HEADER:
                if entry.mode != FILE:
                    step.problems.append(("mode", f"{HEADER} is not a plain file"))
                step.header = self._file(HEADER, entry, MAX_HEADER)
            elif name not in (*LEASES, *LISTINGS):
                step.problems.append(("tree", f"{_shown(name)} does not belong in a ledger"))
            elif entry.mode != FOLDER:
                step.problems.append(("mode", f"{name} is not a folder"))
        for top in (*LEASES, *LISTINGS):
            for place, old, new in self._changed(step, top, before.get(top), after.get(top)):
                if new is not None and not _is_fan(place, new):
                    step.problems.append(("tree", f"{_shown(place)} does not belong in a ledger"))
                fans = (x if x is not None and _is_fan(place, x) else None for x in (old, new))
                for path, _, file in self._changed(step, place, *fans):
                    step.changes.append(self._record(step, path, file))

    def _changed(
        self, step: TreeStep, place: str, old: Entry | None, new: Entry | None
    ) -> Iterator[tuple[str, Entry | None, Entry | None]]:
        """What differs between two folders: paths, with their entries before and after."""
        ids = [x.id if x is not None and x.mode == FOLDER else "" for x in (old, new)]
        if ids[0] == ids[1]:
            return
        before, after = self._objects.folder(ids[0])[0], {}
        if ids[1]:
            after = self._opened(step, ids[1], f"the folder {place}")
        for name in sorted({name for name, _ in before.items() ^ after.items()}):
            yield f"{place}/{name}", before.get(name), after.get(name)

    def _record(self, step: TreeStep, path: str, entry: Entry | None) -> FileChange:
        if entry is None:
            return FileChange(path, "")
        if entry.mode != FILE:
            step.problems.append(("mode", f"{_shown(path)} is not a plain file"))
            return FileChange(path, entry.id, problem="is not a plain file")
        return self._file(path, entry, MAX_LISTING if path.startswith(LISTINGS) else MAX_RECORD)

    def _file(self, path: str, entry: Entry, most: int) -> FileChange:
        data = self._objects.read(entry.id, BLOB, most)
        if isinstance(data, bytes):
            return FileChange(path, entry.id, data)
        return FileChange(path, entry.id, problem=data)


def _is_fan(place: str, entry: Entry) -> bool:
    return entry.mode == FOLDER and _FAN.fullmatch(place.partition("/")[2]) is not None


def _shown(name: str) -> str:
    return name if name.isprintable() and len(name) <= 160 else ascii(name)[:160]
