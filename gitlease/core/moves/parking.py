"""The park: a lease that its holder keeps while no run of its works, and how a session ends.

A parked lease is bound to no session and renewed by none, so it lapses by itself like any other,
and others are kept out for as long as the policy allows and no longer. A claim of the same person
goes on with it: that is a new grant, with a token of its own, so that whoever still works under the
parked one is fenced off.
"""

from __future__ import annotations

from gitlease.core.errors import GitleaseError, Invalid, PolicyRefused
from gitlease.core.expiry import Moment, holder_has
from gitlease.core.frozen import replace
from gitlease.core.lease import Lease, State
from gitlease.core.ledger import Ledger
from gitlease.core.moves.claiming import event, prolonged
from gitlease.core.moves.holding import held_for, noted
from gitlease.core.moves.operations import EndSession, Grant, Park
from gitlease.core.outcome import Outcome
from gitlease.core.policy import Policy
from gitlease.core.resources.resource import Resource

PARKED, RELEASED = "parked", "released"


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
        lease = _parked(lease, op, ledger, moment, seconds=_capped(op.seconds, most))
        kept.append(replace(lease, reason=op.reason or lease.reason))
        state = state.put(kept[-1])
    if op.note is not None:
        state = noted(state, op.resource, op.id, op.actor, now, op.note)
    return state, Outcome(
        operation=op.id,
        status=PARKED,
        leases=tuple(kept),
        events=tuple(event(PARKED, op.id, now, by, x, reason=why) for x in mine),
        capped_to_max=op.seconds is not None and op.seconds > most,
    )


def end_session(ledger: Ledger, op: EndSession, moment: Moment) -> tuple[Ledger, Outcome]:
    """Release, or park, what is left of these grants; what became of others is nobody's refusal.

    A lease that ran out is released as well; parked it would be another claim, so it stays as it
    is.
    """
    now, by = moment.now.wall_ms, op.actor.holder
    policy = ledger.header.policy
    most = _longest(policy, None) if op.park else 0
    status = PARKED if op.park else RELEASED
    state, ended, events = ledger, [], []
    refused: list[GitleaseError] = []
    for number, grant in enumerate(op.grants):
        try:
            lease = _still_bound(ledger, grant, op)
        except Invalid as damage:  # a damaged record keeps only its own
            refused.append(damage)
            continue
        if lease is None or (op.park and not holder_has(lease, moment)):
            continue
        if op.park:
            ended.append(_parked(lease, op, ledger, moment, seconds=_capped(op.seconds, most)))
            state = state.put(ended[-1])
        else:
            ended.append(replace(lease, state=State.RELEASED))
            state = state.remove(lease)
        events.append(event(status, op.id, now, by, lease, reason=op.note))
        if op.note is not None:
            state = noted(state, lease.resource, f"{op.id}-{number}", op.actor, now, op.note)
    return state, Outcome(
        operation=op.id,
        status=status,
        leases=tuple(ended),
        events=tuple(events),
        refused=tuple(refused),
        capped_to_max=op.park and op.seconds is not None and op.seconds > most,
        changed=bool(ended),
    )


def _still_bound(ledger: Ledger, grant: Grant, op: EndSession) -> Lease | None:
    """The record of a grant, while it is this person's and of that very run; else None."""
    lease = ledger.lease(grant.resource, grant.scope)
    if lease is None or lease.lease_id != grant.lease_id or lease.state is not State.ACTIVE:
        return None
    return lease if lease.same_holder(op.actor) and lease.session == grant.session else None


def _longest(policy: Policy, resource: Resource | None) -> int:
    """The seconds for which a lease may be parked. PolicyRefused where none may."""
    if policy.park_max == 0:
        raise PolicyRefused(
            "the ledger's policy parks nothing: its park_max is 0s",
            resource=resource.text if resource else None,
        )
    return policy.park_max


def _capped(asked: int | None, most: int) -> int:
    return most if asked is None else min(asked, most)


def _parked(
    lease: Lease, op: Park | EndSession, ledger: Ledger, moment: Moment, *, seconds: int
) -> Lease:
    """The lease as it is kept: for so long, never shorter than before, and bound to no session."""
    most = ledger.header.policy.park_max
    kept = prolonged(lease, op.id, ledger, moment, seconds=seconds, most=most)
    return replace(kept, session=None, parked=True)
