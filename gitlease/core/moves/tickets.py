"""The line of those who wait for a resource: a courtesy to waiters, never a right.

A claim lets earlier tickets go first, in the order of ``(since, id)``. It passes as many over as it
says (``Claim.passing``), because they did not come forward within a ``WINDOW`` each. Passed tickets
leave the line, so that a dead waiter delays the others only once; one that still waits takes its
old place again.
"""

from __future__ import annotations

from collections.abc import Iterable

from gitlease.core.errors import LeaseHeld, PolicyRefused, UsageError
from gitlease.core.expiry import Moment
from gitlease.core.frozen import dataclass
from gitlease.core.lease import Actor, same_person
from gitlease.core.ledger import MAX_STEP, TICKETS_KEPT, Ledger, Ticket
from gitlease.core.moves.operations import Claim, LeaveTicket, TakeTicket
from gitlease.core.outcome import Event, Outcome
from gitlease.core.resources.resource import Resource, scopes_overlap

LONGEST_TICKET = 24 * 3_600_000  # milliseconds for which a place is kept without asking again
WINDOW = 10.0  # seconds for which what is free is left to each who stands before
LONGEST_COURTESY = (
    60.0  # seconds after which a line that nobody comes forward from keeps nobody out
)
SKEW = 60_000  # milliseconds by which the clock of whoever waits may be ahead


class NotYourTurn(LeaseHeld):
    """It could be claimed, but for others who have waited for longer: ``waiting`` has tickets."""

    def __init__(
        self, message: str, *, resource: str, scope: str, waiting: tuple[str, ...]
    ) -> None:
        super().__init__(message, resource=resource, scope=scope)
        self.waiting = waiting


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the line: how many stand before it and behind, of those who want the same.

    ``kept`` says that the caller's ticket stands in the ledger; without one it is behind everybody.
    """

    ahead: int
    behind: int
    kept: bool


def may_pass(free_for: float) -> int:
    """How many waiters may be passed over once a resource was left to them for so many seconds."""
    return TICKETS_KEPT if free_for >= LONGEST_COURTESY else int(free_for / WINDOW)


def line(tickets: Iterable[Ticket], now_ms: int) -> tuple[Ticket, ...]:
    """The tickets that count now, in their order."""
    live = (t for t in tickets if now_ms < t.until <= now_ms + LONGEST_TICKET + SKEW)
    return tuple(sorted(live, key=_order))


def place(
    ledger: Ledger,
    resources: Iterable[Resource],
    scope: str,
    actor: Actor,
    ticket: str | None,
    now_ms: int,
) -> Place:
    """Where a ticket stands; of several resources the place that is furthest behind counts."""
    ahead, behind, kept = 0, 0, True
    for resource in resources:
        waiting = line(ledger.tickets(resource), now_ms)
        mine = next((t for t in waiting if t.id == ticket), None)
        first = _ahead(waiting, scope, actor, ticket)
        rivals = [t for t in waiting if t is not mine and _wants_the_same(t, scope, actor)]
        ahead = max(ahead, len(first))
        behind = max(behind, len(rivals) - len(first))
        kept = kept and mine is not None
    return Place(ahead=ahead, behind=behind, kept=kept)


def take(ledger: Ledger, op: TakeTicket, moment: Moment) -> tuple[Ledger, Outcome]:
    """Stand in line. PolicyRefused where it is full; what has run out makes room."""
    now = moment.now.wall_ms
    if not op.resources:
        raise UsageError("a ticket needs a resource to wait for")
    if len(op.resources) + len(ledger.changes.tickets) > MAX_STEP:
        raise UsageError(f"one step stands in line for at most {MAX_STEP} resources")
    state, events = ledger, list[Event]()
    for resource in op.resources:
        waiting = line(ledger.tickets(resource), now)
        others = tuple(t for t in waiting if t.id != op.ticket)
        if any(t.id == op.ticket and not _is_by(t, op.actor) for t in waiting):
            raise PolicyRefused(f"that place in the queue for {resource} belongs to someone else")
        if len(others) >= TICKETS_KEPT:
            raise PolicyRefused(
                f"{len(others)} are already waiting for {resource}", resource=resource.text
            )
        mine = Ticket(
            id=op.ticket,
            resource=resource,
            scope=op.scope,
            holder=op.actor.holder,
            session=op.actor.session,
            since=now if op.since is None else min(op.since, now),
            until=min(op.until, now + LONGEST_TICKET),
        )
        state = state.with_tickets(resource, tuple(sorted((*others, mine), key=_order)))
        events.append(_event("waiting", op, resource, op.scope, now))
    return state, Outcome(operation=op.id, status="waiting", events=tuple(events), is_renewal=True)


def leave(ledger: Ledger, op: LeaveTicket, moment: Moment) -> tuple[Ledger, Outcome]:
    """Leave the line; only one's own ticket is ever taken away."""
    now = moment.now.wall_ms
    state, events = ledger, list[Event]()
    for resource in op.resources:
        before = ledger.tickets(resource)
        mine = next((t for t in before if t.id == op.ticket and _is_by(t, op.actor)), None)
        if mine is not None:
            kept = tuple(t for t in line(before, now) if t is not mine)
            state = state.with_tickets(resource, kept)
            events.append(_event("left", op, resource, mine.scope, now))
    return state, Outcome(
        operation=op.id, status="left", events=tuple(events), changed=bool(events), is_renewal=True
    )


def give_way(ledger: Ledger, op: Claim, moment: Moment) -> None:
    """Raise NotYourTurn where more have waited for longer than the claim may pass over."""
    waiting = line(ledger.tickets(op.resource), moment.now.wall_ms)
    first = _ahead(waiting, op.scope, op.actor, op.ticket)
    if len(first) <= (op.passing or 0):
        return
    who = f"{first[0].holder} has" if len(first) == 1 else f"{len(first)} others have"
    raise NotYourTurn(
        f"{op.resource} is free, but {who} waited longer for it",
        resource=op.resource.text,
        scope=op.scope,
        waiting=tuple(t.id for t in first),
    )


def served(ledger: Ledger, op: Claim, moment: Moment) -> Ledger:
    """The line without the caller's ticket, once the claim is granted.

    Those whom it passed over go as well, and what has run out. For whoever passes nobody over and
    has no ticket the line stays as it is, and so does the record of it.
    """
    if op.ticket is None and op.passing is None:
        return ledger
    before = ledger.tickets(op.resource)
    waiting = line(before, moment.now.wall_ms)
    passed = () if op.passing is None else _ahead(waiting, op.scope, op.actor, op.ticket)
    gone = {t.id for t in passed} | {
        t.id for t in before if t.id == op.ticket and _is_by(t, op.actor)
    }
    if not gone:
        return ledger
    return ledger.with_tickets(op.resource, tuple(t for t in waiting if t.id not in gone))


def _ahead(
    waiting: tuple[Ticket, ...], scope: str, actor: Actor, ticket: str | None
) -> list[Ticket]:
    mine = next((t for t in waiting if t.id == ticket), None)
    return [
        t
        for t in waiting
        if t is not mine
        and _wants_the_same(t, scope, actor)
        and (mine is None or _order(t) < _order(mine))
    ]


def _wants_the_same(ticket: Ticket, scope: str, actor: Actor) -> bool:
    ours = _is_by(ticket, actor) and ticket.session in (None, actor.session)
    return not ours and scopes_overlap(ticket.scope, scope)


def _is_by(ticket: Ticket, actor: Actor) -> bool:
    return same_person(ticket.holder, actor.holder)


def _order(ticket: Ticket) -> tuple[int, str]:
    return ticket.since, ticket.id


def _event(
    kind: str, op: TakeTicket | LeaveTicket, resource: Resource, scope: str, at: int
) -> Event:
    return Event(
        kind=kind,
        operation=op.id,
        at=at,
        by=op.actor.holder,
        resource=resource.text,
        scope=scope,
        session=op.actor.session,
    )
