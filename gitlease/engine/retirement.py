"""The step that retires stale claims: leases, edges and words to those concerned, all in one."""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.core.errors import GitleaseError, Invalid
from gitlease.core.frozen import dataclass, replace
from gitlease.core.moves.operations import Retire, Retirement
from gitlease.core.moves.retiring import RETIRED
from gitlease.engine.answers import Answer
from gitlease.engine.edges import Edges, Planned
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
    good, refused = _writable(session.edges, plans, commit)
    if not good:
        return Answer(status=RETIRED, refused=refused, changed=False)
    op = Retire(id=fresh_id(), actor=session.actor, items=tuple(one.item for one in good))
    planned = [one.planned for one in good if one.planned is not None]
    answer = change_with_edges(
        session, "retirement", lambda: ([op], planned), goal=GOAL, commit=commit, checked=True
    )
    return replace(answer, refused=refused + answer.refused)


def _writable(
    edges: Edges, plans: Sequence[RetirePlan], commit: bool
) -> tuple[list[RetirePlan], tuple[GitleaseError, ...]]:
    """Those whose task files could be edited; what speaks against each of the others."""
    if _against(edges, [one.planned for one in plans if one.planned], commit) is None:
        return list(plans), ()
    good: list[RetirePlan] = []
    refused: list[GitleaseError] = []
    said: set[str] = set()
    general: Invalid | None = None
    for one in plans:
        error = None
        if one.planned is not None:
            error = general or _against(edges, [one.planned], commit)
        if error is None:
            good.append(one)
            continue
        # The same words of two files are about neither: there is no branch to commit on, say.
        general = error if error.message in said else None
        said.add(error.message)
        refused.append(Invalid(error.message, resource=one.item.resource.text, hints=error.hints))
    return good, tuple(refused)


def _against(edges: Edges, plans: Sequence[Planned], commit: bool) -> Invalid | None:
    try:
        edges.check(plans, commit=commit)
    except Invalid as error:
        return error
    return None
