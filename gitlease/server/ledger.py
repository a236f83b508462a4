"""Judges the move of one ledger's ref: every step of it, by the table of transitions."""

from __future__ import annotations

from itertools import islice

from gitlease.core.errors import GitleaseError
from gitlease.core.moves.step_record import Illegal, Pusher
from gitlease.core.policy import History
from gitlease.git.objects import GitObjects
from gitlease.server.lines import RefMove
from gitlease.server.step import commit_at, judge_step
from gitlease.store.history import is_renewal, walk
from gitlease.store.tree import read_ledger

MAX_STEPS = 100  # commits of one push
LOOKED_BACK = 1_000  # commits that are searched for an earlier tip


def judge_ledger(objects: GitObjects, move: RefMove, pusher: Pusher, now_ms: int) -> None:
    """Raise Illegal for the first step that is not legal."""
    if not move.new:
        raise Illegal("delete", "a ledger is never deleted")
    try:
        before = move.old
        for version in _steps(objects, move.old, move.new):
            judge_step(objects, before, version, pusher, now_ms)
            before = version
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
    if old:
        raise _rewritten(objects, old, new)
    raise Illegal("too-large", f"a push has at most {MAX_STEPS} steps of a ledger")


def _rewritten(objects: GitObjects, old: str, new: str) -> Illegal:
    past = (commit.id for commit in islice(walk(objects, old), LOOKED_BACK))
    if new in past:
        return Illegal("rewind", "a ledger never goes back to an earlier state")
    return Illegal(
        "history",
        "it does not follow the ledger's present state: its history is not rewritten",
    )


def _check_replacement(objects: GitObjects, old: str, version: str) -> None:
    # A renewal may replace the renewal at the tip, if the policy says so.
    if not is_renewal(objects, old):
        raise Illegal("history", "it replaces a decision: only a renewal may be replaced")
    if not is_renewal(objects, version):
        raise Illegal("history", "it is a decision: only a renewal may replace a renewal")
    if read_ledger(objects, old).header.policy.history is not History.REPLACE:
        raise Illegal("history", "it replaces a renewal: by the ledger's policy they append")
