"""What an audit sees at once: when a step was made, by whom, and what its header must say."""

from __future__ import annotations

from collections.abc import Collection

from gitlease.domain.audit_values import Illegal, Pusher, Written, bare, quoted
from gitlease.domain.instant import MS, rfc3339
from gitlease.domain.lease import State, same_person
from gitlease.domain.ledger import RING_SIZE, Header, Ledger, RingEntry

LEAST_SKEW = 10  # seconds that a push may take on its way, whatever the policy allows for clocks
MAX_ID = 64  # characters: a ring of longer ones would fill the header for everybody after


def instant_of(written: Written) -> int:
    """The writer's clock when it decided: one instant for the whole step."""
    said = {event.at for event in written.events}
    if len(said) > 1:
        raise Illegal("message", "its message tells of several instants, and a step has one")
    at = next(iter(said), None)
    if at is None:
        ids = {entry.operation for entry in written.header.ring}
        leases = [x for x in written.leases.values() if x is not None and x.operation in ids]
        at = leases[0].renewed_at if leases else written.at
    if at // MS != written.at // MS:
        raise Illegal(
            "clock",
            f"its commit is of {_time(written.at)} and what it does of {_time(at)}",
        )
    return at


def check_clock(base: Ledger, at: int, now_ms: int) -> None:
    """The writer's clock lies within the ledger's allowance of the judge's."""
    allowed = max(base.header.policy.skew, LEAST_SKEW)
    off = at - now_ms
    if abs(off) > allowed * MS:
        where = "ahead of" if off > 0 else "behind"
        raise Illegal(
            "clock",
            f"its time is {_time(at)}, {abs(off) // MS}s {where} this server's clock, "
            f"and {allowed}s are allowed",
            hints=("set the clock by NTP, and try again",),
        )


def writer_of(written: Written, pusher: Pusher) -> str:
    """Who wrote it by what it says, which must be who pushes it."""
    said = {event.by for event in written.events}
    if len(said) > 1:
        raise Illegal("identity", "its message tells of several people, and one person pushes it")
    by = next(iter(said), written.author)
    if not same_person(bare(by), bare(written.author)):
        raise Illegal(
            "identity",
            f"its commit is by {quoted(written.author)}, and its message tells of {quoted(by)}",
        )
    if not by.strip():
        raise Illegal("identity", "it does not say who wrote it")
    if not pusher.may_be(by):
        raise Illegal("identity", f"it is written as {quoted(by)}, and {pusher.known} pushes it")
    return by


def check_records(written: Written, base: Ledger, ids: Collection[str], by: str) -> None:
    """Every record that is written is its writer's own, and says which operation wrote it."""
    for lease in written.leases.values():
        if lease is None:
            continue
        if lease.operation not in ids:
            raise Illegal(
                "record", f"the record of {lease.resource} is of no operation of this step"
            )
        old = next((x for x in base.leases_of(lease.resource) if x.key == lease.key), None)
        same = old is not None and old.lease_id == lease.lease_id
        if same_person(lease.holder, by):
            if old is not None and same and old.token != lease.token:
                raise Illegal("record", f"the grant of {lease.resource} has the nonce of another")
            continue
        if old is not None and same:
            raise Illegal(
                "holder", f"{lease.resource} is held by {quoted(old.holder)}, not by {quoted(by)}"
            )
        raise Illegal(
            "holder",
            f"the record of {lease.resource} names {quoted(lease.holder)}, "
            f"and {quoted(by)} writes it",
        )


def check_takeover(before: Ledger, after: Ledger, by: str, now_ms: int) -> None:
    """What was another's may not be gone before it ran out, by the clock of whoever judges."""
    for old, new in after.changes.leases.values():
        known = before.changes.leases.get(old.key, (old, old))[1] if old is not None else None
        if known is None or known.state is not State.ACTIVE or same_person(known.holder, by):
            continue
        gone = new is None or new.lease_id != known.lease_id or new.token != known.token
        if gone and now_ms < known.expires_at:
            raise Illegal(
                "takeover",
                f"{known.resource} is {quoted(known.holder)}'s until {_time(known.expires_at)}, "
                f"and this server's clock reads {_time(now_ms)}",
            )


def check_header(before: Header, after: Header) -> None:
    """The header follows the one before, as far as no operation has to be known for that."""
    if after.ledger_id != before.ledger_id:
        raise Illegal("ledger-id", "it is another ledger than the one that is here")
    if after.revision != before.revision + 1:
        raise Illegal(
            "revision",
            f"its revision is {after.revision}, and the next one is {before.revision + 1}",
        )
    if after.epoch != before.epoch:
        raise Illegal("epoch", f"its epoch is {after.epoch}, and the ledger's {before.epoch}")
    if after.sequence < before.sequence:
        raise Illegal("token", f"tokens only grow: {after.sequence} is before {before.sequence}")


def new_entries(before: Header, after: Header) -> tuple[RingEntry, ...]:
    """What the ring has gained: it is the old one, and the operations of this step."""
    new = tuple(entry for entry in after.ring if entry.revision == after.revision)
    if not new:
        raise Illegal("ring", "its ring has no operation of this step")
    if after.ring != (*before.ring, *new)[-RING_SIZE:]:
        raise Illegal("ring", "its ring is not the one before with the operations of this step")
    if any(len(entry.operation) > MAX_ID or len(entry.outcome) > MAX_ID for entry in new):
        raise Illegal("ring", f"its ring has a word of more than {MAX_ID} characters")
    known = {entry.operation for entry in before.ring}
    ids = [entry.operation for entry in new]
    twice = next((x for x in ids if x in known or ids.count(x) > 1), None)
    if twice is not None:
        raise Illegal("ring", f"operation {quoted(twice)} was applied before")
    return new


def _time(ms: int) -> str:
    return rfc3339(max(ms, 0))
