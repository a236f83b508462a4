"""What older versions of gitlease wrote, and this one only reads: parked leases."""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.kernel.ledger.answers import Answer
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.stepping import change
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.rules.moves.operations import EndSession, Park, grant_of
from gitlease.kernel.rules.resources import Resource


def park(
    session: LedgerSession,
    resources: Sequence[Resource],
    *,
    seconds: int | None = None,
    note: str | None = None,
    mark: str = "",
) -> Answer:
    """Park the caller's leases of these resources, as ``gitlease park`` did."""
    operations = [
        Park(id=fresh_id(mark), actor=session.actor, resource=resource, seconds=seconds, note=note)
        for resource in resources
    ]
    return change(session, "park", operations)


def park_session(session: LedgerSession, name: str, *, seconds: int | None = None) -> Answer:
    """Park what a session has, as ``gitlease session end --park`` did."""
    grants = tuple(grant_of(x) for x in session.in_session(name))
    end = EndSession(id=fresh_id(), actor=session.actor, grants=grants, park=True, seconds=seconds)
    return change(session, "session end", [end])
