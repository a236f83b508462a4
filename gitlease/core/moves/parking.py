"""What sessions do to leases: how a run binds them, how they are parked, and how a session ends.

A parked lease is bound to no session and renewed by none, so it lapses by itself like any other,
and others are kept out for as long as the policy allows and no longer. A claim of the same person
goes on with it: that is a new grant, with a token of its own, so that whoever still works under the
parked one is fenced off.

A session that ends without having finished its work has its leases run out now, and keeps edges:
the record stays, bound to no session, so that a clone that cannot see the edge yet respects it.
Whatever another session of the same person ends, or the person, leaves word for whose it was.

What a run binds of its person's is that run's alone: a second one is refused, wherever it is
started. At its end the run gives it back, unbound and not released, since it was the person's
before. A run that is killed leaves it bound until it lapses, or until its person unbinds it: the
ledger cannot know that a process is dead, so whoever asks as the person has made sure of that.
"""

from __future__ import annotations

from gitlease.core.errors import GitleaseError, Invalid, NotHolder, PolicyRefused, UsageError
from gitlease.core.expiry import Moment, holder_has
from gitlease.core.frozen import replace
from gitlease.core.lease import Actor, Lease, State, without_process
from gitlease.core.ledger import Ledger
from gitlease.core.moves.claiming import event, prolonged, tell_session
from gitlease.core.moves.conflicts import fits_session, held_error
from gitlease.core.moves.holding import held_for, noted
from gitlease.core.moves.operations import Bind, EndSession, Grant, Park, RunOut, Unbind
from gitlease.core.outcome import Outcome
from gitlease.core.policy import Policy
from gitlease.core.relation import Relation, relation
from gitlease.core.resources.resource import Resource

PARKED, RELEASED, RUN_OUT = "parked", "released", "run_out"
BOUND, UNBOUND = "bound", "unbound"


def park(ledger: Ledger, op: Park, moment: Moment) -> tuple[Ledger, Outcome]:
    """Keep one's own live leases of a resource for a later session; never shorten them.

    Raises LeaseLost or NotHolder where none is the caller's, and PolicyRefused where nothing may be
    parked.
    """
    most = _longest(ledger.header.policy, op.resource)
    mine = held_for(ledger, op.resource, op.scope, op.actor, moment, lambda row: row.park)
    now, by, why = moment.now.wall_ms, op.actor.holder, op.note or op.reason
    state, kept = ledger, []
    for lease in mine:
        parked = _parked(lease, op, ledger, moment)
        kept.append(replace(parked, reason=op.reason or lease.reason))
        state = tell_session(state.put(kept[-1]), lease, op, PARKED, now, why)
    if op.note is not None:
        state = noted(state, op.resource, op.id, op.actor, now, op.note)
    return state, Outcome(
        operation=op.id,
        status=PARKED,
        leases=tuple(kept),
        events=tuple(event(PARKED, op.id, now, by, x, reason=why) for x in mine),
        capped_to_max=op.seconds is not None and op.seconds > most,
    )


def end_session(ledger: Ledger, op: EndSession | RunOut, moment: Moment) -> tuple[Ledger, Outcome]:
    """End those of these grants that are still held; the others are skipped.

    An expired lease is ended as well, but never parked: that would be a new claim.
    """
    now, by = moment.now.wall_ms, op.actor.holder
    parks = isinstance(op, EndSession) and op.park
    most = _longest(ledger.header.policy, None) if parks else 0
    state, ended, events = ledger, [], []
    refused: list[GitleaseError] = []
    for number, grant in enumerate(op.grants):
        try:
            lease = _still_bound(ledger, grant)
        except Invalid as damage:  # a damaged record keeps only its own
            refused.append(damage)
            continue
        if lease is None or not lease.same_holder(op.actor):
            continue
        if parks and not holder_has(lease, moment):
            continue
        how, last = _last(lease, op, ledger, moment)
        state = state.remove(lease) if last.state is State.RELEASED else state.put(last)
        state = tell_session(state, lease, op, how, now, op.note)
        ended.append(last)
        events.append(event(how, op.id, now, by, lease, reason=op.note))
        if op.note is not None:
            state = noted(state, lease.resource, f"{op.id}-{number}", op.actor, now, op.note)
    return state, Outcome(
        operation=op.id,
        status=RUN_OUT if isinstance(op, RunOut) else PARKED if parks else RELEASED,
        leases=tuple(ended),
        events=tuple(events),
        refused=tuple(refused),
        capped_to_max=isinstance(op, EndSession) and parks and (op.seconds or 0) > most,
        changed=bool(ended),
    )


def _last(
    lease: Lease, op: EndSession | RunOut, ledger: Ledger, moment: Moment
) -> tuple[str, Lease]:
    if isinstance(op, EndSession) and op.park:
        return PARKED, _parked(lease, op, ledger, moment)
    if isinstance(op, RunOut) and lease.edge:
        now = moment.now.wall_ms
        over = lease if lease.expires_at <= now else replace(lease, renewed_at=now, expires_at=now)
        return RUN_OUT, replace(over, session=None, operation=op.id)
    return RELEASED, replace(lease, state=State.RELEASED)


def _still_bound(ledger: Ledger, grant: Grant) -> Lease | None:
    lease = ledger.lease(grant.resource, grant.scope)
    if lease is None or lease.lease_id != grant.lease_id or lease.state is not State.ACTIVE:
        return None
    return lease if lease.session == grant.session else None


def _longest(policy: Policy, resource: Resource | None) -> int:
    if policy.park_max == 0:
        raise PolicyRefused(
            "the ledger's policy parks nothing: its park_max is 0s",
            resource=resource.text if resource else None,
        )
    return policy.park_max


def _parked(lease: Lease, op: Park | EndSession, ledger: Ledger, moment: Moment) -> Lease:
    most = ledger.header.policy.park_max
    seconds = most if op.seconds is None else min(op.seconds, most)
    kept = prolonged(lease, op.id, ledger, moment, seconds=seconds, most=most)
    return replace(kept, session=None, parked=True, picked=False)


# --- a run binds ----------------------------------------------------------------------------------


def bind(ledger: Ledger, op: Bind, moment: Moment) -> tuple[Ledger, Outcome]:
    """Make live leases that are bound to no session the caller's session's.

    Whatever else there is of these resources stays as it is: a claim in the same step decides on
    it. Raises UsageError without a session.
    """
    if op.actor.session is None:
        raise UsageError("only a session can bind what its person holds")
    policy, now = ledger.header.policy, moment.now.wall_ms
    state, bound = ledger, []
    for resource in op.resources:
        lease = state.lease(resource, op.scope)
        if lease is None or lease.session is not None:
            continue
        how = relation(lease, op.actor, policy, moment)
        if how is Relation.MINE and fits_session(state, lease, op.actor, moment):
            where = op.actor.host or lease.host
            bound.append(replace(lease, session=op.actor.session, host=where, operation=op.id))
            state = state.put(bound[-1])
    return state, Outcome(
        operation=op.id,
        status=BOUND,
        leases=tuple(bound),
        events=tuple(event(BOUND, op.id, now, op.actor.holder, x) for x in bound),
        changed=bool(bound),
    )


def unbind(ledger: Ledger, op: Unbind, moment: Moment) -> tuple[Ledger, Outcome]:
    """Make what a run bound its person's again: for that run, or the person without a session.

    Grants no longer bound to that run are skipped. Raises NotHolder for anybody else.
    """
    now, by = moment.now.wall_ms, op.actor.holder
    state, freed, events = ledger, [], []
    refused: list[GitleaseError] = []
    for grant in op.grants:
        try:
            lease = _still_bound(state, grant)
        except Invalid as damage:  # a damaged record keeps only its own
            refused.append(damage)
            continue
        if lease is None or lease.session is None:
            continue
        if not _may_unbind(lease, op.actor):
            stood = [(lease, relation(lease, op.actor, ledger.header.policy, moment))]
            policy, scope = ledger.header.policy, grant.scope
            raise held_error(grant.resource, scope, stood, policy, moment, error=NotHolder)
        # The process that had it is over, so nothing is to be found there.
        freed.append(
            replace(lease, session=None, host=without_process(lease.host), operation=op.id)
        )
        state = state.put(freed[-1])
        events.append(event(UNBOUND, op.id, now, by, lease))
    return state, Outcome(
        operation=op.id,
        status=UNBOUND,
        leases=tuple(freed),
        events=tuple(events),
        refused=tuple(refused),
        changed=bool(freed),
    )


def _may_unbind(lease: Lease, actor: Actor) -> bool:
    return lease.same_holder(actor) and actor.session in (None, lease.session)
