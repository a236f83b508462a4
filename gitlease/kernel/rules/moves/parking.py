"""Parked leases, which only older versions wrote: a history that has them is carried out again.

A lease was parked for a time, bound to no session and renewed by none, so that others were kept out
and any session of its holder went on with it by a new grant.
"""

from __future__ import annotations

from gitlease.kernel.rules.errors import GitleaseError, NotHolder, PolicyRefused
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import Lease, Moment, Policy, Relation, holder_has
from gitlease.kernel.rules.ledger import Ledger
from gitlease.kernel.rules.moves import claiming, holding
from gitlease.kernel.rules.moves import operations as ops
from gitlease.kernel.rules.moves.operations import Event, Outcome
from gitlease.kernel.rules.resources import Resource, scopes_overlap

PARKED = "parked"


def park(ledger: Ledger, op: ops.Park, moment: Moment) -> tuple[Ledger, Outcome]:
    """Keep one's own live leases of a resource for a later session; never shorten them."""
    most = _longest(ledger.header.policy, op.resource)
    mine = _to_park(ledger, op, moment)
    now, why = moment.now.wall_ms, op.note or op.reason
    state, kept = ledger, []
    for lease in mine:
        parked = _parked(lease, op, ledger, moment)
        kept.append(replace(parked, reason=op.reason or lease.reason))
        state = claiming.tell_session(state.put(kept[-1]), lease, op, PARKED, now, why)
    if op.note is not None:
        state, _ = holding.noted(state, op, op.resource, now, op.note)
    done = claiming.outcome(op, PARKED, kept, moment, before=mine, reason=why)
    return state, replace(done, capped_to_max=op.seconds is not None and op.seconds > most)


def end_session(ledger: Ledger, op: ops.EndSession, moment: Moment) -> tuple[Ledger, Outcome]:
    """End these grants, or park those that are live."""
    if not op.park:
        return holding.end_session(ledger, op, moment)
    now, most = moment.now.wall_ms, _longest(ledger.header.policy, None)
    state, kept, events = ledger, list[Lease](), list[Event]()
    refused: list[GitleaseError] = []
    for number, lease in holding.still_bound(ledger, op.grants, refused):
        live = lease.same_holder(op.actor) and holder_has(lease, moment)
        if not live or claiming.overtaken_by(ledger, lease):
            continue
        kept.append(_parked(lease, op, ledger, moment))
        state = claiming.tell_session(state.put(kept[-1]), lease, op, PARKED, now, op.note)
        events.append(claiming.event(PARKED, op.id, now, op.actor.holder, lease, reason=op.note))
        if op.note is not None:
            part = f"-{number}"
            state, _ = holding.noted(state, op, lease.resource, now, op.note, part=part)
    return state, Outcome(
        operation=op.id,
        status=PARKED,
        leases=tuple(kept),
        events=tuple(events),
        refused=tuple(refused),
        capped_to_max=(op.seconds or 0) > most,
        changed=bool(kept),
    )


def _longest(policy: Policy, resource: Resource | None) -> int:
    if policy.park_max == 0:
        raise PolicyRefused(
            "the ledger's policy parks nothing: its park_max is 0s",
            resource=resource.text if resource else None,
        )
    return policy.park_max


def _to_park(ledger: Ledger, op: ops.Park, moment: Moment) -> list[Lease]:
    related = claiming.relations(ledger, op.resource, op.actor, moment)
    # A person might park the live lease of a run of theirs, and what was parked once more.
    mine = [
        x
        for x, how in related
        if holding.in_scope(x, op.scope)
        and (how is Relation.MINE or (how is Relation.MY_RUN and holder_has(x, moment)))
    ]
    if mine:
        return [holding.unshared(ledger, x) for x in mine]
    theirs = [
        (x, how)
        for x, how in related
        if how in (Relation.MY_OTHER_RUN, Relation.THEIRS)
        and (op.scope is None or scopes_overlap(x.scope, op.scope))
    ]
    if theirs:
        policy = ledger.header.policy
        raise claiming.held_error(op.resource, op.scope, theirs, policy, moment, error=NotHolder)
    records = tuple(x for x, _ in related if holding.in_scope(x, op.scope))
    raise holding.lost(op.resource, op.scope, records, op.actor)


def _parked(lease: Lease, op: ops.Park | ops.EndSession, ledger: Ledger, moment: Moment) -> Lease:
    most = ledger.header.policy.park_max
    seconds = most if op.seconds is None else min(op.seconds, most)
    kept = claiming.prolonged(lease, op.id, ledger, moment, seconds=seconds, most=most)
    return replace(kept, session=None, parked=True, picked=False)
