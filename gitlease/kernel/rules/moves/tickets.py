"""The line of those who wait for a resource: a courtesy to waiters, never a right.

A claim lets earlier tickets go first, in the order of ``(since, id)``: those for its resource, and
those for paths that have a file in common with its own. It passes as many waiters over as it says
(``Claim.passing``), because they did not come forward within a ``WINDOW`` each. Passed tickets
leave the line, so that a dead waiter delays the others only once; one that still waits takes its
old place again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gitlease.kernel.rules import resources
from gitlease.kernel.rules.errors import LeaseHeld, PolicyRefused, UsageError
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.lease import Actor, Moment, same_person
from gitlease.kernel.rules.ledger import MAX_STEP, TICKETS_KEPT, Ledger, Ticket
from gitlease.kernel.rules.moves.operations import Claim, Event, LeaveTicket, Outcome, TakeTicket
from gitlease.kernel.rules.resources import Resource, scopes_overlap

LONGEST_TICKET = 24 * 3_600_000  # milliseconds for which a place is kept without asking again
WINDOW = 10.0  # seconds for which what is free is left to each who stands before
# Seconds after which a line that nobody comes forward from keeps nobody out.
LONGEST_COURTESY = 60.0
SKEW = 60_000  # milliseconds by which the clock of whoever waits may be ahead


class NotYourTurn(LeaseHeld):
    """It could be claimed, but for others who have waited for longer: ``waiting`` has tickets."""


@dataclass(frozen=True)
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
    # A ticket from the far future, by a false or a wrong clock, must not stand for ever.
    live = (t for t in tickets if now_ms < t.until <= now_ms + LONGEST_TICKET + SKEW)
    return tuple(sorted(live, key=_order))


def line_for(
    ledger: Ledger, resource: Resource, paths: tuple[str, ...], now_ms: int
) -> tuple[Ticket, ...]:
    """The tickets that count now for a claim of a resource with these paths, in their order."""
    near = _near(ledger, resource, paths, now_ms)
    # Who waits for the resource itself has tickets for its task's paths, too, and counts once.
    named = {t.id for t in near if t.resource == resource}
    return tuple(t for t in near if t.resource == resource or t.id not in named)


def _near(
    ledger: Ledger, resource: Resource, paths: tuple[str, ...], now_ms: int
) -> tuple[Ticket, ...]:
    tickets, pattern = list(ledger.tickets(resource)), resource.pattern
    if covered := paths if pattern is None else (pattern, *paths):
        tickets += (
            t
            for t in ledger.every_ticket()
            if t.resource != resource
            and (theirs := t.resource.pattern) is not None
            and resources.any_overlap([theirs], covered)
        )
    return line(tickets, now_ms)


def place(
    ledger: Ledger,
    wanted: Mapping[Resource, tuple[str, ...]],
    scope: str,
    actor: Actor,
    ticket: str | None,
    now_ms: int,
    *,
    is_one: bool = False,
) -> Place:
    """The place of a ticket in line; of several resources, each with its paths, the worst.

    ``is_one``: any one of them will do, so the best.
    """
    ahead, behind, kept = list[int](), 0, True
    for resource, paths in wanted.items():
        waiting = line_for(ledger, resource, paths, now_ms)
        mine = next((t for t in waiting if t.id == ticket), None)
        first = _ahead(waiting, resource, scope, actor, ticket)
        rivals = {
            t.id for t in waiting if t.id != ticket and _wants_the_same(t, resource, scope, actor)
        }
        ahead.append(len(first))
        behind = max(behind, len(rivals) - len(first))
        kept = kept and mine is not None
    most = (min if is_one else max)(ahead, default=0)
    return Place(ahead=most, behind=behind, kept=kept)


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
        # Ids of tickets stand in the ledger for anybody to read.
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
            # Asked for again, after it was passed over, a place is the old one.
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


def before(ledger: Ledger, op: Claim, now_ms: int) -> list[Ticket]:
    """Those who wait for longer than a claim, by the earliest ticket of each."""
    waiting = line_for(ledger, op.resource, op.paths, now_ms)
    return _ahead(waiting, op.resource, op.scope, op.actor, op.ticket)


def give_way(ledger: Ledger, op: Claim, moment: Moment) -> None:
    """Raise NotYourTurn where more have waited for longer than the claim may pass over."""
    first = before(ledger, op, moment.now.wall_ms)
    if len(first) <= (op.passing or 0):
        return
    who = f"{first[0].holder} has" if len(first) == 1 else f"{len(first)} others have"
    what = {"it" if t.resource == op.resource else t.resource.text for t in first}
    raise NotYourTurn(
        f"{op.resource} is free, but {who} waited longer for "
        f"{what.pop() if len(what) == 1 else 'it or some of its files'}",
        resource=op.resource.text,
        scope=op.scope,
        waiting=tuple(t.id for t in first),
    )


def served(ledger: Ledger, op: Claim, moment: Moment) -> Ledger:
    """The lines without the caller's ticket, those whom it passed over, and what has run out."""
    # Whoever passes nobody over and has no ticket writes no line anew.
    if op.ticket is None and op.passing is None:
        return ledger
    now, state = moment.now.wall_ms, ledger
    passed = set[str]() if op.passing is None else {t.id for t in before(ledger, op, now)}
    lines = (t.resource for t in _near(ledger, op.resource, op.paths, now))
    for resource in dict.fromkeys((op.resource, *lines)):
        tickets = ledger.tickets(resource)
        served_ids = {
            t.id for t in tickets if t.id in passed or (t.id == op.ticket and _is_by(t, op.actor))
        }
        if served_ids:
            kept = (t for t in line(tickets, now) if t.id not in served_ids)
            state = state.with_tickets(resource, tuple(kept))
    return state


def _ahead(
    waiting: tuple[Ticket, ...], resource: Resource, scope: str, actor: Actor, ticket: str | None
) -> list[Ticket]:
    mine = next((t for t in waiting if t.id == ticket), None)
    first = {
        t.id: t
        # The earliest of each waiter is what is left.
        for t in reversed(waiting)
        if (mine is None or (t.id != mine.id and _order(t) < _order(mine)))
        and _wants_the_same(t, resource, scope, actor)
    }
    return sorted(first.values(), key=_order)


def _wants_the_same(ticket: Ticket, resource: Resource, scope: str, actor: Actor) -> bool:
    # One's own session never waits for itself.
    if _is_by(ticket, actor) and ticket.session in (None, actor.session):
        return False
    # Scopes divide a task's work, not paths.
    return resource.pattern is not None or (
        ticket.resource != resource or scopes_overlap(ticket.scope, scope)
    )


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
