"""Rebuilds what holders do with what they hold: renew, extend, release, finish, park."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

from gitlease.domain.audit_case import Case, one_resource, resource_of
from gitlease.domain.frozen import replace
from gitlease.domain.instant import MS
from gitlease.domain.lease import Lease
from gitlease.domain.operations import (
    Complete,
    EndSession,
    Extend,
    Grant,
    Operation,
    Park,
    Release,
    Renew,
)
from gitlease.domain.resource import WHOLE

OTHER_SCOPE = "any other"  # in which nothing is held: a release of it leaves its note alone
MOST_PLACES = 10_000  # grants of one operation among which notes tell their places


def renewals(case: Case) -> Iterator[Operation]:
    """A heartbeat of exactly these grants, or of one resource."""
    leases = case.targets("renewed")
    if not leases:
        return
    after = [case.written.leases.get(x.key) for x in leases]
    ttls = {x.ttl for x in after if x is not None}
    asked = [None, *(sorted(ttls) if len(ttls) == 1 else ())]
    actor, grants = Case.actor_of(case.by), tuple(grant_of(x) for x in leases)
    for ttl in asked:
        yield Renew(id=case.id, actor=actor, grants=grants, ttl=ttl)
    for resource, scope, who in one_resource(case, leases):
        for ttl in asked:
            yield Renew(id=case.id, actor=who, resource=resource, scope=scope, ttl=ttl)


def extensions(case: Case) -> Iterator[Operation]:
    """A lease made to last for longer."""
    leases = case.targets("extended")
    seconds = _seconds(case, leases)
    for resource, scope, who in one_resource(case, leases):
        yield Extend(id=case.id, actor=who, resource=resource, seconds=seconds, scope=scope)


def releases(case: Case) -> Iterator[Operation]:
    """What is given back, with or without a note."""
    leases = case.targets("released")
    if not leases and case.written.cut:
        leases = case.untold()[:1]
    for event in case.events:
        resource = resource_of(event)
        if event.kind == "noted" and resource is not None:
            actor = Case.actor_of(case.by, session=event.session)
            for scope in (None, WHOLE, OTHER_SCOPE):
                yield Release(
                    id=case.id, actor=actor, resource=resource, scope=scope, note=event.detail
                )
    for resource, scope, who in one_resource(case, leases):
        note = case.note(resource, case.id)
        yield Release(id=case.id, actor=who, resource=resource, scope=scope, note=note)


def completions(case: Case) -> Iterator[Operation]:
    """What is finished, held or not."""
    keys = [key for key, _ in case.told("completed")] or [x.key for x in case.records]
    records = [x for x in (case.written.leases.get(key) for key in keys) if x is not None]
    if not records or len({x.resource.key for x in records}) > 1:
        return
    first = records[0]
    sessions = dict.fromkeys((first.session, *case.sessions(first.resource)))
    for session, scope in product(sessions, dict.fromkeys((None, first.scope))):
        yield Complete(
            id=case.id,
            actor=Case.actor_of(case.by, first, session),
            resource=first.resource,
            lease_id=first.lease_id,
            scope=scope,
        )


def parks(case: Case) -> Iterator[Operation]:
    """What is kept for a later session."""
    leases = case.targets("parked")
    seconds = _seconds(case, leases)
    for resource, scope, who in one_resource(case, leases):
        after = (case.written.leases.get(x.key) for x in leases)
        reasons = dict.fromkeys((*(x.reason for x in after if x is not None), None))
        for reason in reasons:
            yield Park(
                id=case.id,
                actor=who,
                resource=resource,
                seconds=seconds,
                scope=scope,
                reason=reason,
                note=case.note(resource, case.id),
            )


def ended_sessions(kind: str) -> Callable[[Case], Iterator[Operation]]:
    """The end of runs, whose leases are released or parked as ``kind`` says."""

    def build(case: Case) -> Iterator[Operation]:
        leases = case.targets(kind)
        if kind == "released" and case.written.cut:
            leases += case.untold()
        if not leases:
            return
        park = kind == "parked"
        grants, note = _placed(case, leases)
        yield EndSession(
            id=case.id,
            actor=Case.actor_of(case.by),
            grants=grants,
            park=park,
            seconds=_seconds(case, leases) if park else None,
            note=note,
        )

    return build


def _placed(case: Case, leases: Sequence[Lease]) -> tuple[tuple[Grant, ...], str | None]:
    """The grants, at the places that their notes tell, with none of anybody between them."""
    free: dict[str, list[int]] = {}
    text = None
    for lease in leases:
        if lease.resource.key not in free:
            told = case.notes_of(lease.resource)
            free[lease.resource.key] = sorted(told)
            text = next(iter(told.values()), text)
    numbered = [(_next(free[x.resource.key]), x) for x in leases]
    if text is None:
        return tuple(grant_of(lease) for _, lease in numbered), None
    grants: list[Grant] = []
    for number, lease in sorted(numbered, key=lambda pair: pair[0]):
        while len(grants) < number < MOST_PLACES:
            grants.append(replace(grant_of(lease), lease_id=""))
        grants.append(grant_of(lease))
    return tuple(grants), text


def _next(numbers: list[int]) -> int:
    return numbers.pop(0) if numbers else MOST_PLACES


def _seconds(case: Case, leases: Sequence[Lease]) -> int:
    """For how long leases were stretched, or parked, by the shortest of them."""
    after = (case.written.leases.get(x.key) for x in leases)
    return max(min((x.duration_ms // MS for x in after if x is not None), default=1), 1)


def grant_of(lease: Lease) -> Grant:
    """The grant that a record is of."""
    return Grant(lease.resource, lease.scope, lease.session, lease.lease_id, lease.token)
