"""The step that retires stale claims: leases, edges and words to those concerned, all in one."""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.core.frozen import dataclass, replace
from gitlease.core.moves.operations import Retire, Retirement
from gitlease.core.moves.retiring import RETIRED
from gitlease.engine.answers import Answer
from gitlease.engine.edges import Planned
from gitlease.engine.intents import RETIRED as GOAL
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.stepping import change_with_edges
from gitlease.engine.transaction import fresh_id


@dataclass(frozen=True, slots=True)
class RetirePlan:
    """A retirement, and what it means for the task's file where it means anything."""

    item: Retirement
    planned: Planned | None = None


def retire(session: LedgerSession, plans: Sequence[RetirePlan], *, commit: bool = True) -> Answer:
    """Retire what is still stale by the ledger as it is now: one push, and one commit.

    What cannot be retired is among ``refused``: it was claimed meanwhile, or its task file
    cannot be edited safely.
    """
    session.settle()
    planned, against = session.edges.writable(
        plans, lambda some: [x.planned for x in some if x.planned is not None], commit=commit
    )
    for one, error in against:
        error.resource = error.resource or one.item.resource.text
    refused = tuple(error for _, error in against)
    stuck = [one for one, _ in against]
    items = tuple(one.item for one in plans if one not in stuck)
    if not items:
        return Answer(status=RETIRED, refused=refused, changed=False)
    op = Retire(id=fresh_id(), actor=session.actor, items=items)
    answer = change_with_edges(
        session, "retirement", lambda: ([op], planned), goal=GOAL, commit=commit, checked=True
    )
    return replace(answer, refused=refused + answer.refused)
