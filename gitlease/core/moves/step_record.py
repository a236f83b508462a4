"""The data in a step's commit message: enough for anybody to carry the step out again.

The table of transitions is a function of a ledger, operations and a moment. Commits name the
operations, and the instant of the decision. Of what else a moment knows, when this clone first saw
a record, only what changes a decision is written down: see ``StepRecord``.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.core.errors import GitleaseError
from gitlease.core.expiry import Moment, Sighting, Standing, holder_has, standing
from gitlease.core.frozen import dataclass, replace
from gitlease.core.instant import MS, Instant
from gitlease.core.lease import Lease, lease_key, same_person
from gitlease.core.ledger import Ledger
from gitlease.core.moves.operations import Operation, Pick, Renew, grant_of
from gitlease.core.moves.transitions import Applied, apply
from gitlease.core.outcome import Outcome
from gitlease.core.policy import Issues, Policy

_LONG = 40 * 365 * 86_400 * MS  # milliseconds: longer than any lease


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """The operations of one step, and what its writer alone could know of time.

    ``at`` is the wall clock in milliseconds, ``ledger_id`` that of a ledger made with it. Whoever
    carries it out again takes it that the writer had seen every record for long enough to call it
    lapsed when the clock says so, and its own only just. ``recent`` has the grants (their nonces)
    that had changed too recently for that, ``over`` the writer's own that it had seen for longer
    than they last. ``gateway`` is who brought the operations of several holders: the commit's
    author.
    """

    at: int
    operations: tuple[Operation, ...]
    recent: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    ledger_id: str | None = None
    gateway: str | None = None

    @property
    def writer(self) -> str:
        """Who the commit is by."""
        return self.gateway or self.operations[0].actor.holder

    def brought_by(self, gateway: str) -> StepRecord:
        """The same, where it is of several holders in the name of the gateway that joined them."""
        first = self.operations[0].actor.holder
        alone = all(same_person(x.actor.holder, first) for x in self.operations)
        return self if alone else replace(self, gateway=gateway)

    @property
    def moment(self) -> Moment:
        """The moment of the decision, as far as others can know it."""
        now, then = _writers(self.at), _writers(self.at - _LONG)

        def seen(lease: Lease) -> Sighting:
            recent = lease.lease_id in self.recent
            since = then if lease.lease_id in self.over else now
            return Sighting(at=now if recent else then, changed=recent, since=since)

        return Moment(now=now, seen=seen)

    def carried_out(self, ledger: Ledger) -> Applied:
        """The result of the step on the ledger before it."""
        return apply(ledger, self.operations, self.moment, together=False)


@dataclass(frozen=True, slots=True)
class Decided:
    """The result of operations on one state of a ledger, its time, and its step record."""

    applied: Applied
    record: StepRecord
    moment: Moment


def decide(
    ledger: Ledger, operations: Sequence[Operation], moment: Moment, *, together: bool = True
) -> Decided:
    """Apply operations (see ``transitions.apply``), and record how to repeat the decision."""
    asked: dict[str, Lease] = {}
    operations = _spelt(operations, ledger.header.policy)

    def seen(lease: Lease) -> Sighting | None:
        asked[lease.lease_id] = lease
        return moment.seen(lease)

    applied = apply(ledger, operations, replace(moment, seen=seen), together=together)
    record = StepRecord(
        at=moment.now.wall_ms,
        operations=tuple(map(_resolved, operations, applied.results)),
        ledger_id=None if ledger.header.revision else ledger.header.ledger_id,
    )
    others, policy = record.moment, ledger.header.policy
    recent = tuple(
        nonce
        for nonce, x in asked.items()
        if _lapsed(x, policy, others) and not _lapsed(x, policy, moment)
    )
    over = tuple(
        nonce for nonce, x in asked.items() if holder_has(x, others) and not holder_has(x, moment)
    )
    return Decided(applied, replace(record, recent=recent, over=over), moment)


def _spelt(operations: Sequence[Operation], policy: Policy) -> Sequence[Operation]:
    if policy.issues is Issues.NONE:
        return operations
    from gitlease.core.moves.spelling import spelt

    return [spelt(operation, policy) for operation in operations]


def _writers(wall_ms: int) -> Instant:
    return Instant(wall_ms=wall_ms, boot_ms=wall_ms, boot_id="writer")


def _lapsed(lease: Lease, policy: Policy, moment: Moment) -> bool:
    return standing(lease, policy, moment) is Standing.LAPSED


def _resolved(operation: Operation, result: Outcome | GitleaseError) -> Operation:
    # A search through many leases or tasks is written down as what it found.
    if not isinstance(result, Outcome) or not result.leases:
        return operation
    if isinstance(operation, Pick):
        keys = {lease.key for lease in result.leases}
        taken = next(x for x in operation.claims if lease_key(x.resource, x.scope) in keys)
        return replace(taken, id=operation.id)
    if isinstance(operation, Renew) and operation.resource is None:
        return replace(operation, grants=tuple(map(grant_of, result.leases)))
    return operation
