"""Whether what a record calls abandoned may be claimed: not where its assignee was seen at work.

The ledger judges the record alone. Commits of work are known to clones, so whoever claims looks
into those, and treats the edge as alive where it cannot know them.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.core.edge import Task
from gitlease.core.errors import LeaseHeld
from gitlease.core.instant import MS, rfc3339
from gitlease.core.policy import DEFAULT_POLICY
from gitlease.core.relation import Relation, relation
from gitlease.engine.edges import Planned
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import LastSeen


def is_abandoned(session: LedgerSession, held: LeaseHeld, planned: Planned) -> bool:
    """Whether a claim that was refused may take what is abandoned.

    Otherwise the refusal tells the last sign of life of whoever it is assigned to.
    """
    others = any(x.resource != planned.resource for x in held.conflicts)
    gone = not others and _by_record(session, held)
    holders = [x.holder for x in held.conflicts] or [a.name for a in planned.others]
    seen = last_seen(session, planned.task, holders, sure=gone)
    if gone and not is_alive(session, seen):
        return True
    held.hints += told(seen)
    return False


def last_seen(
    session: LedgerSession, task: Task | None, holders: Sequence[str], *, sure: bool
) -> LastSeen:
    """The last sign of life of these holders; ``sure``: that of the remote, or with a doubt."""
    if task is None or session.look_for_life is None:
        return LastSeen(doubt="it has no task file here" if sure else "")
    return session.look_for_life(task, holders, sure)


def is_alive(session: LedgerSession, seen: LastSeen) -> bool:
    """Whether a sign of life is no older than what the ledger calls abandoned."""
    head = session.store.known(session.layer)
    policy = head.policy if head else DEFAULT_POLICY
    since = session.clock.now().wall_ms - policy.abandoned_after * MS
    return bool(seen.doubt) or (seen.at is not None and seen.at >= since)


def told(seen: LastSeen) -> tuple[str, ...]:
    """The last sign of life as people are told it, and why there may be a later one."""
    said = () if seen.at is None else (f"last sign of life: {seen.what}, at {rfc3339(seen.at)}",)
    doubt = f"later activity cannot be ruled out: {seen.doubt}"
    return (*said, doubt) if seen.doubt else said


def _by_record(session: LedgerSession, held: LeaseHeld) -> bool:
    head = session.store.known(session.layer)
    if head is None or head.ledger is None:
        return False
    policy, moment = head.ledger.header.policy, session.moment(head)
    found = {relation(x, session.actor, policy, moment) for x in held.conflicts}
    return found == {Relation.THEIRS_ABANDONED}
