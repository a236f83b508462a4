"""What a run leaves behind when it stops: leases that are parked, and the end of its session."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gitlease.core.errors import UsageError
from gitlease.core.expiry import holder_has
from gitlease.core.frozen import dataclass, replace
from gitlease.core.lease import Lease, State
from gitlease.core.moves.operations import MAX_WORD, EndSession, Grant, Park, check_text
from gitlease.core.moves.parking import PARKED, RELEASED
from gitlease.core.resources.resource import Resource
from gitlease.core.view import LeaseView
from gitlease.engine.answers import Answer, several
from gitlease.engine.intents import ENDED
from gitlease.engine.ledger_session import LedgerSession, Look
from gitlease.engine.stepping import change, change_with_edges
from gitlease.engine.transaction import fresh_id

AT_ONCE = 128  # leases that one step ends: the audit trail has a line for each


@dataclass(frozen=True, slots=True)
class OwnSession:
    """One run of the caller's, with its live leases. ``current``: it is the caller's own.

    ``since`` is when it got the oldest of them, and ``expires_at`` when the first of them ends.
    """

    session: str
    leases: tuple[LeaseView, ...]
    current: bool

    @property
    def since(self) -> datetime:
        return min(view.claimed_at for view in self.leases)

    @property
    def expires_at(self) -> datetime:
        return min(view.expires_at for view in self.leases)


@dataclass(frozen=True, slots=True)
class SessionsReading:
    """The runs of the caller's that hold anything, by their names."""

    sessions: tuple[OwnSession, ...] = ()
    warnings: tuple[str, ...] = ()


def park(
    session: LedgerSession,
    resources: Sequence[Resource],
    *,
    seconds: int | None = None,
    scope: str | None = None,
    reason: str | None = None,
    note: str | None = None,
) -> Answer:
    """Keep one's own live leases of these resources for a later session; all or none.

    ``seconds`` are capped to the policy's ``park_max``; None: as long as that. Raises
    LeaseLost, NotHolder, and PolicyRefused where nothing may be parked.
    """
    operations = [
        Park(
            id=fresh_id(),
            actor=session.actor,
            resource=resource,
            seconds=seconds,
            scope=scope,
            reason=reason,
            note=note,
        )
        for resource in several(resources)
    ]
    return change(session, "park", operations)


def end_session(
    session: LedgerSession,
    name: str | None = None,
    *,
    below: bool = False,
    known: bool = False,
    park: bool = False,
    seconds: int | None = None,
    note: str | None = None,
    commit: bool | None = None,
) -> Answer:
    """Release, or park, everything that is bound to a session of the caller's; None: its own.

    One push, and another for each further ``AT_ONCE`` leases; none where nothing is held, which
    is no error. ``below``: of the sessions named ``SESSION/…`` too, which work for it.
    ``known``: what this clone knows of is enough, and the remote is not asked for more. What
    cannot be ended, since its task file cannot be edited, is among ``refused``. Raises
    UsageError where there is no session.
    """
    if name is not None:
        check_text(name, what="the session", limit=MAX_WORD)
    name = session.actor.session if name is None else name
    if name is None:
        raise UsageError(
            "there is no session here to end",
            hints=("name one; `session list` shows those of yours that hold anything",),
        )
    end = EndSession(
        id=fresh_id(), actor=session.actor, grants=(), park=park, seconds=seconds, note=note
    )
    done = Answer(status=PARKED if park else RELEASED, changed=False)
    tried: set[str] = set()
    session.settle()
    look, fresh = session.known_look(), known
    while True:
        found = () if look is None else _bound(look, name, below=below, live=park)
        left = [x for x in found if _is_own(session, x) and x.lease_id not in tried][:AT_ONCE]
        if left:
            tried |= {x.lease_id for x in left}
            done = _joined(done, _end(session, replace(end, id=fresh_id()), left, commit))
            look = session.known_look()
        elif fresh:
            return done
        elif not tried:  # nothing is held is never said from old knowledge
            look = session.look()
            done = replace(done, warnings=done.warnings + look.warnings)
        fresh = True


def sessions(session: LedgerSession, *, cached: bool = False) -> SessionsReading:
    """The sessions of this person that have live leases."""
    look = session.look(cached=cached)
    own = [x for x in look.leases if x.session is not None and _is_own(session, x)]
    found: dict[str, list[LeaseView]] = {}
    for view in session.views(look, own):
        if view.state == State.ACTIVE.value and view.session is not None:
            found.setdefault(view.session, []).append(view)
    current = session.actor.session
    sessions = (OwnSession(name, tuple(found[name]), name == current) for name in sorted(found))
    return SessionsReading(tuple(sessions), look.warnings)


def _is_own(session: LedgerSession, lease: Lease) -> bool:
    return lease.state is State.ACTIVE and lease.same_holder(session.actor)


def _end(
    session: LedgerSession, end: EndSession, leases: Sequence[Lease], commit: bool | None
) -> Answer:
    """One step: the leases, and the edges of those that are tasks, unless they are parked."""
    if end.park:
        return change(session, "session end", [replace(end, grants=_grants(leases))])
    edges = session.edges
    planned, against = edges.writable([x.resource for x in leases], edges.plan_end, commit=commit)
    for resource, error in against:
        error.resource = error.resource or resource.text
    refused = tuple(error for _, error in against)
    whole = {p.resource for p in planned}
    grants = _grants([x for x in leases if x.resource in whole])
    if not grants:
        return Answer(status=RELEASED, refused=refused, changed=False)
    ops = [replace(end, grants=grants)]
    answer = change_with_edges(
        session, "session end", lambda: (ops, planned), goal=ENDED, commit=commit, checked=True
    )
    return replace(answer, refused=refused + answer.refused)


def _bound(look: Look, session: str, *, below: bool, live: bool) -> list[Lease]:
    """The records of a session, whoever's; only ``live`` ones where the others stay."""
    return [
        x
        for x in look.leases
        if x.session is not None
        and (x.session == session or (below and x.session.startswith(f"{session}/")))
        and (not live or holder_has(x, look.moment))
    ]


def _grants(leases: Sequence[Lease]) -> tuple[Grant, ...]:
    return tuple(Grant(x.resource, x.scope, x.session, x.lease_id, x.token) for x in leases)


def _joined(one: Answer, other: Answer) -> Answer:
    """Both as one answer: several steps of one command."""
    return replace(
        other,
        leases=one.leases + other.leases,
        edge=other.edge if one.edge == "none" else one.edge,
        written=one.written + other.written,
        refused=one.refused + other.refused,
        capped_to_max=one.capped_to_max or other.capped_to_max,
        changed=one.changed or other.changed,
        warnings=tuple(dict.fromkeys(one.warnings + other.warnings)),
    )
