"""Compares a pushed commit with the result of the operations that it names, byte for byte.

The judge writes the step once more, in memory: if its records, its tree and its commit do not have
the same ids then, it is refused. No pushed record is parsed, and only those pushed folders are read
that differ from the expected ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gitlease.core.edge import printable
from gitlease.core.errors import Invalid
from gitlease.core.moves.step_record import (
    NEWER,
    BadStep,
    Illegal,
    Pusher,
    StepRecord,
    judge,
    read_step,
    refused,
)
from gitlease.core.moves.transitions import Applied
from gitlease.git.files import Unreadable
from gitlease.git.objects import (
    COMMIT,
    FILE,
    FOLDER,
    TREE,
    GitObjects,
    TooLarge,
    TreeEntry,
    object_id,
    read_tree,
)
from gitlease.store.history import (
    MAX_COMMIT,
    LedgerCommit,
    commit_bytes,
    operations_line,
    read_commit,
)
from gitlease.store.records import HEADER_FILE
from gitlease.store.tree import MAX_TREE, read_ledger
from gitlease.store.tree_writer import changed_files, write_tree

RULES = {
    HEADER_FILE: "header",
    "leases": "record",
    "paths": "record",
    "notes": "notes",
    "notices": "notices",
    "waiting": "tickets",
}


def judge_step(objects: GitObjects, before: str, version: str, pusher: Pusher, now_ms: int) -> None:
    """Raise Illegal unless a commit is a legal step after another (``""``: the first)."""
    ledger = read_ledger(objects, before) if before else None
    carry_out = partial(judge, ledger, pusher=pusher, now_ms=now_ms)
    repeat_step(objects, before, version, carry_out)


def repeat_step(
    objects: GitObjects,
    before: str,
    version: str,
    carry_out: Callable[[StepRecord], Applied],
) -> tuple[StepRecord, Applied]:
    """Carry a step out again, and compare its commit with the result. Raises Illegal if it differs.

    The ledger's damage raises Invalid.
    """
    commit = commit_at(objects, version)
    record = step_record(commit.message)
    applied = carry_out(record)
    base = commit_at(objects, before).tree_id if before else None
    _check_tree(objects, base, commit.tree_id, applied)
    expected = commit_bytes(applied, record, commit.tree_id, commit.parent_ids)
    if objects.read(version, COMMIT, MAX_COMMIT) != expected:
        raise Illegal("commit", "its commit does not describe its changes", hints=(NEWER,))
    return record, applied


def commit_at(objects: GitObjects, version: str) -> LedgerCommit:
    """A commit of a ledger. Raises Illegal if it is not one, or too large."""
    found = read_commit(objects, version)
    if found is None:
        raise Illegal("commit", f"{version} is not a commit of a ledger")
    return found


def step_record(message: str) -> StepRecord:
    """The operations that a commit's message names. Raises Illegal if it does not."""
    line = operations_line(message)
    if line is None:
        raise Illegal(
            "operations",
            "its commit does not name its operations",
            hints=("an older gitlease wrote it: upgrade that one; or it is not a ledger",),
        )
    try:
        return read_step(line)
    except BadStep as error:
        raise Illegal("operations", f"its operations: {error}", hints=(NEWER,)) from None


def _check_tree(objects: GitObjects, base: str | None, tree: str, applied: Applied) -> None:
    try:
        files = changed_files(applied.ledger)
    except Invalid as error:
        raise Illegal("record", error.message) from None
    dry_run = _DryRunObjects(objects, len(tree) // 2)
    expected = write_tree(dry_run, base, files)
    if expected == tree:
        return
    path, pushed = _difference(dry_run, expected, tree, "")
    if why := refused(applied):
        raise why
    if path not in files:
        what = f"{printable(path)} differs, but no operation of this step changes it"
        raise Illegal("unexplained", what)
    if pushed is not None and pushed.mode != FILE:
        raise Illegal("mode", f"{printable(path)} is not a plain file")
    raise Illegal(
        RULES[path.partition("/")[0]],
        f"{printable(path)} is not the result of the operations of this step",
        hints=(NEWER,),
    )


def _difference(
    objects: GitObjects, expected: str, found: str | None, folder: str
) -> tuple[str, TreeEntry | None]:
    # The first path that differs, and its pushed entry.
    wanted = {entry.name: entry for entry in read_tree(objects, expected, MAX_TREE)}
    pushed = {} if found is None else _pushed_folder(objects, found, folder)
    for name in sorted(wanted.keys() | pushed.keys()):
        one, other = wanted.get(name), pushed.get(name)
        if one == other:
            continue
        path = f"{folder}/{name}".lstrip("/")
        if one is not None and one.mode == FOLDER and (other is None or other.mode == FOLDER):
            return _difference(objects, one.id, other and other.id, path)
        return path, other
    raise Illegal("tree", f"its folder /{folder} is malformed")


def _pushed_folder(objects: GitObjects, id: str, folder: str) -> dict[str, TreeEntry]:
    try:
        return {entry.name: entry for entry in read_tree(objects, id, MAX_TREE)}
    except Unreadable as error:
        rule = "too-large" if isinstance(error, TooLarge) else "tree"
        raise Illegal(rule, f"its folder /{folder} {error}") from None


class _DryRunObjects:
    """The objects of a repository, and trees written to memory only."""

    def __init__(self, objects: GitObjects, id_bytes: int) -> None:
        self._objects, self._id_bytes = objects, id_bytes
        self._written = dict[str, bytes]()

    def read(self, id: str, kind: str, limit: int) -> bytes:
        written = self._written.get(id)
        return self._objects.read(id, kind, limit) if written is None else written

    def write(self, kind: str, data: bytes) -> str:
        id, _ = object_id(kind, data, self._id_bytes)
        if kind == TREE:
            self._written[id] = data
        return id
