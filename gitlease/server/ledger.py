"""Judges what a push does to one ledger's ref: every step of it, by the table of transitions."""

from __future__ import annotations

from itertools import islice

from gitlease.core.errors import GitleaseError
from gitlease.core.moves.audit import Illegal, Pusher
from gitlease.core.policy import History
from gitlease.git.objects import GitObjects
from gitlease.server.lines import RefMove
from gitlease.server.step import commit_at, judge_step
from gitlease.store.history import is_renewal, walk
from gitlease.store.tree import read_ledger

MAX_STEPS = 100  # commits of one push
LOOKED_BACK = 1_000  # commits in which a tip that is gone back to is looked for


def judge_ledger(objects: GitObjects, move: RefMove, pusher: Pusher, now_ms: int) -> None:
    """See that every step is legal; Illegal for the first that is not."""
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
    """The commits that a push adds, the oldest first.

    Illegal for what stands neither on the tip nor, as a renewal may, in the place of the tip.
    """
    base = commit_at(objects, old).parent_ids if old else ()
    steps = [new]
    while len(steps) <= MAX_STEPS:
        parents = commit_at(objects, steps[0]).parent_ids
        if len(parents) > 1:
            raise Illegal("merge", "a ledger has no merges: each state stands on one before it")
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
        return Illegal("rewind", "a ledger never goes back to a state that it had")
    return Illegal(
        "history",
        "it does not stand on the ledger's present state: its history is not rewritten",
    )


def _check_replacement(objects: GitObjects, old: str, version: str) -> None:
    """A renewal may take the place of the renewal at the tip, where the policy has it so."""
    if not is_renewal(objects, old):
        raise Illegal("history", "what it replaces is a decision: only a renewal may be replaced")
    if not is_renewal(objects, version):
        raise Illegal("history", "only a renewal may replace a renewal, and it is a decision")
    if read_ledger(objects, old).header.policy.history is not History.REPLACE:
        raise Illegal("history", "by the ledger's policy renewals append, and it replaces one")
