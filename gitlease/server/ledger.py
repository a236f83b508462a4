"""Judges what a push does to one ledger's ref: every step of it, by the table of transitions."""

from __future__ import annotations

from gitlease.core.errors import GitleaseError
from gitlease.core.ledger import Ledger
from gitlease.core.moves.audit import Illegal, Pusher, judge
from gitlease.core.moves.step_record import StepRecord
from gitlease.core.policy import History
from gitlease.server.lines import RefMove
from gitlease.server.objects import Commit, PushedObjects
from gitlease.server.records import StepRecords
from gitlease.server.step import check_written, read_record
from gitlease.store.history import is_renewal, says_renewal
from gitlease.store.tree import read_ledger

MAX_STEPS = 100  # commits of one push
LOOKED_BACK = 1_000  # commits in which a tip that is gone back to is looked for


def judge_ledger(objects: PushedObjects, move: RefMove, pusher: Pusher, now_ms: int) -> None:
    """See that every step is legal; Illegal for the first that is not."""
    if not move.new:
        raise Illegal("delete", "a ledger is never deleted")
    try:
        _judge_steps(objects, move, pusher, now_ms)
    except Illegal:
        raise
    except GitleaseError as damage:
        raise Illegal("damaged", damage.message, hints=damage.hints) from None


def _judge_steps(objects: PushedObjects, move: RefMove, pusher: Pusher, now_ms: int) -> None:
    old = objects.commit(move.old) if move.old else None
    steps, replaces = _chain(objects, old, move.new)
    before, ledger = old, _ledger(objects, old)
    for number, commit in enumerate(steps):
        if replaces and number == 0:
            _check_replacement(objects, old, commit, ledger)
        record = read_record(commit)
        applied = judge(
            _seen(objects, before, ledger, record),
            record,
            author=commit.author,
            committed_at=commit.at,
            pusher=pusher,
            now_ms=now_ms,
        )
        check_written(objects, before, commit, applied, record)
        before, ledger = commit, _ledger(objects, commit)


def _chain(objects: PushedObjects, old: Commit | None, new: str) -> tuple[list[Commit], bool]:
    """The commits that a push adds, the oldest first; whether they stand in the place of the tip.

    Illegal for what does not stand on the tip, or on that for which the tip may be replaced.
    """
    steps: list[Commit] = []
    oid = new
    while len(steps) < MAX_STEPS:
        commit = objects.commit(oid)
        if len(commit.parents) > 1:
            raise Illegal("merge", "a ledger has no merges: each state stands on one before it")
        steps.insert(0, commit)
        if old is not None and commit.parents == (old.oid,):
            return steps, False
        if old is not None and commit.parents and commit.parents == old.parents:
            return steps, True
        if not commit.parents:
            if old is None:
                return steps, False
            raise _rewritten(objects, old, new)
        oid = commit.parents[0]
    if old is not None:
        raise _rewritten(objects, old, new)
    raise Illegal("too-large", f"a push has at most {MAX_STEPS} steps of a ledger")


def _rewritten(objects: PushedObjects, old: Commit, new: str) -> Illegal:
    commit = old
    for _ in range(LOOKED_BACK):
        if commit.oid == new:
            return Illegal("rewind", "a ledger never goes back to a state that it had")
        if not commit.parents:
            break
        commit = objects.commit(commit.parents[0])
    return Illegal(
        "history",
        "it does not stand on the ledger's present state: its history is not rewritten",
    )


def _check_replacement(
    objects: PushedObjects, old: Commit | None, commit: Commit, ledger: Ledger | None
) -> None:
    """A renewal may take the place of the renewal at the tip, where the policy has it so."""
    if old is None or ledger is None or not is_renewal(objects.repo, old.oid):
        raise Illegal("history", "what it replaces is a decision: only a renewal may be replaced")
    if not says_renewal(commit.message):
        raise Illegal("history", "only a renewal may replace a renewal, and it is a decision")
    if ledger.header.policy.history is not History.REPLACE:
        raise Illegal("history", "by the ledger's policy renewals append, and it replaces one")


def _ledger(objects: PushedObjects, commit: Commit | None) -> Ledger | None:
    import pygit2

    return None if commit is None else read_ledger(objects.repo, pygit2.Oid(hex=commit.oid))


def _seen(
    objects: PushedObjects, before: Commit | None, ledger: Ledger | None, record: StepRecord
) -> Ledger | None:
    """The ledger before a step, of which only what concerns the step is ever read."""
    if before is None or ledger is None:
        return None
    records = StepRecords(objects, before.tree, ledger, record.operations)
    return Ledger(header=ledger.header, records=records)
