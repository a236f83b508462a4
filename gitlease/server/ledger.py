"""Judges the move of one ledger's ref: every step of it, by the table of transitions.

The judge writes each step once more, in memory: if its records, its tree and its commit do not have
the same ids then, it is refused. No pushed record is parsed, and only those pushed folders are read
that differ from the expected ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice

from gitlease.core.edge import printable
from gitlease.core.errors import GitleaseError, Invalid
from gitlease.core.moves.transitions import (
    NEWER,
    Applied,
    Illegal,
    Pusher,
    StepRecord,
    judge,
    refused,
)
from gitlease.core.policy import History
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
from gitlease.store import history
from gitlease.store.history import LedgerCommit
from gitlease.store.records import HEADER_FILE
from gitlease.store.tree import MAX_TREE, changed_files, read_ledger, write_tree

# --- one step ---------------------------------------------------------------------------------

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
    expected = history.commit_bytes(applied, record, commit.tree_id, commit.parent_ids)
    if objects.read(version, COMMIT, history.MAX_COMMIT) != expected:
        raise Illegal("commit", "its commit does not describe its changes", hints=(NEWER,))
    return record, applied


def commit_at(objects: GitObjects, version: str) -> LedgerCommit:
    """A commit of a ledger. Raises Illegal if it is not one, or too large."""
    found = history.read_commit(objects, version)
    if found is None:
        raise Illegal("commit", f"{version} is not a commit of a ledger")
    return found


def step_record(message: str) -> StepRecord:
    """The operations that a commit's message names. Raises Illegal if it does not."""
    line = history.operations_line(message)
    if line is None:
        raise Illegal(
            "operations",
            "its commit does not name its operations",
            hints=("an older gitlease wrote it: upgrade that one; or it is not a ledger",),
        )
    try:
        return history.read_step(line)
    except history.BadStep as error:
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
    try:
        entries = [] if found is None else read_tree(objects, found, MAX_TREE)
    except Unreadable as error:
        rule = "too-large" if isinstance(error, TooLarge) else "tree"
        raise Illegal(rule, f"its folder /{folder} {error}") from None
    pushed = {entry.name: entry for entry in entries}
    for name in sorted(wanted.keys() | pushed.keys()):
        one, other = wanted.get(name), pushed.get(name)
        if one == other:
            continue
        path = f"{folder}/{name}".lstrip("/")
        if one is not None and one.mode == FOLDER and (other is None or other.mode == FOLDER):
            return _difference(objects, one.id, other and other.id, path)
        return path, other
    raise Illegal("tree", f"its folder /{folder} is malformed")


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


# --- all steps of a move ----------------------------------------------------------------------

MAX_STEPS = 100  # commits of one push
LOOKED_BACK = 1_000  # commits that are searched for an earlier tip


def judge_ledger(objects: GitObjects, old: str, new: str, pusher: Pusher, now_ms: int) -> None:
    """Raise Illegal for the first step of a ref's move that is not legal."""
    if not new:
        raise Illegal("delete", "a ledger is never deleted")
    try:
        for version in _steps(objects, old, new):
            judge_step(objects, old, version, pusher, now_ms)
            old = version
    except Illegal:
        raise
    except GitleaseError as damage:
        raise Illegal("damaged", damage.message, hints=damage.hints) from None


def _steps(objects: GitObjects, old: str, new: str) -> list[str]:
    # The commits that a push adds, the oldest first: on top of the tip or, as a renewal may be, in
    # its place.
    base = commit_at(objects, old).parent_ids if old else ()
    steps = [new]
    while len(steps) <= MAX_STEPS:
        parents = commit_at(objects, steps[0]).parent_ids
        if len(parents) > 1:
            raise Illegal("merge", "a ledger has no merges: each state follows one before it")
        if [*parents] == ([old] if old else []):
            return steps
        if parents and parents == base:
            _check_replacement(objects, old, steps[0])
            return steps
        if not parents:
            break
        steps.insert(0, parents[0])
    if not old:
        raise Illegal("too-large", f"a push has at most {MAX_STEPS} steps of a ledger")
    if new in (commit.id for commit in islice(history.walk(objects, old), LOOKED_BACK)):
        raise Illegal("rewind", "a ledger never goes back to an earlier state")
    raise Illegal(
        "history",
        "it does not follow the ledger's present state: its history is not rewritten",
    )


def _check_replacement(objects: GitObjects, old: str, version: str) -> None:
    # A renewal may replace the renewal at the tip, if the policy says so.
    if not history.is_renewal(objects, old):
        raise Illegal("history", "it replaces a decision: only a renewal may be replaced")
    if not history.is_renewal(objects, version):
        raise Illegal("history", "it is a decision: only a renewal may replace a renewal")
    if read_ledger(objects, old).header.policy.history is not History.REPLACE:
        raise Illegal("history", "it replaces a renewal: by the ledger's policy they append")
