"""Requests that are sent again, which the ledger knows from another gateway or an earlier life."""

from __future__ import annotations

from collections.abc import Iterable

from gitlease.core.errors import LeaseLost, UsageError
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource, parse_resource
from gitlease.engine.answers import Answer
from gitlease.engine.ledger_session import LedgerSession
from gitlease.faces.http.request_handler import ANOTHER_REQUEST, Asked
from gitlease.gateway.joiner import AppliedBefore
from gitlease.gateway.known_keys import CLAIMED, COMPLETED, EVENTS, RELEASED


def answered_before(
    asked: Asked,
    session: LedgerSession,
    wanted: Iterable[Resource],
    before: AppliedBefore,
    expected: frozenset[str],
    scope: str | None = None,
) -> Answer:
    """The answer of a request of a kind that has one of these outcomes; of what it took by itself,
    where nothing was ``wanted``. ``scope``: None for any.

    Raises LeaseLost where what it gave is over, and UsageError where it was another request.
    """
    past = session.store.history(session.layer, EVENTS)
    events = [x for x in past if asked.key is not None and x.operation.startswith(asked.key)]
    names = [x.resource for x in events if x.resource is not None]
    ledger = session.store.fetch(session.layer).ledger
    resources = tuple(ledger.spelt(x) if ledger else x for x in wanted)
    resources = resources or tuple(parse_resource(x) for x in dict.fromkeys(names))
    others = {fold(x.text) for x in resources} - {fold(x) for x in names}
    if before.outcome not in expected or (events and others):
        raise UsageError(ANOTHER_REQUEST, hints=("take a new key for each request",))
    if before.outcome in RELEASED | COMPLETED:
        return Answer(status=before.outcome, changed=False)
    own = {x: asked.gateway.own(session, x, scope) for x in resources}
    leases = [lease for some in own.values() for lease in some]
    given = {x.token for x in events if x.kind in CLAIMED}
    if before.outcome in CLAIMED and not any(x.token in given for x in leases):
        leases = []
    if not leases or not all(own.values()):
        told = f"this request was carried out before ({before.outcome}), and what it gave is over"
        raise LeaseLost(told, resource=resources[0].text if resources else None)
    head = session.store.fetch(session.layer)
    return Answer(status=before.outcome, leases=session.views_in(head, leases), changed=False)
