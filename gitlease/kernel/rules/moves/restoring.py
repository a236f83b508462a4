"""A ledger that is put back after its ref was deleted, and the wait before it grants anything new.

Whoever puts it back has perhaps not seen the newest grants. So until the longest lease that any
policy allows must have ended, nothing new is granted (S2). Whoever holds a lease keeps it all the
while, and a clone writes down again those of its own that the ledger now lacks. The tokens go on in
an epoch that follows from the time, so that those of two restorations are never the same, even if
neither knew of the other (S4).
"""

from __future__ import annotations

from gitlease.kernel.rules.errors import GitleaseError, Invalid, LeaseHeld, LeaseLost, PolicyRefused
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.instant import MS, rfc3339
from gitlease.kernel.rules.lease import (
    DAY,
    TABLE,
    Actor,
    Lease,
    Moment,
    Relation,
    State,
    Verdict,
    relation,
)
from gitlease.kernel.rules.ledger import EPOCH_SIZE, RESTORED_FORMAT, Ledger
from gitlease.kernel.rules.moves import claiming, holding
from gitlease.kernel.rules.moves import operations as ops
from gitlease.kernel.rules.moves.closing import LONGEST_TTL, check_admin, wait_end, wait_of
from gitlease.kernel.rules.moves.operations import Event, Outcome

RESTORED, WAIT_ENDED, PUT_BACK = "restored", "wait_ended", "put_back"
MOST_BACK = 32  # leases of one operation
_BEGIN = 1_767_225_600_000  # 2026 began, in wall-clock milliseconds
_PER_MS = 10_000  # tokens: those of a day are less than an epoch


def first_token(now_ms: int) -> int:
    """The token after which a restoration at this time goes on: a day is an epoch."""
    days, ms = divmod(max(now_ms - _BEGIN, 0), DAY * MS)
    return days * EPOCH_SIZE + ms * _PER_MS


def restore(ledger: Ledger, op: ops.Restore, moment: Moment) -> tuple[Ledger, Outcome]:
    """Begin an epoch; after a deletion, by an admin, with a wait in which nothing is granted."""
    if not op.waits:
        return holding.restore(ledger, op, moment)
    header, now = ledger.header, moment.now.wall_ms
    check_admin(header.policy, op.actor.holder, "restore it")
    known, first = max(op.above, header.token), first_token(now)
    # One wrong number must not use up the epochs.
    if known >= max((header.epoch + 2) * EPOCH_SIZE, first + 2 * EPOCH_SIZE):
        raise Invalid(f"token {known} is of an epoch that this ledger cannot have reached")
    if first <= known:
        first = (known // EPOCH_SIZE + 1) * EPOCH_SIZE
    until = now + wait_of(header.policy) * MS
    header = replace(
        header,
        epoch=first // EPOCH_SIZE,
        sequence=first % EPOCH_SIZE,
        closed_until=max(until, header.closed_until or 0),
        # Older clients would grant at once.
        format=RESTORED_FORMAT,
    )
    told = f"nothing new is granted until {rfc3339(until, round_up=True)}"
    noted = Event(RESTORED, op.id, now, op.actor.holder, detail=told)
    return ledger.with_header(header), Outcome(operation=op.id, status=RESTORED, events=(noted,))


def end_wait(ledger: Ledger, op: ops.EndWait, moment: Moment) -> tuple[Ledger, Outcome]:
    """Grant again at once: for an admin, who has asked everybody."""
    header, now = ledger.header, moment.now.wall_ms
    check_admin(header.policy, op.actor.holder, "end its wait")
    waits = wait_end(header, now) is not None
    if waits:
        ledger = ledger.with_header(replace(header, closed_until=now))
    ended = Event(WAIT_ENDED, op.id, now, op.actor.holder)
    return ledger, Outcome(
        operation=op.id, status=WAIT_ENDED, events=(ended,) if waits else (), changed=waits
    )


def put_back(ledger: Ledger, op: ops.PutBack, moment: Moment) -> tuple[Ledger, Outcome]:
    """Write down live leases of the caller's that a restored ledger lacks, as far as they last.

    Those that conflict with anything are ``refused``; the first such refusal is raised if all are.
    """
    if wait_end(ledger.header, moment.now.wall_ms) is None:
        raise PolicyRefused("leases are put back only while a restored ledger grants nothing new")
    if len(op.leases) > MOST_BACK:
        raise Invalid(f"one operation puts back at most {MOST_BACK} leases")
    state, back, refused = ledger, list[Lease](), list[GitleaseError]()
    displaced, events = list[Lease](), list[Event]()
    for lease in op.leases:
        try:
            over, new = _put_back(state, op, lease, moment)
        except GitleaseError as refusal:
            refused.append(refusal)
            continue
        for old in over:
            state = state.remove(old)
        displaced += over
        state = state.put(new)
        back.append(new)
        events.append(claiming.event(PUT_BACK, op.id, moment.now.wall_ms, op.actor.holder, new))
    if refused and not back:
        raise refused[0]
    return state, Outcome(
        operation=op.id,
        status=PUT_BACK,
        leases=tuple(back),
        displaced=tuple(displaced),
        refused=tuple(refused),
        events=tuple(events),
        changed=bool(back),
    )


def _put_back(
    ledger: Ledger, op: ops.PutBack, lease: Lease, moment: Moment
) -> tuple[list[Lease], Lease]:
    """The lapsed records that a lease takes the place of, and its own."""
    header, now, name = ledger.header, moment.now.wall_ms, lease.resource.text
    policy = header.policy
    if not lease.same_holder(op.actor):
        raise LeaseHeld(f"{name} is {lease.holder}'s", resource=name, scope=lease.scope)
    longest = policy.park_max if lease.parked else max(policy.ttl_max, LONGEST_TTL)
    if (
        lease.state is not State.ACTIVE
        # All that was granted before is below the epoch of the restoration.
        or lease.token >= header.token
        or not lease.claimed_at <= lease.renewed_at <= now + policy.skew * MS
        or not 0 < lease.duration_ms <= longest * MS
    ):
        raise Invalid(f"{name} was not granted like this before the ledger was restored")
    if now >= lease.expires_at:
        raise LeaseLost(f"{name} expired before it was put back", resource=name, scope=lease.scope)
    stood = ledger.lease(lease.resource, lease.scope)
    same = stood is not None and stood.lease_id == lease.lease_id
    if stood is not None and same:
        fixed = ("resource", "holder", "token", "claimed_at", "state")
        if any(getattr(stood, x) != getattr(lease, x) for x in fixed):
            raise Invalid(f"{name} was granted otherwise")
        if stood.renewals >= lease.renewals:
            raise LeaseLost(f"{name} is as it was", resource=name, scope=lease.scope)
    for other in ledger.every_lease():
        mine = other.lease_id == lease.lease_id and other.token == lease.token
        if (other.lease_id == lease.lease_id or other.token == lease.token) and not (same and mine):
            raise Invalid(f"{name} has the token or the id of another lease")
    over = _over(ledger, lease, moment)
    new = replace(
        lease,
        # A holder counts from here: for what is left, and not for all of it once more.
        renewed_at=now,
        expires_at=lease.expires_at,
        renewals=lease.renewals + 1,
        operation=op.id,
        margins=lease.margins.widest(policy.margins),
    )
    return over, new


def _over(ledger: Ledger, lease: Lease, moment: Moment) -> list[Lease]:
    """The records that are over and in the way. Raises LeaseHeld for any other one."""
    policy, person = ledger.header.policy, Actor(lease.holder, lease.session)
    held, over = list[tuple[Lease, Relation]](), list[Lease]()
    for rival in claiming.rivals_of(ledger, lease.resource, lease.scope, lease.paths):
        how = relation(rival, person, policy, moment)
        if rival.lease_id == lease.lease_id:
            continue
        if rival.resource != lease.resource and claiming.only_edge(rival, how):
            continue  # an edge protects its name, never its paths
        older_of_own = how is Relation.MINE and rival.key == lease.key
        if rival.token > lease.token:
            held.append((rival, how))
        elif older_of_own or TABLE[how].claim is Verdict.TAKE:
            over.append(rival)
        elif TABLE[how].claim is not Verdict.YES:
            held.append((rival, how))
    if held:
        raise claiming.held_error(lease.resource, lease.scope, held, policy, moment)
    return over
