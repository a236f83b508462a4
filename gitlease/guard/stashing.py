"""Whether an update of references is a ``git stash`` that is about to clear the work tree."""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.git.query import ask, ask_line, is_id
from gitlease.git.repository import Repository

STASH = "refs/stash"
# What git keeps so is nowhere else by then: refusing it would lose it.
AUTOMATIC = ": autostash"


def is_stash(repository: Repository, lines: Sequence[str]) -> bool:
    """Whether these lines of a prepared transaction make a new stash of what is here.

    Not one is the packing of references, which writes what they are already, nor the dropping of
    another stash, nor what a rebase or a merge puts back there for want of room.
    """
    updates = [line.split(" ") for line in lines if line]
    if len(updates) != 1 or len(updates[0]) != 3 or updates[0][2] != STASH:
        return False
    new = updates[0][1]
    if not is_id(new) or not new.strip("0"):
        return False
    known = ask(repository, "log", "--walk-reflogs", "--format=%H", STASH, "--").out
    if new.encode() in known.split():
        return False
    return not ask_line(repository, "log", "-1", "--format=%s", new, "--").endswith(AUTOMATIC)
