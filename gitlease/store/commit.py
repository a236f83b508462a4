"""The commits of a ledger, written and read: one a step, whose bytes are the same for everybody."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gitlease.core.errors import UsageError
from gitlease.core.frozen import dataclass
from gitlease.core.instant import MS
from gitlease.core.moves.step_record import StepRecord
from gitlease.core.moves.transitions import Applied
from gitlease.git.files import Unreadable
from gitlease.git.objects import COMMIT, GitObjects
from gitlease.store.messages import write_message

MAX_COMMIT = 8 * 1024 * 1024  # whatever its message: of the commit only the tree is needed
MAX_MESSAGE = 512 * 1024  # bytes of one step
NOBODY = "gitlease"  # where nothing is left of a holder's name

_AROUND = "".join(map(chr, range(33))) + ",:;<>\"\\'"  # what git takes off a name's ends
_ID = rb"([0-9a-f]{40}(?:[0-9a-f]{24})?)"
_TREE, _PARENT = re.compile(rb"tree " + _ID), re.compile(rb"parent " + _ID)
_COMMITTER = re.compile(rb"\ncommitter [^\n]*> (\d{1,15}) [+-]\d{4}(?:\n|$)")


@dataclass(frozen=True, slots=True)
class LedgerCommit:
    """A commit of a ledger. ``time`` is in seconds since the epoch, as whoever made it says."""

    id: str
    tree_id: str
    parent_ids: tuple[str, ...]
    time: int
    message: str


def read_commit(objects: GitObjects, version: str) -> LedgerCommit | None:
    """A commit of a ledger; None where there is none, or none that can be read."""
    try:
        head, _, message = objects.read(version, COMMIT, MAX_COMMIT).partition(b"\n\n")
    except Unreadable:
        return None
    first, *lines = head.split(b"\n")
    tree, committer = _TREE.fullmatch(first), _COMMITTER.search(head)
    if tree is None or committer is None:
        return None
    parents = []
    for line in lines:
        if (parent := _PARENT.fullmatch(line)) is None:
            break
        parents.append(parent[1].decode())
    # Whatever encoding it claims to have.
    text = message.decode("utf-8", "replace")
    return LedgerCommit(version, tree[1].decode(), tuple(parents), int(committer[1]), text)


def commit_bytes(applied: Applied, record: StepRecord, tree: str, parents: Sequence[str]) -> bytes:
    """The commit of a step: the same for whoever carries it out."""
    holder = record.operations[0].actor.holder
    email = holder.replace("<", "").replace(">", "")
    name = email.split("@", 1)[0].strip().strip(_AROUND) or NOBODY
    who = f"{name} <{email.strip(_AROUND) or NOBODY}> {record.at // MS} +0000"
    message = write_message(applied.events, record, renewal=applied.only_renews)
    if len(message.encode()) > MAX_MESSAGE:
        raise UsageError("this is too much for one step of a ledger: do it in parts")
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
    return "\n".join([*lines, f"author {who}", f"committer {who}", "", message]).encode()
