"""Whether a task that its record calls abandoned may be claimed: not if its assignee is at work.

The ledger judges the record alone. Only clones know commits of work, so a claim looks there, and
treats the edge as alive if it cannot know them.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.core.edge import Task
from gitlease.core.errors import LeaseHeld
from gitlease.core.instant import MS, rfc3339
from gitlease.core.lease import Relation, relation
from gitlease.core.policy import DEFAULT_POLICY
from gitlease.engine.edges import Planned
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import LastSeen


def is_abandoned(session: LedgerSession, held: LeaseHeld, planned: Planned) -> bool:
    """Whether a refused claim may take an abandoned task.

    Otherwise the refusal gets a hint with the last sign of life of the assignees.
    """
    others = any(x.resource != planned.resource for x in held.conflicts)
    gone = not others and _by_record(session, held)
    # Nobody chose for a person what was picked: no sign of life of theirs speaks for it.
    picked = all(x.picked for x in held.conflicts)
    holders = [x.holder for x in held.conflicts] or [a.name for a in planned.others]
    seen = last_seen(session, planned.task, holders, sure=gone and not picked)
    if gone and (picked or not is_alive(session, seen)):
        return True
    held.hints += told(seen)
    return False


def last_seen(
    session: LedgerSession, task: Task | None, holders: Sequence[str], *, sure: bool
) -> LastSeen:
    """The last sign of life of these holders; ``sure`` asks the remote, or adds a doubt."""
    if task is None or session.look_for_life is None:
        return LastSeen(doubt="it has no task file here" if sure else "")
    return session.look_for_life(task, holders, sure)


def is_alive(session: LedgerSession, seen: LastSeen) -> bool:
    """Whether a sign of life is more recent than the policy's ``abandoned_after``."""
    head = session.store.known(session.layer)
    policy = head.policy if head else DEFAULT_POLICY
    since = session.clock.now().wall_ms - policy.abandoned_after * MS
    return bool(seen.doubt) or (seen.at is not None and seen.at >= since)


def told(seen: LastSeen) -> tuple[str, ...]:
    """Hints: the last sign of life, and why there may be a later one."""
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
