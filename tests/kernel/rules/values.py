"""The values that domain tests are made of: people, ledgers, moments, and one step at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar, cast

from gitlease.kernel.rules.edge import Task
from gitlease.kernel.rules.instant import MS, Instant
from gitlease.kernel.rules.lease import (
    DEFAULT_POLICY,
    Actor,
    Lease,
    Margins,
    Moment,
    Policy,
    Sighting,
    State,
)
from gitlease.kernel.rules.ledger import Header, Ledger
from gitlease.kernel.rules.moves.operations import (
    AddNote,
    Claim,
    Complete,
    Create,
    EndSession,
    Extend,
    Grant,
    Operation,
    Outcome,
    Park,
    Release,
    Renew,
    Retire,
    Retirement,
    Revoke,
    SetPolicy,
    TakeTicket,
)
from gitlease.kernel.rules.moves.transitions import apply, create
from gitlease.kernel.rules.resources import Resource, parse_resource

NOON = 1_795_176_000_000  # 2026-11-20T12:00:00Z
TTL = 900
SKEW = 60

JO = Actor("jo@example.com", host="laptop", branch="main")
KIM = Actor("kim@example.com", host="desk")
F001 = parse_resource("F001")

Op = TypeVar("Op", bound=Operation)
_ids = itertools.count(1)


def fresh() -> str:
    """An id that no other operation of this run has."""
    return f"{next(_ids):08x}-op"  # their first eight characters differ, as they do in life


def at(seconds: float = 0, *, boot: float | None = None, boot_id: str = "boot-1") -> Instant:
    """So many seconds after noon, by both clocks (``boot``: by the boot clock, if it differs)."""
    ran = seconds if boot is None else boot
    return Instant(
        wall_ms=NOON + round(seconds * MS), boot_ms=1_000_000 + round(ran * MS), boot_id=boot_id
    )


def moment(seconds: float = 0, seen: Sighting | None = None) -> Moment:
    """That instant, for somebody who has not seen any record before (or when ``seen`` says)."""
    return Moment(now=at(seconds), seen=lambda _lease: seen)


def empty(policy: Policy = DEFAULT_POLICY) -> Ledger:
    """A ledger without leases."""
    return create(Create(id=fresh(), actor=JO, ledger_id="ledger-1", policy=policy))


def as_stored(ledger: Ledger) -> Ledger:
    """The ledger as it reads once its changes are records."""
    return Ledger(header=ledger.header, records=cast(Any, StoredRecords(ledger)))


class StoredRecords:
    """Records of a ledger that has been written: what was decided before is no change any more."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def of(self, resource: Resource) -> list[Lease]:
        return self._ledger.leases_of(resource)

    def with_paths(self) -> list[Lease]:
        return self._ledger.leases_with_paths()

    def every(self) -> Iterator[Any]:
        return iter(self._ledger.every_lease())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


def lease(
    *,
    holder: Actor = JO,
    resource: str = "F001",
    scope: str = "*",
    ttl: int = TTL,
    since: float = 0,
    edge: bool = False,
    paths: tuple[str, ...] = (),
    state: State = State.ACTIVE,
    margins: Margins | None = None,
) -> Lease:
    """A lease granted ``since`` seconds after noon."""
    start = at(since).wall_ms
    return Lease(
        resource=parse_resource(resource),
        scope=scope,
        holder=holder.holder,
        session=holder.session,
        lease_id=fresh(),
        token=1,
        ttl=ttl,
        claimed_at=start,
        renewed_at=start,
        expires_at=start + ttl * MS,
        renewals=0,
        paths=paths,
        reason=None,
        host=holder.host,
        branch=holder.branch,
        state=state,
        edge=edge,
        operation=fresh(),
        margins=margins or Margins(),
    )


def holding(*leases: Lease, policy: Policy = DEFAULT_POLICY) -> Ledger:
    """A stored ledger that has these records, with tokens in their order."""
    ledger = empty(policy)
    for token, record in enumerate(leases, start=1):
        ledger = ledger.put(replace(record, token=token))
    header = Header(
        ledger_id="ledger-1", revision=len(leases), epoch=0, sequence=len(leases), policy=policy
    )
    return as_stored(ledger.with_header(header))


def step(
    ledger: Ledger, *operations: Operation, when: Moment, together: bool = True
) -> tuple[Ledger, Outcome]:
    """Apply operations and store what they came to; the first outcome."""
    applied = apply(ledger, operations, when, together=together)
    return as_stored(applied.ledger), applied.outcomes[0]


def code(ledger: Ledger, operation: Operation, when: Moment) -> str:
    """What an operation comes to: its status, or the code of its refusal, which changes nothing."""
    before = picture(ledger)
    (result,) = apply(ledger, [operation], when, together=False).results
    if isinstance(result, Outcome):
        return result.status
    assert picture(ledger) == before
    return result.code


def leases_in(ledger: Ledger) -> list[Lease]:
    return ledger.every_lease()


def only(ledger: Ledger) -> Lease:
    (found,) = leases_in(ledger)
    return found


def task(name: str, **more: object) -> Task:
    fields: dict[str, object] = {"resource": parse_resource(name), "file": f"tasks/{name}.md"}
    return Task(**(fields | more))  # type: ignore[arg-type]


def picture(ledger: Ledger, people: Iterable[str] = (JO.holder, KIM.holder)) -> object:
    """All that a ledger says, to compare before and after."""
    return (
        ledger.header,
        tuple(ledger.every_lease()),
        {x.resource.key: ledger.notes(x.resource) for x in ledger.every_lease()},
        {who: ledger.notices(who) for who in people},
    )


# --- operations with fresh ids -------------------------------------------------------------------


def _verb(kind: Callable[..., Op], *ids: str, **usual: Any) -> Callable[..., Op]:
    """What makes operations of a kind: by whom, on which resource, with fresh ids."""

    def make(who: Actor, what: str = "F001", **more: Any) -> Op:
        made = {name: fresh() for name in ("id", *ids)}
        return kind(actor=who, resource=parse_resource(what), **made, **(usual | more))

    return make


claim, complete = _verb(Claim, "lease_id"), _verb(Complete, "lease_id")
release, park, revoke = _verb(Release), _verb(Park), _verb(Revoke, reason="stuck")


def renew(who: Actor, what: str | None = "F001", **more: Any) -> Renew:
    resource = None if what is None else parse_resource(what)
    return Renew(id=fresh(), actor=who, resource=resource, **more)


def extend(who: Actor, seconds: int, what: str = "F001", **more: Any) -> Extend:
    return Extend(id=fresh(), actor=who, resource=parse_resource(what), seconds=seconds, **more)


def end(who: Actor, *leases: Lease, **more: Any) -> EndSession:
    grants = tuple(Grant(x.resource, x.scope, x.session, x.lease_id, x.token) for x in leases)
    return EndSession(id=fresh(), actor=who, grants=grants, **more)


def retirement(*leases: Lease, what: str = "F001", **more: Any) -> Retirement:
    grants = tuple(Grant(x.resource, x.scope, x.session, x.lease_id, x.token) for x in leases)
    return Retirement(resource=parse_resource(what), grants=grants, **{"reason": "idle", **more})


def retire(who: Actor, *items: Retirement) -> Retire:
    return Retire(id=fresh(), actor=who, items=items)


def take_ticket(who: Actor, ticket: str, what: str = "F001", **more: Any) -> TakeTicket:
    more = {"until": NOON + 600 * MS, **more}
    return TakeTicket(
        id=fresh(), actor=who, resources=(parse_resource(what),), ticket=ticket, **more
    )


def note(who: Actor, text: str, what: str = "F001") -> AddNote:
    return AddNote(id=fresh(), actor=who, resource=parse_resource(what), text=text)


def set_policy(who: Actor, **changes: str) -> SetPolicy:
    return SetPolicy(id=fresh(), actor=who, changes=tuple(changes.items()))


VERBS: dict[str, Callable[[Actor], Operation]] = {
    "claim": claim,
    "renew": renew,
    "extend": lambda who: extend(who, TTL),
    "release": release,
    "done": complete,
}
