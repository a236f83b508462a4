"""Keeping what one has: ``renew`` and ``extend``."""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.core.moves.operations import Extend, Grant, Renew
from gitlease.core.resources.resource import Resource
from gitlease.engine.answers import Answer, several
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.stepping import change
from gitlease.engine.transaction import fresh_id


def renew(
    session: LedgerSession,
    resources: Sequence[Resource] = (),
    *,
    scope: str | None = None,
    ttl: int | None = None,
) -> Answer:
    """Bump expiry; with no resource, everything of this session, in one push.

    Raises LeaseLost or NotHolder where nothing of what was named can be renewed.
    """
    wanted: list[Resource | None] = [*several(resources)] or [None]
    operations = [
        Renew(id=fresh_id(), actor=session.actor, resource=r, scope=scope, ttl=ttl) for r in wanted
    ]
    answer = change(session, "renew", operations, together=False)
    if answer.refused and not answer.leases:
        answer.refused[0].warnings = answer.warnings
        raise answer.refused[0]
    return answer


def renew_grants(session: LedgerSession, grants: Sequence[Grant]) -> Answer:
    """Renew exactly these grants, of whichever of the holder's sessions, in one push.

    Those that are lost, or cannot be judged, are among ``refused``.
    """
    op = Renew(id=fresh_id(), actor=session.actor, grants=tuple(grants))
    return change(session, "heartbeat", [op], together=False)


def extend(
    session: LedgerSession, resource: Resource, seconds: int, *, scope: str | None = None
) -> Answer:
    """Stretch a lease to at least now + ``seconds``; capped to the policy's maximum."""
    op = Extend(id=fresh_id(), actor=session.actor, resource=resource, seconds=seconds, scope=scope)
    return change(session, "extend", [op])
