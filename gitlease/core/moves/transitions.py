"""The table of transitions: every legal move of a ledger, and nothing else.

1. ``(ledger, operations, moment) -> Applied`` or a typed refusal, and a refusal changes nothing.
2. A grant over a live lease happens only after its release, revocation or lapse (S2). What a step
   grants is live in that step: sightings judge only what was there before it.
3. Tokens only grow: every grant takes the next one (S4).
4. An operation whose id the ring knows is never applied again (S6).
5. Only the holder's own lease is renewed or released (S7).
6. Whose lease it is, is decided by ``relation`` alone; what edges it needs to know of stand in the
   record, so that the client, a server hook and an audit of a fetched ledger decide alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gitlease.core.errors import GitleaseError, Invalid, UsageError
from gitlease.core.frozen import dataclass, replace
from gitlease.core.lease import Moment, State
from gitlease.core.ledger import MAX_STEP, Header, Ledger, RingEntry
from gitlease.core.moves import claiming, governance, holding, tickets
from gitlease.core.moves.operations import (
    LAPSED,
    Acknowledge,
    AddNote,
    Barrier,
    Bind,
    Claim,
    Complete,
    Create,
    DropRecord,
    EndSession,
    Event,
    Extend,
    LeaveTicket,
    Operation,
    Outcome,
    Park,
    Pick,
    Release,
    Renew,
    Restore,
    Retire,
    Revoke,
    RunOut,
    SetPolicy,
    TakeTicket,
    Unbind,
)
from gitlease.core.policy import Issues

MAX_REVISION = 10**17

Move = Callable[[Ledger, Any, Moment], tuple[Ledger, Outcome]]

MOVES: Mapping[type[Operation], Move] = {
    Claim: claiming.claim,
    Pick: claiming.pick,
    Bind: holding.bind,
    Unbind: holding.unbind,
    Renew: holding.renew,
    Extend: holding.extend,
    Release: holding.release,
    Complete: holding.complete,
    Park: holding.park,
    EndSession: holding.end_session,
    RunOut: holding.end_session,
    Revoke: governance.revoke,
    Retire: holding.retire,
    AddNote: governance.add_note,
    SetPolicy: governance.set_policy,
    Acknowledge: governance.acknowledge,
    Barrier: governance.barrier,
    Restore: governance.restore,
    DropRecord: governance.drop_record,
    TakeTicket: tickets.take,
    LeaveTicket: tickets.leave,
}


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of a batch: ``results`` has an outcome or error per operation, in order.

    ``changed`` is False when there is nothing to write.
    """

    ledger: Ledger
    results: tuple[Outcome | GitleaseError, ...]
    changed: bool

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(r for r in self.results if isinstance(r, Outcome))

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(event for outcome in self.outcomes for event in outcome.events)

    @property
    def only_renews(self) -> bool:
        """Whether history may forget this step when the next renewal comes."""
        return _only_renews(self.results)


def create(operation: Create) -> Ledger:
    """The empty ledger, revision 0: the first batch applied to it makes revision 1."""
    header = Header(
        ledger_id=operation.ledger_id, revision=0, epoch=0, sequence=0, policy=operation.policy
    )
    return Ledger(header=header, records=_Nothing())


def apply(
    ledger: Ledger, operations: Sequence[Operation], moment: Moment, *, together: bool = True
) -> Applied:
    """Decide a batch in one step and one revision.

    ``together``: all or none, the first refusal is raised and nothing changes. Otherwise each
    succeeds or fails on its own, and refusals are among the results.
    """
    revision, state = ledger.header.revision + 1, ledger
    if revision > MAX_REVISION:
        raise Invalid("the ledger's revision is at its end: it was tampered with")
    if len(operations) > MAX_STEP:
        raise UsageError(f"a step has at most {MAX_STEP} operations, not {len(operations)}")
    moment = replace(moment, step=frozenset(operation.id for operation in operations))
    results: list[Outcome | GitleaseError] = []
    entries: list[RingEntry] = []
    for operation in operations:
        known = state.header.entry(operation.id)
        known = known or next((e for e in entries if e.operation == operation.id), None)
        if known is not None:
            raise Invalid(f"operation {operation.id} was applied before, as {known.outcome}")
        try:
            if state.header.policy.issues is not Issues.NONE:
                governance.check_spelling(operation, state.header.policy)
            state, outcome = MOVES[type(operation)](state, operation, moment)
        except GitleaseError as refusal:
            if together:
                raise
            results.append(refusal)
            entries.append(RingEntry(operation.id, revision, refusal.code))
        else:
            results.append(outcome)
            entries.append(RingEntry(operation.id, revision, outcome.status))
    if not any(isinstance(r, Outcome) and r.changed for r in results):
        return Applied(ledger, tuple(results), changed=False)
    header = state.header.after_step(tuple(entries), decision=not _only_renews(results))
    applied = Applied(state.with_header(header), tuple(results), changed=True)
    _check_reported(applied)
    return applied


def _only_renews(results: Sequence[Outcome | GitleaseError]) -> bool:
    return all(r.is_renewal for r in results if isinstance(r, Outcome))


def _check_reported(applied: Applied) -> None:
    # Every reported live lease must be in the ledger to be written, unless a later operation of
    # the step ended or replaced it. Anything else is a bug and must not read as success (S3, S6).
    ids, ended = {outcome.operation for outcome in applied.outcomes}, set[int]()
    for outcome in reversed(applied.outcomes):
        for lease in outcome.leases:
            if lease.state is not State.ACTIVE:
                ended.add(lease.token)
                continue
            stands = applied.ledger.lease(lease.resource, lease.scope)
            later = lease.token in ended if stands is None else stands.operation in ids
            own = stands is not None and stands.operation == outcome.operation
            if stands != lease and (own or not later):
                raise RuntimeError(f"{lease.resource} was granted, and is not in the ledger")
        ended.update(lease.token for lease in outcome.displaced)
        # The caller's own expired lease is displaced as well, but only its event shows that.
        ended.update(x.token for x in outcome.events if x.kind == LAPSED and x.token is not None)


class _Nothing:
    """The records of a ledger that does not exist yet."""

    def every(self, *_: object) -> Any:
        return iter(())

    of = with_paths = notes = notices = tickets = every_ticket = lambda *_: ()
