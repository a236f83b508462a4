"""Ending sessions, and giving back what runs have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from gitlease.kernel.ledger.answers import Answer, joined, leave_to_runs, stopped
from gitlease.kernel.ledger.edges import ENDED
from gitlease.kernel.ledger.ledger_session import LedgerSession, LedgerView
from gitlease.kernel.ledger.stepping import change, change_with_edges, in_every
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.rules.errors import MAX_WORD, GitleaseError, UsageError, check_text, hint
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.lease import Lease, State
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.ledger import FAILED
from gitlease.kernel.rules.moves.holding import RELEASED, RUN_OUT
from gitlease.kernel.rules.moves.operations import EndSession, Grant, RunOut, Unbind, grant_of

EVENTS_SEARCHED = 500  # for who claimed what a session renewed
AT_ONCE = 128  # leases that one step ends: the audit trail has a line for each


@dataclass(frozen=True)
class OwnSession:
    """A session of the caller's person, with its live leases; ``current``: the caller's own.

    ``since`` is when its oldest lease was claimed, ``expires_at`` when the first one ends.
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


@dataclass(frozen=True)
class SessionsReading:
    """The sessions of the caller's person that hold anything, by name."""

    sessions: tuple[OwnSession, ...] = ()
    warnings: tuple[str, ...] = ()


def unbind(session: LedgerSession, grants: Sequence[Grant]) -> Answer:
    """Give bound leases back to their person; a lease that is no longer bound is no refusal.

    Raises NotHolder for another session's.
    """
    op = Unbind(id=fresh_id(), actor=session.actor, grants=tuple(grants))
    return change(session, "unbind", [op])


def give_back(
    session: LedgerSession,
    grants: Sequence[Grant],
    *,
    note: str | None,
    commit: bool | None,
    failed: bool = False,
) -> Answer:
    """Release exactly these grants and retire their edges; what has ended otherwise stays so.

    ``failed``: a pool's command failed on them, as the ``note`` says, which counts as a failure of
    each task in the same step (see ``Setback``).
    """
    mark = FAILED if failed and note else ""
    end = EndSession(id=fresh_id(mark), actor=session.actor, grants=(), note=note)
    return _end(session, end, grants, commit)


def end_session(
    layers: Sequence[LedgerSession],
    name: str | None = None,
    *,
    below: bool = False,
    known: bool = False,
    spared: Collection[str] = (),
    release: bool = False,
    note: str | None = None,
    commit: bool | None = None,
) -> Answer:
    """End all leases bound to a session of the caller's person; None: the caller's own session.

    What a live run has in the caller's own session, or in one below it, stays: the run owns it.
    Tasks stay assigned, the rest is released. ``release`` retires the edges as well.

    One push a layer, and another for each further ``AT_ONCE`` leases; none if nothing is held,
    which is no error. ``below`` includes the sessions named ``SESSION/…``, which work for it.
    ``known``: end only what this clone knows of. ``spared`` are the ids of leases that stay. A
    lease that cannot be ended, for example because its task file cannot be edited, is among
    ``refused``, and so is the error of a further step.
    Raises UsageError without a session.
    """
    layers[0].check_holder()
    actor = layers[0].actor
    if name is not None:
        check_text(name, what="the session", limit=MAX_WORD)
    name = actor.session if name is None else name
    if name is None:
        raise UsageError(
            "no session to end here",
            hints=(hint("name one; `{}` shows those of yours that hold anything", "session list"),),
        )
    status = RELEASED if release else RUN_OUT
    end: EndSession | RunOut = RunOut(id="", actor=actor, grants=(), note=note)
    if release:
        end = EndSession(id="", actor=actor, grants=(), note=note)

    def select(look: LedgerView) -> list[Lease]:
        return [
            x
            for x in look.leases
            if x.session is not None
            and (x.session == name or (below and x.session.startswith(f"{name}/")))
            and x.lease_id not in spared
        ]

    nothing = Answer(status=status, changed=False)
    spares = name == actor.session
    return in_every(
        layers, status, lambda x: _end_all(x, end, select, nothing, known, commit, spares=spares)
    )


def run_out(
    session: LedgerSession,
    left: Mapping[str, Lease | LeaseView],
    renewed: Collection[str] = (),
    *,
    spares: bool = True,
) -> Answer:
    """End some of the caller's leases; ``left`` has them by id, as the caller left them.

    Tasks stay assigned, the rest is released. A lease that was bound to another session stays.
    ``renewed`` are the ids of leases that stay, too, but are given back if renewing bound what the
    person had claimed without a session. ``spares``: what live runs have stays.
    """

    def is_as_left(lease: Lease) -> bool:
        was = left.get(lease.lease_id)
        return was is not None and not lease.parked and lease.session == was.session

    def as_left(look: LedgerView) -> list[Lease]:
        bound = _bound_for_a_time(session, [x for x in look.leases if x.lease_id in renewed])
        return [x for x in look.leases if is_as_left(x) or x in bound]

    end = RunOut(id="", actor=session.actor, grants=())
    nothing = Answer(status=RUN_OUT, changed=False)
    # Of what was left, this clone's copy may be lost.
    known = not left or session.known_look() is not None
    return _end_all(session, end, as_left, nothing, known, None, spares=spares)


def end_every_session(
    layers: Sequence[LedgerSession], *, release: bool = False, **terms: Any
) -> tuple[Answer, tuple[tuple[str, int], ...]]:
    """End each session that ``sessions`` lists, as ``end_session`` does; below a run only its own.

    Returns one answer for all, and the number of leases of each ended session. An error stops it:
    it is among ``refused``, or raised for the first session.
    """
    status, reading = RELEASED if release else RUN_OUT, sessions(layers)
    ended: list[tuple[str, int]] = []
    done = Answer(status=status, changed=False, warnings=reading.warnings)
    for found in reading.sessions:
        # A command under a lease must not end what its person does elsewhere.
        if layers[0].caller.is_below_run and not found.current:
            continue
        try:
            # As this clone knows them: the list of sessions has just asked the remote.
            one = end_session(layers, found.session, known=True, release=release, **terms)
        except GitleaseError as error:
            if not ended:
                raise
            return stopped(done, error), tuple(ended)
        done = joined(done, one)
        ended.append((found.session, len(one.leases)))
    return done, tuple(ended)


def _end_all(
    session: LedgerSession,
    end: EndSession | RunOut,
    select: Callable[[LedgerView], list[Lease]],
    done: Answer,
    fresh: bool,
    commit: bool | None,
    *,
    spares: bool = True,
) -> Answer:
    """``spares``: the leases of live runs stay."""
    tried: set[str] = set()
    session.settle()
    look = session.known_look()
    while True:
        found = [] if look is None else select(look)
        if kept := session.caller.of_live_runs(found) if spares else []:
            found = [x for x in found if x not in kept]
            done = leave_to_runs(done, kept)
        left = [x for x in found if _is_own(session, x) and x.lease_id not in tried][:AT_ONCE]
        if left:
            # What cannot be ended is tried once, or this would never come to an end.
            tried |= {x.lease_id for x in left}
            try:
                if isinstance(end, RunOut) and (bound := _bound_for_a_time(session, left)):
                    left = [x for x in left if x not in bound]
                    # Each in the name of the session that has it, which may work for the caller.
                    unbound = [
                        Unbind(
                            id=fresh_id(),
                            actor=replace(session.actor, session=lease.session),
                            grants=(grant_of(lease),),
                        )
                        for lease in bound
                    ]
                    done = joined(done, change(session, "session end", unbound))
                if left:
                    some = [*map(grant_of, left)]
                    done = joined(done, _end(session, replace(end, id=fresh_id()), some, commit))
            except GitleaseError as error:
                if not done.changed:
                    raise
                return stopped(done, error)
            look = session.known_look()
        elif fresh:
            return done
        elif not tried:  # nothing is held is never said from old knowledge
            look = session.look()
            done = replace(done, warnings=done.warnings + session.take_warnings())
        fresh = True


def _bound_for_a_time(session: LedgerSession, leases: Sequence[Lease]) -> list[Lease]:
    """Those of some leases that their person claimed without the session that has them now."""
    renewed = [x for x in leases if x.renewals and x.session is not None]
    if not renewed:
        return []
    tokens = {x.token for x in renewed}
    try:
        events = [*session.store.history(session.layer, EVENTS_SEARCHED)]
    except GitleaseError:
        return []
    # The grant's own event tells that it was claimed without a session.
    unbound = {x.token for x in events if x.token in tokens and x.session is None}
    return [x for x in renewed if x.token in unbound]


def sessions(layers: Sequence[LedgerSession], *, cached: bool = False) -> SessionsReading:
    """The sessions of this person that have live leases in these layers."""
    found: dict[str, list[LeaseView]] = {}
    warnings: list[str] = []
    for session in layers:
        look = session.look(cached=cached)
        warnings += session.take_warnings()
        own = [x for x in look.leases if x.session is not None and _is_own(session, x)]
        for view in session.views_in(look.head, own, look.moment):
            if view.state == State.ACTIVE.value and view.session is not None:
                found.setdefault(view.session, []).append(view)
    current = layers[0].actor.session
    every = (OwnSession(name, tuple(found[name]), name == current) for name in sorted(found))
    return SessionsReading(tuple(every), tuple(dict.fromkeys(warnings)))


def _is_own(session: LedgerSession, lease: Lease) -> bool:
    return lease.state is State.ACTIVE and lease.same_holder(session.actor)


def _end(
    session: LedgerSession, end: EndSession | RunOut, grants: Sequence[Grant], commit: bool | None
) -> Answer:
    # The tasks stay assigned, so no file changes.
    if isinstance(end, RunOut):
        return change(session, "session end", [replace(end, grants=tuple(grants))])
    edges = session.edges
    planned, against = edges.writable([x.resource for x in grants], edges.plan_end, commit=commit)
    refused = tuple(x.with_(resource=x.resource or resource.text) for resource, x in against)
    whole = {p.resource for p in planned}
    ended = tuple(x for x in grants if x.resource in whole)
    if not ended:
        return Answer(status=RELEASED, refused=refused, changed=False)
    ops = [replace(end, grants=ended)]
    answer = change_with_edges(
        session, "session end", lambda: (ops, planned), goal=ENDED, commit=commit, checked=True
    )
    return replace(answer, refused=refused + answer.refused)
