"""Rebuilds the operations of a step from what it wrote: every one that could have done it.

What an operation allows (to take over, to reopen) is allowed here: whoever pushes could have asked
for it. What it asks for is read from the records and lines that name it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from gitlease.domain.audit_case import Case, one_resource, resource_of
from gitlease.domain.audit_claims import claims
from gitlease.domain.audit_holding import (
    completions,
    ended_sessions,
    extensions,
    parks,
    releases,
    renewals,
)
from gitlease.domain.audit_retiring import retirements
from gitlease.domain.lease import same_person
from gitlease.domain.ledger import Ticket
from gitlease.domain.operations import (
    Acknowledge,
    AddNote,
    Barrier,
    DropRecord,
    LeaveTicket,
    Operation,
    Revoke,
    SetPolicy,
    TakeTicket,
)
from gitlease.domain.pattern import fold
from gitlease.domain.policy import KEYS
from gitlease.domain.resource import Resource

_SETTING = re.compile(rf"(?:^|, )({'|'.join(KEYS)}) = ")


def rebuilt(case: Case, status: str) -> Iterator[Operation]:
    """Every operation that could have ended so and have written this; the likeliest first."""
    builders = BUILDERS.get(status, ())
    # A claim of one's own may also give up a ticket, and clear away what ran out.
    plain = case.written.renewal and not case.written.tickets
    for build in builders if plain else reversed(builders):
        yield from build(case)


def revocations(case: Case) -> Iterator[Operation]:
    leases = case.targets("revoked")
    reason = next((e.reason for e in case.events if e.kind == "revoked"), None)
    for resource, scope, who in one_resource(case, leases):
        yield Revoke(id=case.id, actor=who, resource=resource, reason=reason or "", scope=scope)


def notes(case: Case) -> Iterator[Operation]:
    for event in case.events:
        resource = resource_of(event)
        if event.kind == "noted" and resource is not None:
            actor = Case.actor_of(case.by, session=event.session)
            text = event.detail or ""
            yield AddNote(id=case.id, actor=actor, resource=resource, text=text)


def policies(case: Case) -> Iterator[Operation]:
    for event in case.events:
        if event.kind == "policy":
            _, *parts = _SETTING.split(event.detail or "")
            changes = tuple(zip(parts[0::2], parts[1::2], strict=False))
            yield SetPolicy(id=case.id, actor=Case.actor_of(case.by), changes=changes)


def acknowledgements(case: Case) -> Iterator[Operation]:
    before = case.state.notices(case.by)
    _, left = case.written.notices.get(fold(case.by), (case.by, before))
    kept = {notice.id for notice in left}
    gone = tuple(n.id for n in before if n.id not in kept)
    yield Acknowledge(id=case.id, actor=Case.actor_of(case.by), notices=gone)


def barriers(case: Case) -> Iterator[Operation]:
    yield Barrier(id=case.id, actor=Case.actor_of(case.by))


def drops(case: Case) -> Iterator[Operation]:
    for event in case.events:
        if event.kind == "dropped":
            yield DropRecord(
                id=case.id,
                actor=Case.actor_of(case.by),
                file=event.detail or "",
                reason=event.reason or "",
            )


def tickets_taken(case: Case) -> Iterator[Operation]:
    resources, session = _line(case, "waiting")
    for ticket in _tickets_of(case, resources, case.written.tickets):
        if ticket.session == session:
            yield TakeTicket(
                id=case.id,
                actor=Case.actor_of(case.by, session=session),
                resources=resources,
                ticket=ticket.id,
                until=ticket.until,
                scope=ticket.scope,
                since=ticket.since,
            )


def tickets_left(case: Case) -> Iterator[Operation]:
    resources, session = _line(case, "left")
    actor = Case.actor_of(case.by, session=session)
    kept = {t.id for _, tickets in case.written.tickets.values() for t in tickets}
    for ticket in sorted(_tickets_of(case, resources, {}), key=lambda t: t.id in kept):
        yield LeaveTicket(id=case.id, actor=actor, resources=resources, ticket=ticket.id)


def _line(case: Case, kind: str) -> tuple[tuple[Resource, ...], str | None]:
    told = [e for e in case.events if e.kind == kind]
    found = [resource for e in told if (resource := resource_of(e)) is not None]
    return tuple(found), told[0].session if told else None


def _tickets_of(
    case: Case,
    resources: Iterable[Resource],
    written: Mapping[str, tuple[Resource, tuple[Ticket, ...]]],
) -> list[Ticket]:
    """The writer's tickets for a resource: those that are new first, each id once."""
    found: dict[str, Ticket] = {}
    for resource in resources:
        before = case.state.tickets(resource)
        after = written.get(resource.key, (resource, before))[1]
        mine = [t for t in after if same_person(t.holder, case.by)]
        for ticket in sorted(mine, key=lambda t: t in before):
            found.setdefault(ticket.id, ticket)
    return list(found.values())


BUILDERS: Mapping[str, tuple[Callable[[Case], Iterator[Operation]], ...]] = {
    "claimed": (claims,),
    "taken_over": (claims,),
    "renewed": (renewals, claims),
    "extended": (extensions,),
    "released": (ended_sessions("released"), releases),
    "completed": (completions,),
    "parked": (ended_sessions("parked"), parks),
    "revoked": (revocations,),
    "retired": (retirements,),
    "noted": (notes,),
    "policy_changed": (policies,),
    "acknowledged": (acknowledgements,),
    "barrier": (barriers,),
    "dropped": (drops,),
    "waiting": (tickets_taken,),
    "left": (tickets_left,),
}
