"""Reads the commits of a ledger from the oldest on, and what each changes in the tree.

Objects are read in batches, with a few git processes for each, so that neither their number nor the
size of the ledger makes it slow, and only one state is kept. Everything is untrusted: what is wrong
is reported with its commit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gitlease.git import (
    BLOB,
    COMMIT,
    FILE,
    FOLDER,
    TREE,
    Pieces,
    Repository,
    TreeEntry,
    Unreadable,
    ask,
    objects_of,
    read_tree,
    refusal,
)
from ledger_checker.commit import StepCommit, read_commit

SECONDS = 600.0  # for one answer of git
AT_ONCE = 128  # commits that are read together
BLOBS_AT_ONCE = 2_000
MAX_COMMIT = 1024 * 1024
MAX_FOLDER = 8 * 1024 * 1024
MAX_RECORD = 64 * 1024
MAX_LISTING = 512 * 1024
MAX_HEADER = 128 * 1024
HEADER = "ledger.yaml"
LEASES = ("leases", "paths")
LISTINGS = ("notes", "notices", "waiting")
_FAN = re.compile(r"[0-9a-f]{2}")

Folder = dict[str, TreeEntry]


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


def first_parents(repository: Repository, tip: str) -> list[str]:
    """The commits of a history, the oldest first. Raises Invalid if git cannot list them."""
    found: list[bytes] = []

    def take(line: bytes) -> None:
        found.append(bytes.fromhex(line.decode("ascii")))

    pieces = Pieces(b"\n", take)
    listed = ask(
        repository,
        *("rev-list", "--first-parent", "--reverse", tip, "--"),
        timeout=SECONDS,
        on_out=pieces.more,
    )
    if listed.code != 0 or listed.timed_out:
        raise refusal(listed, "the history cannot be read")
    return [oid.hex() for oid in found]


def read_steps(repository: Repository, commits: Sequence[str]) -> Iterator[TreeStep]:
    """The changes of each of these commits, which follow each other."""
    reader = _Reader(repository)
    for start in range(0, len(commits), AT_ONCE):
        yield from reader.portion(commits[start : start + AT_ONCE])


class _Reader:
    """The state of the tree so far: for each folder of records its entries, by fan."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._root = ""
        self._tops: dict[str, str] = {}
        self._fans: dict[str, Folder] = {}  # of each top
        self._files: dict[str, Folder] = {}  # of each fan: "leases/4f"
        self._read: dict[str, tuple[Folder, str]] = {}  # of one portion: trees, and what is wrong

    def portion(self, commits: Sequence[str]) -> list[TreeStep]:
        self._read = {}
        steps = self._commits(commits)
        roots = [step.commit.tree for step in steps if step.commit is not None]
        self._load(roots)
        self._load(
            entry.id
            for root in roots
            for entry in self._read[root][0].values()
            if entry.mode == FOLDER and entry.name in (*LEASES, *LISTINGS)
        )
        self._load(self._new_fans(roots))
        for step in steps:
            if step.commit is not None:
                self._advance(step, step.commit.tree)
        self._contents(steps)
        return steps

    def _commits(self, commits: Sequence[str]) -> list[TreeStep]:
        read = read_objects(self._repository, commits, COMMIT, most=MAX_COMMIT)
        steps = []
        for oid in commits:
            data = read[oid]
            step = TreeStep(oid, None)
            if isinstance(data, bytes):
                step.commit = read_commit(data)
            if step.commit is None:
                why = f"it {data}" if isinstance(data, Unreadable) else "it is malformed"
                step.problems.append(("commit", f"the commit cannot be read: {why}"))
            steps.append(step)
        return steps

    def _load(self, oids: Iterable[str]) -> None:
        wanted = [oid for oid in dict.fromkeys(oids) if oid not in self._read]
        read = read_objects(self._repository, wanted, TREE, most=MAX_FOLDER)
        for oid, data in read.items():
            self._read[oid] = _folder(oid, data)

    def _new_fans(self, roots: Sequence[str]) -> Iterator[str]:
        """The trees of fans that are new since the state before."""
        before = dict(self._fans)
        for root in roots:
            for top in self._read[root][0].values():
                if top.mode == FOLDER and top.id in self._read:
                    fans = self._read[top.id][0]
                    yield from (
                        entry.id
                        for _, entry in fans.items() - before.get(top.name, {}).items()
                        if entry.mode == FOLDER
                    )
                    before[top.name] = fans

    def _advance(self, step: TreeStep, root: str) -> None:
        if root == self._root:
            step.same_tree = True
            return
        self._root = root
        entries, wrong = self._read[root]
        step.problems += [("tree", f"the tree {wrong}")] if wrong else []
        for entry in entries.values():
            if entry.name == HEADER:
                if entry.mode != FILE:
                    step.problems.append(("mode", f"{HEADER} is not a plain file"))
                step.header = FileChange(HEADER, entry.id)
            elif entry.name not in (*LEASES, *LISTINGS):
                step.problems.append(("tree", f"{_shown(entry.name)} does not belong in a ledger"))
            elif entry.mode != FOLDER:
                step.problems.append(("mode", f"{entry.name} is not a folder"))
        for top in (*LEASES, *LISTINGS):
            there = entries.get(top)
            now = there.id if there is not None and there.mode == FOLDER else ""
            if now != self._tops.get(top, ""):
                self._tops[top] = now
                self._advance_top(step, top, now)

    def _advance_top(self, step: TreeStep, top: str, oid: str) -> None:
        before, after = self._fans.get(top, {}), Folder()
        if oid:
            after, wrong = self._read[oid]
            step.problems += [("tree", f"the folder {top} {wrong}")] if wrong else []
        self._fans[top] = after
        for name in sorted({name for name, _ in before.items() ^ after.items()}):
            entry = after.get(name)
            place = f"{top}/{name}"
            fan = entry is not None and entry.mode == FOLDER and _FAN.fullmatch(name) is not None
            if entry is not None and not fan:
                message = f"{top}/{_shown(name)} does not belong in a ledger"
                step.problems.append(("tree", message))
            self._advance_fan(step, place, entry.id if entry is not None and fan else "")

    def _advance_fan(self, step: TreeStep, place: str, oid: str) -> None:
        before, after = self._files.pop(place, {}), Folder()
        if oid:
            after, wrong = self._read[oid]
            step.problems += [("tree", f"the folder {place} {wrong}")] if wrong else []
            self._files[place] = after
        for name in before.keys() - after.keys():
            step.changes.append(FileChange(f"{place}/{name}", ""))
        for name, entry in after.items():
            if before.get(name) != entry:
                changed = FileChange(f"{place}/{name}", entry.id)
                if entry.mode != FILE:
                    changed.problem = "is not a plain file"
                    message = f"{place}/{_shown(name)} is not a plain file"
                    step.problems.append(("mode", message))
                step.changes.append(changed)

    def _contents(self, steps: Sequence[TreeStep]) -> None:
        wanted = [x for step in steps for x in step.changes if x.blob and not x.problem]
        headers = [step.header for step in steps if step.header is not None]
        listings = [x for x in wanted if x.path.startswith(LISTINGS)]
        self._read_blobs(headers, MAX_HEADER)
        self._read_blobs([x for x in wanted if x.path.startswith(LEASES)], MAX_RECORD)
        self._read_blobs(listings, MAX_LISTING)

    def _read_blobs(self, files: Sequence[FileChange], most: int) -> None:
        for start in range(0, len(files), BLOBS_AT_ONCE):
            some = files[start : start + BLOBS_AT_ONCE]
            oids = [file.blob for file in some]
            read = read_objects(self._repository, oids, BLOB, most=most)
            for file in some:
                data = read[file.blob]
                if isinstance(data, bytes):
                    file.data = data
                else:
                    file.problem = str(data)


def read_objects(
    repository: Repository, oids: Iterable[str], kind: str, *, most: int
) -> dict[str, bytes | Unreadable]:
    """The bytes of some objects, or why each cannot be read."""
    objects, found = objects_of(repository), dict[str, bytes | Unreadable]()
    for oid in oids:
        try:
            found[oid] = objects.read(oid, kind, most)
        except Unreadable as why:
            found[oid] = why
    return found


def _folder(oid: str, data: bytes | Unreadable) -> tuple[Folder, str]:
    if isinstance(data, Unreadable):
        return {}, str(data)
    try:
        entries = read_tree(ReadyObject(data), oid, MAX_FOLDER)
    except Unreadable as why:
        return {}, str(why)
    found = {entry.name: entry for entry in entries}
    if not entries:
        return found, "is empty"
    if len(found) != len(entries):
        return found, "has an entry twice"
    written = [os.fsencode(x.name) + b"/" * (x.mode == FOLDER) for x in entries]
    return found, "" if sorted(written) == written else "is out of order"


@dataclass(frozen=True, slots=True)
class ReadyObject:
    """An object reader for bytes that are at hand."""

    data: bytes

    def read(self, id: str, kind: str, limit: int) -> bytes:
        return self.data


def _shown(name: str) -> str:
    return name if name.isprintable() and len(name) <= 160 else ascii(name)[:160]
