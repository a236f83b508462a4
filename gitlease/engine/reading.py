"""Reading verbs: the ledger as one actor sees it, and its audit trail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from gitlease.core.errors import USE_ANY, Invalid
from gitlease.core.frozen import replace
from gitlease.core.instant import MS
from gitlease.core.lease import Lease, Relation, State, relation, same_person
from gitlease.core.ledger import Ledger
from gitlease.core.moves.claiming import only_edge, rivals_of
from gitlease.core.moves.operations import BARRIER, LAPSED, Event
from gitlease.core.moves.tickets import line_for
from gitlease.core.resources import WHOLE, Resource, fold
from gitlease.engine.answers import EndedLease, Reading, of_damage, unreadable_line
from gitlease.engine.ledger_session import LedgerSession, LedgerView
from gitlease.engine.ports import Snapshot
from gitlease.engine.stepping import landed_for_others

WHOLE_HISTORY = 100_000
LOOKED_BACK = 1_000  # events that are read for leases that ended
ENDS = {"released": State.RELEASED, "revoked": State.REVOKED}
GRANTS = frozenset({"claimed", "taken_over"})


def read_leases(
    session: LedgerSession,
    *,
    resource: Resource | None = None,
    ended: bool = False,
    cached: bool = False,
) -> Reading:
    """The leases of the ledger, or of one resource, as this actor sees them.

    ``ended`` adds those that were released or revoked lately. ``cached`` answers from this clone's
    copy, with its age. Raises Invalid if the one resource asked for has a damaged record.
    """

    def ask(head: Snapshot) -> Reading:
        ledger = head.ledger
        if ledger is None:
            return Reading()
        if resource is None:
            found = Reading(
                leases=session.views_in(head, ledger.every_lease()),
                warnings=of_damage(tuple(ledger.damage())),
            )
        else:
            found = _of_resource(session, head, ledger, resource)
        header = ledger.header
        return replace(
            found,
            ended=_ended(session, head, ledger, resource) if ended else (),
            policy=header.policy,
            ledger_id=header.ledger_id,
            revision=header.revision,
        )

    found, said = session.read(ask, cached=cached)
    return replace(found, warnings=said + found.warnings)


def _of_resource(
    session: LedgerSession, head: Snapshot, ledger: Ledger, resource: Resource
) -> Reading:
    leases = ledger.leases_of(resource)
    if resource.is_path:  # leases of a folder above or a part of it count too
        rivals, moment = rivals_of(ledger, resource, WHOLE, ()), session.moment(head)

        def see(lease: Lease) -> Relation:
            return relation(lease, session.actor, head.policy, moment)

        leases += [
            x
            for x in rivals
            if x.resource != resource and x.state is State.ACTIVE and not only_edge(x, see(x))
        ]
    active = (x for x in leases if x.state is State.ACTIVE)
    others = [x for x in active if not x.same_holder(session.actor)]
    landed = landed_for_others(session, others)
    return Reading(
        leases=session.views_in(head, leases),
        notes=ledger.notes(resource),
        waiting=line_for(ledger, resource, (), session.clock.now().wall_ms),
        warnings=(*unreadable_line(ledger, resource), *landed),
    )


def _ended(
    session: LedgerSession, head: Snapshot, ledger: Ledger, resource: Resource | None
) -> tuple[EndedLease, ...]:
    # Without a connection: this clone's copy of the history reaches back far enough.
    since = session.clock.now().wall_ms - head.policy.keep_completed * MS
    wanted = None if resource is None else fold(ledger.spelt(resource).text)
    events = [
        x
        for x in session.store.history(session.layer, LOOKED_BACK)
        if x.token is not None and x.resource and wanted in (None, fold(x.resource))
    ]
    granted = {(fold(x.resource or ""), x.token): x.at for x in events if x.kind in GRANTS}
    actor = session.actor
    return tuple(
        EndedLease(
            resource=x.resource,
            scope=x.scope or WHOLE,
            layer=session.layer,
            holder=x.holder,
            session=x.session,
            token=x.token,
            state=ENDS[x.kind],
            claimed_at=granted.get((fold(x.resource), x.token)),
            ended_at=x.at,
            by=x.by,
            reason=x.reason,
            mine=same_person(x.holder, actor.holder) and x.session in (None, actor.session),
        )
        for x in events
        if x.kind in ENDS and x.at > since and x.resource and x.holder and x.token is not None
    )


def check_known(session: LedgerSession, resources: Sequence[Resource]) -> None:
    """Raise NotFound for a likely typo: a name like a task's, neither a task nor in the ledger.

    Asks the remote only if this clone's copy lacks it too.
    """
    for resource, refusal in session.edges.unknown(resources).items():
        if not is_in_ledger(session.known_look(), resource) and not is_in_ledger(
            session.look(), resource
        ):
            away = session.edges.on_a_branch(resource)
            raise away or refusal.with_(hints=(*refusal.hints, USE_ANY))


def is_in_ledger(look: LedgerView | None, resource: Resource) -> bool:
    """Return whether a state of the ledger has a record of a resource, or a note on it."""
    ledger = None if look is None else look.head.ledger
    if ledger is None:
        return False
    try:
        return bool(ledger.leases_of(resource) or ledger.notes(resource))
    except Invalid:
        return True  # the verb itself says what is wrong with its record


def read_log(
    session: LedgerSession,
    *,
    resource: Resource | None = None,
    limit: int = 100,
    since: int | None = None,
    cached: bool = False,
) -> Reading:
    """The audit trail, newest first, of the ledger or of one resource.

    ``since``, in wall-clock milliseconds: only events from then on, by their writers' clocks.
    """

    def ask(head: Snapshot) -> Sequence[Event]:
        most = limit if since is None else WHOLE_HISTORY
        events = history_of(session, head, resource, most, older=not cached)
        return [e for e in events if since is None or e.at >= since][:limit]

    events, said = session.read(ask, cached=cached)
    return Reading(events=tuple(events), warnings=said)


def history_of(
    session: LedgerSession,
    head: Snapshot,
    resource: Resource | None,
    limit: int,
    *,
    older: bool = False,
) -> tuple[Event, ...]:
    """The last events of a ledger or of one of its resources, newest first, without barriers.

    ``older`` fetches the history that this clone lacks; without it there is no connection.
    """
    if resource is None:  # of a step with a barrier others are told as well
        events = session.store.history(session.layer, 2 * limit, older=older)
        return _ordered([e for e in events if e.kind != BARRIER][:limit])
    wanted = fold((head.ledger.spelt(resource) if head.ledger else resource).text)
    events = session.store.history(session.layer, WHOLE_HISTORY, older=older)
    return _ordered([e for e in events if fold(e.resource or "") == wanted][:limit])


def _ordered(events: Iterable[Event]) -> tuple[Event, ...]:
    """Put a lapse before the claim of the same operation, which found it: newest first."""
    steps = groupby(events, key=lambda event: event.operation)
    return tuple(
        event for _, same in steps for event in sorted(same, key=lambda event: event.kind == LAPSED)
    )
