"""Rebuilds claims from the records that they wrote, and from whom they displaced."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from gitlease.domain.audit_case import Case, resource_of
from gitlease.domain.edge import Assignee
from gitlease.domain.frozen import dataclass, replace
from gitlease.domain.lease import Actor, Lease, same_person
from gitlease.domain.ledger import TICKETS_KEPT
from gitlease.domain.operations import Claim, Operation
from gitlease.domain.resource import Resource
from gitlease.domain.tickets import served

TICKETS_TRIED = 4
NO_TICKET = "none"  # one that stands in no line


def claims(case: Case) -> Iterator[Operation]:
    """Every claim that could have written the record; what a Pick picks is one as well."""
    lease = _claimed(case)
    if lease is None:
        return
    before = case.now(lease.key, lease.resource)
    fresh = before is None or before.lease_id != lease.lease_id
    actors = [Case.actor_of(case.by, lease, lease.session)]
    if not fresh:
        others = [s for s in case.sessions(lease.resource, lease) if s != lease.session]
        actors += [replace(actors[0], session=s, session_explicit=False) for s in others]
    reasons = [lease.reason]
    if lease.reason is not None and before is not None:
        reasons.append(None)
    ttls = (lease.ttl, None) if fresh else (None, lease.ttl)
    choices = product(actors, reasons, ttls)
    asked = [_claim(case, lease, actor, reason, ttl) for actor, reason, ttl in choices]
    for ticket, passing in _turns(case, asked[0]):
        for claim in asked:
            yield replace(claim, ticket=ticket, passing=passing)


def _claim(case: Case, lease: Lease, actor: Actor, reason: str | None, ttl: int | None) -> Claim:
    return Claim(
        id=case.id,
        actor=actor,
        resource=_typed(case, lease),
        lease_id=lease.lease_id,
        scope=lease.scope,
        ttl=ttl,
        default_ttl=lease.ttl,
        paths=lease.paths,
        reason=reason,
        takeover=bool((reason or "").strip()),
        reopen=True,
        edge=lease.edge,
        assigned=_unassigned(case),
    )


def _typed(case: Case, lease: Lease) -> Resource:
    """The resource as the claim named it, which its record need not show."""
    told = (e for e in case.events if e.kind == "displaced" and e.token is None)
    names = (resource for e in told if (resource := resource_of(e)) is not None)
    return next((x for x in names if x == lease.resource), lease.resource)


def _claimed(case: Case) -> Lease | None:
    """The record that a claim wrote, whatever a later operation of the step made of it."""
    for key, _ in case.told("claimed", "taken_over", "renewed"):
        lease = case.written.leases.get(key)
        if lease is not None:
            return lease
    return next(iter(case.records), None)


def _turns(case: Case, claim: Claim) -> list[tuple[str | None, int | None]]:
    """Which ticket a claim gave up, and whom it passed over: what left that very line comes first.

    Only a ticket of one's own is given up.
    """
    known = case.written.tickets.get(claim.resource.key)
    if known is None:
        return [(None, None)]
    left = {ticket.id for ticket in known[1]}
    gone = [t for t in case.state.tickets(claim.resource) if t.id not in left]
    mine = [t.id for t in gone if same_person(t.holder, case.by)][:TICKETS_TRIED]
    turns = [(ticket, passing) for ticket in (*mine, NO_TICKET) for passing in (None, TICKETS_KEPT)]

    def misses(turn: tuple[str | None, int | None]) -> bool:
        asked = replace(claim, ticket=turn[0], passing=turn[1])
        return served(case.state, asked, case.moment).tickets(claim.resource) != known[1]

    return sorted([*turns, (None, None)], key=misses)


@dataclass(frozen=True, slots=True)
class Told(Assignee):
    """Somebody whose edge was taken, by how the message calls them."""

    @property
    def known(self) -> str:
        return self.name


def _unassigned(case: Case) -> tuple[Assignee, ...]:
    """Whose edges in the task file a claim took: those told of without a lease of theirs."""
    displaced = [event for event in case.events if event.kind == "displaced"]
    return tuple(
        Told(event.holder or "?", notified(case, f"{case.id}-{place}."))
        for place, event in enumerate(displaced)
        if event.token is None
    )


def notified(case: Case, start: str) -> tuple[str, ...]:
    """The holders who were given notices whose ids begin so, in their order."""
    found: dict[int, str] = {}
    for to, notices in case.written.notices.values():
        for notice in notices:
            number = notice.id.removeprefix(start)
            if number != notice.id and number.isdecimal() and len(number) < 5:
                found[int(number)] = to
    return tuple(found[number] for number in sorted(found))
