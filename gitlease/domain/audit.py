"""The audit of one step of a ledger: is it a legal move of the table, by this pusher, now?

What a commit made of a ledger is read as it stands, and nothing of it is believed. The operations
that could have done it are rebuilt (``audit_rebuild``), the table of transitions carries them out
on the state before, at the writer's own instant, and whatever it comes to must be what was written,
field by field (``audit_compare``). Beyond the table there is what only a server can say: who pushes
it, and how late it is by its own clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gitlease.domain import audit_compare
from gitlease.domain.audit_case import UNNAMED, Case
from gitlease.domain.audit_checks import (
    check_clock,
    check_header,
    check_records,
    check_takeover,
    instant_of,
    new_entries,
    writer_of,
)
from gitlease.domain.audit_rebuild import rebuilt
from gitlease.domain.audit_values import NEWER, Illegal, Pusher, Written, quoted
from gitlease.domain.errors import CacheDamaged, GitleaseError
from gitlease.domain.frozen import dataclass, replace
from gitlease.domain.ledger import RING_SIZE, Ledger, RingEntry
from gitlease.domain.operations import Create, Operation
from gitlease.domain.outcome import Outcome
from gitlease.domain.policy import DEFAULT_POLICY
from gitlease.domain.transitions import apply, create

MAX_OPERATIONS = 2_000  # of one step

# Outcomes of operations that may leave no trace but their entry in the ring, and whether a step
# that has nothing else may be forgotten with the next renewal.
QUIET: Mapping[str, bool] = {
    "released": False,
    "completed": False,
    "parked": False,
    "revoked": False,
    "retired": False,
    "renewed": True,
    "left": True,
    "acknowledged": True,
}
# What an operation of a batch was refused with while others of it were carried out.
REFUSALS = frozenset(
    {"held", "usage", "not_holder", "lost", "policy", "invalid", "not_found", "nothing_left"}
)
# For operations that are in the ring no more, since the batch was longer than that.
ANY_STATUS = (
    *("claimed", "taken_over", "renewed", "extended", "completed", "parked", "released"),
    *("revoked", "noted"),
)


@dataclass(frozen=True, slots=True)
class _Named:
    """An operation of the step, by its id; ``status`` is None where the ring does not say it."""

    id: str
    status: str | None


def judge(before: Ledger | None, written: Written, pusher: Pusher, now_ms: int) -> None:
    """See that a step is a legal move; Illegal, with the rule, where it is not.

    ``before`` is None where the ledger is made. ``now_ms`` is the wall clock of whoever judges.
    """
    at = instant_of(written)
    by = writer_of(written, pusher)
    base = _made(written, by) if before is None else before
    check_clock(base, at, now_ms)
    check_header(base.header, written.header)
    entries = new_entries(base.header, written.header)
    names = _order(written, entries)
    check_records(written, base, {one.id for one in names}, by)
    state, outcomes, quiet = base, list[Outcome](), True
    for one in names:
        case = Case(state=state, written=written, by=by, at=at, id=one.id)
        found = _carried_out(case, one)
        if found is None:
            quiet = quiet and QUIET.get(one.status or "", True)
            continue
        after, outcome = found
        if outcome.status != "revoked":
            check_takeover(state, after, by, now_ms)
        state = after
        outcomes.append(outcome)
    ring = (*base.header.ring, *entries)[-RING_SIZE:]
    header = replace(state.header, revision=base.header.revision + 1, ring=ring)
    renewal = quiet and all(outcome.is_renewal for outcome in outcomes)
    audit_compare.check(base, state.with_header(header), written, tuple(outcomes), renewal=renewal)
    if not any(outcome.changed for outcome in outcomes):
        raise Illegal("nothing", "it changes nothing: an empty step is no move")


# --- the operations ---------------------------------------------------------------------------


def _made(written: Written, by: str) -> Ledger:
    """The empty ledger that the first step stands on."""
    header = written.header
    made = Create(
        id="create",
        actor=Case.actor_of(by),
        ledger_id=header.ledger_id,
        policy=DEFAULT_POLICY,
    )
    return create(made)


def _order(written: Written, entries: Sequence[RingEntry]) -> tuple[_Named, ...]:
    """Every operation of the step, in the order in which they were carried out.

    The ring has the last of them; of a longer batch the message and the records know the others.
    """
    last = tuple(_Named(entry.operation, entry.outcome) for entry in entries)
    if len(last) < RING_SIZE:
        return last
    in_ring = {one.id for one in last}
    told = (event.operation for event in written.events)
    leases = (x for x in written.leases.values() if x is not None)
    recorded = (x.operation for x in sorted(leases, key=lambda x: x.token))
    first = [x for x in dict.fromkeys((*told, *recorded)) if x not in in_ring]
    if len(first) > MAX_OPERATIONS:
        raise Illegal("too-large", f"a step has at most {MAX_OPERATIONS} operations")
    return (*(_Named(x, None) for x in first), *_unnamed(written, entries), *last)


def _unnamed(written: Written, entries: Sequence[RingEntry]) -> Iterator[_Named]:
    """Releases that a long batch names nowhere: one for each record that went without a word."""
    if not written.cut:
        return
    told = sum(event.kind == "released" for event in written.events)
    listed = {event.operation for event in written.events}
    ringed = sum(e.outcome == "released" and e.operation not in listed for e in entries)
    gone = sum(lease is None for lease in written.leases.values())
    for number in range(min(max(gone - told - ringed, 0), MAX_OPERATIONS)):
        yield _Named(f"{UNNAMED}{number}", "released")


# --- carrying out -------------------------------------------------------------------------------


def _carried_out(case: Case, one: _Named) -> tuple[Ledger, Outcome] | None:
    """What an operation comes to; None where it left no trace. Illegal where the table says no."""
    if one.status in REFUSALS:
        return None
    quiet = one.status in QUIET and case.left_no_trace
    if quiet and one.status != "acknowledged" and not case.written.cut:
        return None
    complaint: GitleaseError | None = None
    for operation in _candidates(case, one):
        tried = _tried(case, operation, one.status)
        if not isinstance(tried, GitleaseError):
            return tried
        complaint = complaint or tried
    if quiet:
        return None
    raise _as_illegal(complaint, one)


def _candidates(case: Case, one: _Named) -> Iterable[Operation]:
    for status in ANY_STATUS if one.status is None else (one.status,):
        yield from rebuilt(case, status)


def _tried(
    case: Case, operation: Operation, status: str | None
) -> tuple[Ledger, Outcome] | GitleaseError:
    header = case.state.header
    try:
        applied = apply(case.state, [operation], case.moment)
    except CacheDamaged:
        raise
    except GitleaseError as refusal:
        return refusal
    outcome = applied.outcomes[0]
    if outcome.refused:
        return outcome.refused[0]
    wrong = audit_compare.misfit(case, applied.ledger, outcome, status)
    if wrong is not None:
        return wrong
    kept = replace(applied.ledger.header, revision=header.revision, ring=header.ring)
    return applied.ledger.with_header(kept), outcome


def _as_illegal(complaint: GitleaseError | None, one: _Named) -> Illegal:
    if isinstance(complaint, Illegal):
        return complaint
    if complaint is None:
        return Illegal(
            "outcome",
            f"nothing that is written is what an operation {quoted(one.status or one.id)} does",
            hints=(NEWER,),
        )
    return Illegal(complaint.code.replace("_", "-"), complaint.message)


__all__ = ["Illegal", "Pusher", "Written", "judge"]
