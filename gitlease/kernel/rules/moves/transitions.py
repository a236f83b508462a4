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
from itertools import islice
from typing import Any, ClassVar

from gitlease.kernel.rules.edge import printable
from gitlease.kernel.rules.errors import GitleaseError, Invalid, UsageError, hint
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import MS, Instant, rfc3339
from gitlease.kernel.rules.lease import (
    DEFAULT_POLICY,
    Lease,
    Moment,
    Policy,
    Sighting,
    Standing,
    State,
    holder_has,
    lease_key,
    same_person,
    standing,
)
from gitlease.kernel.rules.ledger import MAX_STEP, Header, Ledger, RingEntry
from gitlease.kernel.rules.moves import claiming, holding, moving, parking, restoring, tickets
from gitlease.kernel.rules.moves import operations as ops
from gitlease.kernel.rules.moves.operations import Event, Operation, Outcome
from gitlease.kernel.rules.policy import check_ceiling
from gitlease.kernel.rules.resources import Issues

MAX_REVISION = 10**17

Move = Callable[[Ledger, Any, Moment], tuple[Ledger, Outcome]]

MOVES: Mapping[type[Operation], Move] = {
    ops.Claim: claiming.claim,
    ops.Pick: claiming.pick,
    ops.Bind: holding.bind,
    ops.Unbind: holding.unbind,
    ops.Renew: holding.renew,
    ops.Extend: holding.extend,
    ops.Release: holding.release,
    ops.Unassign: holding.unassign,
    ops.Complete: holding.complete,
    ops.Park: parking.park,
    ops.EndSession: parking.end_session,
    ops.RunOut: holding.end_session,
    ops.Revoke: holding.revoke,
    ops.Retire: holding.retire,
    ops.AddNote: holding.add_note,
    ops.SetPolicy: holding.set_policy,
    ops.Acknowledge: holding.acknowledge,
    ops.Barrier: holding.barrier,
    ops.MoveLedger: moving.move,
    ops.OpenMoved: moving.open_moved,
    ops.Restore: restoring.restore,
    ops.EndWait: restoring.end_wait,
    ops.PutBack: restoring.put_back,
    ops.DropRecord: holding.drop_record,
    ops.TakeTicket: tickets.take,
    ops.LeaveTicket: tickets.leave,
}


@dataclass(frozen=True)
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
        """Return whether history may forget this step when the next renewal comes."""
        return all(outcome.is_renewal for outcome in self.outcomes)


def create(operation: ops.Create) -> Ledger:
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
        # A try that got no answer is sent again: it must not be applied twice (S6).
        known = state.header.entry(operation.id)
        known = known or next((e for e in entries if e.operation == operation.id), None)
        if known is not None:
            raise Invalid(f"operation {operation.id} was applied before, as {known.outcome}")
        try:
            moving.check_here(state.header, operation)
            if state.header.policy.issues is not Issues.NONE:
                holding.check_spelling(operation, state.header.policy)
            state, outcome = MOVES[type(operation)](state, operation, moment)
        except GitleaseError as refusal:
            if together:
                raise
            results.append(refusal)
            # A refusal is remembered as well: who asks again after a lost answer gets the same.
            entries.append(RingEntry(operation.id, revision, refusal.code))
        else:
            results.append(outcome)
            entries.append(RingEntry(operation.id, revision, outcome.status))
    if not any(isinstance(r, Outcome) and r.changed for r in results):
        return Applied(ledger, tuple(results), changed=False)
    applied = Applied(state, tuple(results), changed=True)
    header = state.header.after_step(tuple(entries), decision=not applied.only_renews)
    _check_reported(applied)
    return replace(applied, ledger=state.with_header(header))


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
            same = stands is not None and stands.operation == outcome.operation
            if stands != lease and (same or not later):
                raise RuntimeError(f"{lease.resource} was granted, and is not in the ledger")
        ended.update(lease.token for lease in outcome.displaced)
        # The caller's own expired lease is displaced as well, but only its event shows that.
        ended.update(
            x.token for x in outcome.events if x.kind == ops.LAPSED and x.token is not None
        )


class _Nothing:
    """The records of a ledger that does not exist yet."""

    def every(self, *_: object) -> Any:
        return iter(())

    of = with_paths = notes = notices = tickets = every_ticket = lambda *_: ()


# --- a step as its commit names it ----------------------------------------------------------------
# The table is a function of a ledger, operations and a moment. Commits name the operations, and the
# instant of the decision. Of what else a moment knows, when this clone first saw a record, only
# what changes a decision is written down: see ``StepRecord``.
#
# Whoever judges a step carries its operations out again on the ledger before it, by the same table,
# and compares what must have been written, byte for byte. Beyond the table there is what only a
# server can say: who pushes it, and how late it is by its own clock.

_LONG = 40 * 365 * 86_400 * MS  # milliseconds: longer than any lease


@dataclass(frozen=True, kw_only=True)
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
    ledger_id: str | None = None
    recent: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    gateway: str | None = None

    @property
    def writer(self) -> str:
        """The writer of the commit."""
        return self.gateway or self.operations[0].actor.holder

    @property
    def is_of_one(self) -> bool:
        """Return whether all operations are of one holder."""
        first = self.operations[0].actor.holder
        return all(same_person(x.actor.holder, first) for x in self.operations)

    def brought_by(self, gateway: str) -> StepRecord:
        """The same, where it is of several holders in the name of the gateway that joined them."""
        return self if self.is_of_one else replace(self, gateway=gateway)

    @property
    def moment(self) -> Moment:
        """The moment of the decision, as far as others can know it."""
        now, then = _writers(self.at), _writers(self.at - _LONG)

        def seen(lease: Lease) -> Sighting:
            recent = lease.lease_id in self.recent
            since = then if lease.lease_id in self.over else now
            return Sighting(at=now if recent else then, changed=recent, since=since)

        return Moment(now=now, seen=seen)


@dataclass(frozen=True)
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
    if ledger.header.policy.issues is not Issues.NONE:
        operations = [holding.spelt(operation, ledger.header.policy) for operation in operations]

    def seen(lease: Lease) -> Sighting | None:
        # Of thousands of sightings only those that were asked for can have changed the decision.
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


def _writers(wall_ms: int) -> Instant:
    return Instant(wall_ms=wall_ms, boot_ms=wall_ms, boot_id="writer")


def _lapsed(lease: Lease, policy: Policy, moment: Moment) -> bool:
    return standing(lease, policy, moment) is Standing.LAPSED


def _resolved(operation: Operation, result: Outcome | GitleaseError) -> Operation:
    # A search through many leases or tasks is written down as what it found.
    if not isinstance(result, Outcome) or not result.leases:
        return operation
    if isinstance(operation, ops.Pick):
        keys = {lease.key for lease in result.leases}
        taken = next(x for x in operation.claims if lease_key(x.resource, x.scope) in keys)
        return replace(taken, id=operation.id)
    if isinstance(operation, ops.Renew) and operation.resource is None:
        return replace(operation, grants=tuple(map(ops.grant_of, result.leases)))
    return operation


LEAST_SKEW = 10  # seconds that a push may take on its way, whatever the policy allows for clocks
GOVERNANCE = (
    ops.Revoke,
    ops.SetPolicy,
    ops.DropRecord,
    ops.MoveLedger,
    ops.EndWait,
)  # what only a ledger's admins may
KEYED = 40  # characters of an operation's id with a key
NONCES = 2_000  # records that are searched for the nonce of a new grant
NEWER = "a newer gitlease than the server's may have written it: then upgrade the server's"


class Illegal(GitleaseError):
    """The pushed step is no legal move: ``rule`` is a stable word for why."""

    code: ClassVar[str] = "denied"

    def __init__(self, rule: str, message: str, *, hints: tuple[str, ...] = ()) -> None:
        super().__init__(message, hints=hints)
        self.rule = rule


@dataclass(frozen=True)
class Pusher:
    """The pusher: the holders that they are, and how to call them. None: not known.

    A ``gateway`` is trusted to have asked who they are, and brings what others ask of it.
    """

    holders: tuple[str, ...] | None
    known: str
    gateway: bool = False

    def may_be(self, holder: str) -> bool:
        """Return whether this holder pushes; where nobody is known, whoever is named."""
        return self.holders is None or any(same_person(holder, mine) for mine in self.holders)


def judge(before: Ledger | None, record: StepRecord, *, pusher: Pusher, now_ms: int) -> Applied:
    """Return the result of a legal step; raises Illegal, with the rule, where it is none.

    ``before`` is None where the ledger is made, ``now_ms`` the wall clock of whoever judges.
    """
    _check_writer(record, pusher)
    base = _made(record) if before is None else before
    _check_clock(base, record.at, now_ms)
    _check_governance(base, record, pusher)
    _check_restores(base, record)
    _check_ceilings(record)
    applied = repeat(base, record)
    check_nonces(base, record)
    _check_takeovers(applied, record, now_ms)
    return applied


def repeat(before: Ledger | None, record: StepRecord) -> Applied:
    """Carry a step out again, by what anybody can know of it. Raises Illegal if it is no move."""
    if record.is_of_one != (record.gateway is None):
        raise Illegal(
            "identity", "a step names a gateway if it is of several people, and only then"
        )
    try:
        base = _made(record) if before is None else before
        applied = apply(base, record.operations, record.moment, together=False)
    except GitleaseError as refusal:
        raise _illegal(refusal) from None
    if not applied.changed:
        raise refused(applied) or Illegal(
            "nothing", "it changes nothing: an empty step is not a move"
        )
    return applied


def refused(applied: Applied) -> Illegal | None:
    """Why the table refuses an operation of a step; None where it refuses none."""
    return next((_illegal(x) for x in applied.results if isinstance(x, GitleaseError)), None)


def _illegal(refusal: GitleaseError) -> Illegal:
    return Illegal(refusal.code.replace("_", "-"), refusal.message)


def _made(record: StepRecord) -> Ledger:
    if record.ledger_id is None:
        raise Illegal("ledger-id", "the first step of a ledger must create it")
    actor = record.operations[0].actor
    return create(
        ops.Create(id="create", actor=actor, ledger_id=record.ledger_id, policy=DEFAULT_POLICY)
    )


def _check_writer(record: StepRecord, pusher: Pusher) -> None:
    writer = record.operations[0].actor.holder
    for holder in dict.fromkeys(operation.actor.holder for operation in record.operations):
        if not holder.strip():
            raise Illegal("identity", "it does not name its author")
        if not pusher.gateway and not same_person(holder, writer):
            raise Illegal(
                "identity", f"it is of {printable(writer)} and of {printable(holder)} in one step"
            )
        if not pusher.gateway and record.gateway is not None:
            raise Illegal("identity", f"it is brought as by a gateway, and {pusher.known} is none")
        if not pusher.gateway and not pusher.may_be(holder):
            raise Illegal(
                "identity", f"it is written as {printable(holder)}, and {pusher.known} pushes it"
            )
    # An id with a key of a request is as long as two random ones: gateways look for those.
    keyed = any(len(operation.id) == KEYED for operation in record.operations)
    if keyed and pusher.holders is not None and not pusher.gateway:
        raise Illegal(
            "operation-id",
            f"it has the id of a gateway's request, and {pusher.known} is no gateway",
            hints=(hint("on the server: {}", "server install", gateway="USER"),),
        )


def check_nonces(base: Ledger, record: StepRecord) -> None:
    """Raise Illegal where a step grants a lease under the id of one that the ledger has."""
    nonces = [x.lease_id for x in record.operations if isinstance(x, ops.Claim | ops.Complete)]
    if not nonces:
        return
    # Those that have left the ledger are not known, and nobody's lease any more.
    known = {x.lease_id for x in islice(base.every_lease(), NONCES)}
    if len(set(nonces)) < len(nonces) or not known.isdisjoint(nonces):
        raise Illegal("nonce", "a grant needs a lease id of its own, and this is another's")


def _check_restores(base: Ledger, record: StepRecord) -> None:
    # Each begins an epoch, of which there are not endlessly many.
    asked = [x for x in record.operations if isinstance(x, ops.Restore)]
    if not asked:
        return
    policy = base.header.policy
    if policy.admins and not all(policy.is_admin(x.actor.holder) for x in asked):
        raise Illegal(
            "restore",
            "only an admin of the ledger may begin an epoch",
            hints=("they are " + ", ".join(policy.admins), holding.restore_hint()),
        )
    lately = any(entry.outcome == "restored" for entry in base.header.ring)
    # One whose ref was deleted once more is restored once more.
    if len(asked) > 1 or (lately and not asked[0].waits):
        raise Illegal("restore", "an epoch was begun just now: there is one at a time")


def _check_ceilings(record: StepRecord) -> None:
    # Here and not in the table: histories have what an older gitlease allowed.
    for operation in record.operations:
        if isinstance(operation, ops.SetPolicy):
            try:
                check_ceiling(dict(operation.changes))
            except UsageError as error:
                raise Illegal("policy", error.message) from None


def _check_governance(base: Ledger, record: StepRecord, pusher: Pusher) -> None:
    # A gateway governs for others only if it is an admin itself (S2); the table checks that they
    # are too. So without admins nobody can name the first ones through a gateway.
    if not pusher.gateway or any(map(base.header.policy.is_admin, pusher.holders or ())):
        return
    for operation in record.operations:
        restores = isinstance(operation, ops.Restore) and operation.waits
        governs = restores or isinstance(operation, GOVERNANCE)
        if governs and not pusher.may_be(operation.actor.holder):
            raise Illegal(
                "gateway",
                f"{printable(operation.actor.holder)} governs through {pusher.known}, "
                "which is not an admin of the ledger",
                hints=("an admin can do it in a clone, or add the gateway to the admins",),
            )


def _check_clock(base: Ledger, at: int, now_ms: int) -> None:
    allowed = max(base.header.policy.skew, LEAST_SKEW)
    off = at - now_ms
    if abs(off) > allowed * MS:
        where = "ahead of" if off > 0 else "behind"
        raise Illegal(
            "clock",
            f"its time is {_time(at)}, {abs(off) // MS}s {where} this server's clock, "
            f"and {allowed}s are allowed",
            hints=("set the clock by NTP and try again",),
        )


def _check_takeovers(applied: Applied, record: StepRecord, now_ms: int) -> None:
    for operation, outcome in zip(record.operations, applied.results, strict=True):
        if not isinstance(outcome, Outcome) or outcome.status == "revoked":
            continue
        for lease in outcome.displaced:
            # Whatever the writer says that it saw: by this clock the holder still has it (S2).
            if not lease.same_holder(operation.actor) and now_ms < lease.expires_at:
                raise Illegal(
                    "takeover",
                    f"{lease.resource} is {printable(lease.holder)}'s until "
                    f"{_time(lease.expires_at)}, and this server's clock reads {_time(now_ms)}",
                )


def _time(ms: int) -> str:
    return rfc3339(max(ms, 0))
