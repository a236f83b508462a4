"""Compares what the table of transitions comes to with what was written, and names what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from gitlease.domain.audit_case import Case
from gitlease.domain.audit_values import Illegal, Written, quoted
from gitlease.domain.frozen import replace
from gitlease.domain.instant import rfc3339
from gitlease.domain.lease import Lease, LeaseKey, State, same_person
from gitlease.domain.ledger import Ledger
from gitlease.domain.operations import MAX_NOTE
from gitlease.domain.outcome import Event, Outcome
from gitlease.domain.pattern import fold
from gitlease.domain.policy import KEYS, Policy

LATEST_TOLD = 2 * 10**14  # milliseconds up to which a message can tell a time
MAX_TOKEN = 10**18
TIMES = ("claimed_at", "renewed_at", "expires_at")
# In the order in which a difference is told: what matters most comes first.
FIELDS = (
    *("token", "lease_id", "holder", "session", "state", "parked", "scope", "paths", "ttl"),
    *("expires_at", "renewed_at", "claimed_at", "renewals", "margins", "edge", "reason"),
    *("operation", "host", "branch"),
)

T = TypeVar("T")


def misfit(case: Case, after: Ledger, outcome: Outcome, status: str | None) -> Illegal | None:
    """Why an operation cannot be what the step did, by its own records and lines; None: it fits."""
    kept = [x for x in outcome.leases if x.state in (State.ACTIVE, State.COMPLETED)]
    keys = {x.key for x in kept}
    for record in case.records:
        if record.key not in keys:
            return Illegal("unexplained", f"nothing that it does writes {record.resource}")
    for lease in kept:
        found = case.written.leases.get(lease.key)
        if found is not None and found.operation == case.id:
            wrong = _differs(lease, found)
            if wrong is not None:
                return wrong
    if status is not None and outcome.status != status:
        return Illegal(
            "ring", f"its ring calls {quoted(status)} what the table calls {outcome.status}"
        )
    if not _tells(case.events, outcome.events, case.written.cut):
        return Illegal("message", "its message does not tell what it does")
    for key, (old, new) in after.changes.leases.items():
        if old is not None and new is None and key not in case.written.leases:
            return Illegal(
                "record", f"the record of {old.resource} is still there, and the table removes it"
            )
    return None


def check(
    before: Ledger,
    after: Ledger,
    written: Written,
    outcomes: Sequence[Outcome],
    *,
    renewal: bool,
) -> None:
    """See that a whole step was written as the table has it; Illegal for the first difference."""
    _check_leases(after, written)
    _check_lists(before, after, written)
    _check_header(before, after, written)
    events = tuple(event for outcome in outcomes for event in outcome.events)
    if not _tells(written.events, events, written.cut):
        raise Illegal("message", "its message does not tell what it does")
    if written.renewal != renewal:
        is_one, said = ("a renewal", "a decision") if renewal else ("a decision", "a renewal")
        raise Illegal("message", f"its message calls it {said}, and it is {is_one}")


# --- records ------------------------------------------------------------------------------------


def _check_leases(after: Ledger, written: Written) -> None:
    expected: Mapping[LeaseKey, Lease | None] = {
        key: new
        for key, (old, new) in after.changes.leases.items()
        if (old is None) != (new is None) or (old and new and _differs(new, old) is not None)
    }
    names = {
        key: lease.resource.text
        for key, pair in after.changes.leases.items()
        for lease in pair
        if lease is not None
    }
    for key, lease in written.leases.items():
        if key not in expected:
            what = "changed" if lease is not None else "is gone"
            name = lease.resource.text if lease is not None else key[0]
            raise Illegal(
                "unexplained",
                f"the record of {quoted(name)} {what}, and no operation of this step does that",
            )
    for key, wanted in expected.items():
        found = written.leases.get(key)
        if (found is None) != (wanted is None) or key not in written.leases:
            what = "is gone" if wanted is not None and key in written.leases else "is as before"
            raise Illegal(
                "record", f"the record of {quoted(names[key])} {what}, and the table changes it"
            )
        if wanted is not None and found is not None and (wrong := _differs(wanted, found)):
            raise wrong


def _differs(expected: Lease, found: Lease) -> Illegal | None:
    """The first field in which a record is not what the table says."""
    name = found.resource.text
    for field in FIELDS:
        should, says = getattr(expected, field), getattr(found, field)
        if should != says:
            rule = "token" if field == "token" else "record"
            return Illegal(
                rule,
                f"the record of {quoted(name)} has {field} {_shown(field, says)}, "
                f"and by the table {_shown(field, should)}",
            )
    if expected.resource.text != name or expected.resource != found.resource:
        return Illegal(
            "record", f"the record of {quoted(expected.resource.text)} calls it {quoted(name)}"
        )
    return None


def _shown(field: str, value: object) -> str:
    if field in TIMES and isinstance(value, int):
        return f"{rfc3339(value)[:-1]}.{value % 1_000:03d}Z"
    return (
        "none" if value is None else quoted(str(value.value if isinstance(value, State) else value))
    )


# --- notes, notices, tickets --------------------------------------------------------------------


def _check_lists(before: Ledger, after: Ledger, written: Written) -> None:
    changes = after.changes
    notes = {
        key: items
        for key, items in changes.notes.items()
        if items != before.notes(changes.note_resources[key])
    }
    _same("notes", notes, {k: items for k, (_, items) in written.notes.items()})
    people = {fold(to): to for to, _ in written.notices.values()}
    # A list of notices is one person's, however their email was spelt each time.
    notices = {
        key: tuple(replace(notice, to=items[0].to) for notice in items)
        for key, items in changes.notices.items()
        if items != before.notices(items[0].to if items else people.get(key, key))
    }
    _same("notices", notices, {k: items for k, (_, items) in written.notices.items()})
    for resource, items in written.tickets.values():
        owners = {ticket.id: ticket.holder for ticket in before.tickets(resource)}
        for ticket in items:
            if not same_person(owners.get(ticket.id, ticket.holder), ticket.holder):
                raise Illegal("tickets", f"a ticket for {resource} is another's now")
    tickets = {
        key: items
        for key, (resource, items) in changes.tickets.items()
        if items != before.tickets(resource)
    }
    _same("tickets", tickets, {k: items for k, (_, items) in written.tickets.items()})
    if set(written.dropped) != set(changes.dropped):
        odd = next(iter(set(written.dropped) ^ set(changes.dropped)))
        raise Illegal("unexplained", f"{quoted(odd)} is not dropped by an operation of this step")


def _same(
    what: str, expected: Mapping[str, tuple[T, ...]], found: Mapping[str, tuple[T, ...]]
) -> None:
    for key in dict.fromkeys((*found, *expected)):
        if expected.get(key) == found.get(key):
            continue
        whose = "for" if what == "notices" else "of"
        if key not in expected:
            why = "changed, and no operation of this step does that"
        else:
            why = "are not what the operations of this step make of them"
        raise Illegal(what, f"the {what} {whose} {quoted(key)} {why}")


# --- the header and the message -----------------------------------------------------------------


def _check_header(before: Ledger, after: Ledger, written: Written) -> None:
    wanted, found = after.header, written.header
    if found.policy != wanted.policy:
        changed = _first_changed(wanted.policy, found.policy)
        raise Illegal("policy", f"its policy has another {changed}, and no operation sets it so")
    if found.sequence != wanted.sequence:
        raise Illegal(
            "token",
            f"its last token is {found.sequence}, and by the table {wanted.sequence} "
            f"(it was {before.header.sequence})",
        )
    if found != wanted:
        raise Illegal("ring", "its ring is not that of the operations that it carries out")


def _first_changed(one: Policy, other: Policy) -> str:
    return next(key for key in KEYS if getattr(one, key) != getattr(other, key))


def _tells(said: tuple[Event, ...], events: Sequence[Event], cut: bool) -> bool:
    """Whether a message tells these events: all of them, or as many as there is room for."""
    told = tuple(event for event in events if _can_be_told(event))
    return said == (told[: len(said)] if cut else told)


def _can_be_told(event: Event) -> bool:
    """Whether a line of a message can tell it: whoever reads passes over what is no such line."""
    for value in event:
        if isinstance(value, str):
            plain = value.replace("\n", "").replace("\t", "")
            if len(value) > MAX_NOTE or not plain.isprintable():
                return False
    return 0 <= event.at < LATEST_TOLD and (event.token is None or 0 <= event.token < MAX_TOKEN)
