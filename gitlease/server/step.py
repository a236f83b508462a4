"""Compares a commit with what the operations that it names come to: by object ids, byte for byte.

Nothing of a pushed record is parsed. Every file that differs from the state before must have the
bytes that carrying the operations out again gives it, and everything that they change must differ.
"""

from __future__ import annotations

from gitlease.core.errors import Invalid
from gitlease.core.moves.audit import Illegal, refused
from gitlease.core.moves.audit_values import NEWER, quoted
from gitlease.core.moves.operation_json import BadStep, read_step
from gitlease.core.moves.step_record import StepRecord
from gitlease.core.moves.transitions import Applied
from gitlease.server.objects import Commit, PushedObjects
from gitlease.server.tree import Tops, differences
from gitlease.store.history import operations_line, write_message
from gitlease.store.records import HEADER_FILE
from gitlease.store.tree_writer import changed_files

RULES = {
    HEADER_FILE: "header",
    "leases": "record",
    "paths": "record",
    "notes": "notes",
    "notices": "notices",
    "waiting": "tickets",
}


def read_record(commit: Commit) -> StepRecord:
    """The operations that a commit names; Illegal where it does not."""
    line = operations_line(commit.message)
    if line is None:
        raise Illegal(
            "operations",
            "its commit does not name its operations",
            hints=("an older gitlease wrote it: upgrade that one",),
        )
    try:
        return read_step(line)
    except BadStep as error:
        raise Illegal("operations", f"its operations: {error}", hints=(NEWER,)) from None


def check_written(
    objects: PushedObjects,
    before: Commit | None,
    commit: Commit,
    applied: Applied,
    record: StepRecord,
) -> None:
    """See that a commit is what its operations come to; Illegal for the first difference."""
    import pygit2

    try:
        files = changed_files(applied.ledger.header, applied.ledger.changes)
    except Invalid as error:
        raise Illegal("record", error.message) from None
    wanted = {path: data and str(pygit2.hash(data)) for path, data in files.items()}
    tree = before.tree if before is not None else None
    for one in differences(objects, tree, commit.tree):
        if one.path not in wanted:
            raise refused(applied) or Illegal(
                "unexplained",
                f"{quoted(one.path)} differs, and no operation of this step does that",
            )
        if wanted.pop(one.path) != (None if one.after is None else one.after.oid):
            raise _differs(one.path, applied)
    tops = Tops(objects, tree)
    for path, oid in wanted.items():
        if tops.oid(path) != oid:
            raise _differs(path, applied)
    if commit.message != write_message(applied.events, record, renewal=applied.only_renews):
        raise Illegal("message", "its message does not tell what it does", hints=(NEWER,))


def _differs(path: str, applied: Applied) -> Illegal:
    rule = RULES[path.partition("/")[0]]
    return refused(applied) or Illegal(
        rule, f"{quoted(path)} is not what the operations of this step make of it", hints=(NEWER,)
    )
