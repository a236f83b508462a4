"""Rebuilds retirements: what lapsed and was cleaned up, resource by resource."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gitlease.domain.audit_case import Case, place_in, resource_of
from gitlease.domain.audit_claims import Told, notified
from gitlease.domain.audit_holding import MOST_PLACES, grant_of
from gitlease.domain.edge import Assignee
from gitlease.domain.lease import Lease, lease_key, same_person
from gitlease.domain.ledger import Notice
from gitlease.domain.operations import Operation, Retire, Retirement
from gitlease.domain.outcome import Event
from gitlease.domain.resource import Resource


def retirements(case: Case) -> Iterator[Operation]:
    """The one retirement that could have dropped these, with what an edge keeps as well."""
    told: dict[str, list[Event]] = {}
    names: dict[str, Resource] = {}
    for event in case.events:
        resource = resource_of(event)
        if event.kind == "retired" and resource is not None:
            names.setdefault(resource.key, resource)
            told.setdefault(resource.key, []).append(event)
    untold: dict[str, list[Lease]] = {}
    for lease in case.untold() if case.written.cut else ():
        names.setdefault(lease.resource.key, lease.resource)
        untold.setdefault(lease.resource.key, []).append(lease)
    items: list[Retirement] = []
    places = {key: _place(case, resource) for key, resource in names.items()}
    told_first = [*told, *sorted(untold, key=lambda key: places[key] or MOST_PLACES)]
    for key in told_first:
        place = places[key]
        while place is not None and len(items) < place:  # what was refused left its place empty
            items.append(Retirement(resource=names[key], reason="none"))
        leases = untold.get(key) or _leases(case, names[key], told[key])
        events = told.get(key, [])
        items.append(_item(case, names[key], leases, events, len(items)))
    if items:
        yield Retire(id=case.id, actor=Case.actor_of(case.by), items=tuple(items))


def _leases(case: Case, resource: Resource, events: Sequence[Event]) -> list[Lease]:
    keys = [lease_key(resource, e.scope) for e in events if e.token is not None and e.scope]
    found = (case.now(key, resource) for key in keys)
    return [lease for lease in found if lease is not None]


def _item(
    case: Case, resource: Resource, leases: list[Lease], events: Sequence[Event], place: int
) -> Retirement:
    names = [event.holder or "?" for event in events if event.token is None]
    reasons = [event.reason for event in events]
    reasons += [n.reason for n in _notices(case, f"{case.id}-") if n.resource == resource.text]
    return Retirement(
        resource=resource,
        reason=next((text for text in reasons if text), "") or "none",
        grants=tuple(grant_of(lease) for lease in leases),
        assigned=True,
        unassigned=_unassigned(case, leases, names, f"{case.id}-{place}.", untold=not events),
        note=case.note(resource, f"{case.id}-{place}"),
    )


def _unassigned(
    case: Case, leases: list[Lease], names: list[str], start: str, *, untold: bool
) -> tuple[Assignee, ...]:
    """Those whose names left the task file; whom a lease named has no line, but a place."""
    places = sorted({n for x in _notices(case, start) if (n := place_in(x.id, start)) is not None})
    if untold:
        names = [notified(case, f"{start}{n}.")[0] for n in places]
    found: list[Assignee] = []
    for name in names:
        place = next((n for n in places if n >= len(found)), None)
        holders = notified(case, f"{start}{place}.") if place is not None else ()
        if place is None or not _is_about(holders, name):
            found.append(Told(name))
            continue
        while leases and len(found) < place:
            found.append(Told(leases[0].holder, (leases[0].holder,)))
        found.append(Told(name, holders))
    return tuple(found)


def _is_about(holders: tuple[str, ...], name: str) -> bool:
    """Whether notices to these are for whom a line names, as far as it tells."""
    return len(holders) != 1 or same_person(holders[0], name)


def _place(case: Case, resource: Resource) -> int | None:
    """The number of an item, by the ids of its note and its notices; None where nothing tells."""
    start = f"{case.id}-"
    ids = [n.id for n in _notices(case, start) if n.resource == resource.text and "." in n.id]
    numbers = [number for x in ids if (number := place_in(x, start)) is not None]
    return min((*case.notes_of(resource), *numbers), default=None)


def _notices(case: Case, start: str) -> list[Notice]:
    every = (n for _, notices in case.written.notices.values() for n in notices)
    return [n for n in every if n.id.startswith(start)]
