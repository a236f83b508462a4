"""Completing leases whose tasks were finished on the main branch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gitlease.core.frozen import replace
from gitlease.core.lease import Lease
from gitlease.core.moves.operations import Complete
from gitlease.core.relation import Relation, relation
from gitlease.engine.answers import MAX_RESOURCES, Answer
from gitlease.engine.ledger_session import LedgerSession, Look
from gitlease.engine.stepping import change
from gitlease.engine.transaction import fresh_id

OWN = (Relation.MINE, Relation.PARKED, Relation.MINE_LAPSED)

Landed = Callable[[Sequence[Lease]], Sequence[Lease]]
"""Which of these leases are of tasks that were finished on the main branch since their claim."""


def complete_landed(session: LedgerSession, landed: Landed) -> Answer:
    """Complete the caller's leases of landed tasks, lapsed ones too; no task file changes.

    The remote is asked only if something has landed, by this clone's copy: first whether the very
    same leases are still there. A lease that ended meanwhile is among ``refused``; more leases than
    one step carries are left for the next time.
    """
    nothing = Answer(status="completed", changed=False)
    known = session.known_look()
    asked = {x.lease_id for x in landed(_own(session, known))} if known is not None else set()
    if not asked:
        return nothing
    look = session.look()
    still = [x for x in _own(session, look) if x.lease_id in asked][:MAX_RESOURCES]
    if not still:
        return replace(nothing, warnings=look.warnings)
    operations = [
        Complete(
            id=fresh_id(),
            actor=session.actor,
            resource=lease.resource,
            lease_id=fresh_id(),
            scope=lease.scope,
            held_only=True,
        )
        for lease in still
    ]
    answer = change(session, "completion", operations, together=False)
    return replace(answer, warnings=look.warnings + answer.warnings)


def _own(session: LedgerSession, look: Look) -> list[Lease]:
    return [
        lease
        for lease in look.leases
        if relation(lease, session.actor, look.policy, look.moment) in OWN
    ]
