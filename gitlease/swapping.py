"""Read, decide, swap, and decide again: the only retry loop of gitlease.

1. Decide on the last known head; only the first contact fetches (one connection a change).
2. A refusal is never given from old knowledge: the ledger is fetched once, and decided again.
3. What became of a swap is read, not believed. Lost: decide again on the new head. Undecided: the
   very same change is pushed again; when giving up, a barrier sees to it that it never lands.
4. A change confirmed after its lease's own time is lost: nobody may act on it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from gitlease.domain.errors import (
    Denied,
    GitleaseError,
    Invalid,
    LeaseLost,
    Unavailable,
    UnknownOutcome,
    UsageError,
)
from gitlease.domain.frozen import dataclass
from gitlease.domain.instant import Instant
from gitlease.domain.lapse import Moment
from gitlease.domain.lease import Actor, State
from gitlease.domain.ledger import Fate, Ledger
from gitlease.domain.operations import Barrier, Create, Operation
from gitlease.domain.policy import DEFAULT_POLICY
from gitlease.domain.transitions import Applied, apply, create
from gitlease.domain.view import view_lease
from gitlease.ports import Cause, Change, Clock, LedgerStore, Prepared, Snapshot, Swapped

PATIENCE = 60.0  # seconds for which a contended or undecided change is tried again
FIRST_PAUSE = 0.02
LONGEST_PAUSE = 2.0
SAME_AGAIN = 2  # times an undecided change is pushed again
BUSY_AGAIN = 30  # times it is, while others hold the lock of the ref


def fresh_id() -> str:
    """A random id: 80 bits, so that two are never alike."""
    return f"{random.SystemRandom().getrandbits(80):020x}"


@dataclass(frozen=True, slots=True)
class Step:
    """A step that was carried out: what it came to, on which head, at which instant."""

    applied: Applied
    head: Snapshot
    moment: Moment


class Swapper:
    """Carries operations out on one layer of a store."""

    def __init__(
        self,
        store: LedgerStore,
        *,
        clock: Clock,
        actor: Actor,
        layer: str,
        patience: float = PATIENCE,
        dice: random.Random | None = None,
    ) -> None:
        self._store, self._clock, self._actor = store, clock, actor
        self._layer, self._patience = layer, patience
        self._dice = dice or random.SystemRandom()

    def carry_out(
        self, operations: Sequence[Operation], *, together: bool = True, what: str = "this change"
    ) -> Step:
        """Apply a batch to the shared ledger, or raise the refusal that the fresh ledger gives."""
        began, tries = self._clock.now(), 0
        head = self._store.known(self._layer)
        fresh = head is None
        if head is None:
            head = self._store.fetch(self._layer)
        while True:
            moment = Moment(now=self._clock.now(), seen=head.seen)
            try:
                applied = apply(self.ledger_of(head), operations, moment, together=together)
                settled = fresh or _is_plain(applied)
            except UsageError:
                raise
            except GitleaseError as refusal:
                if fresh:
                    raise with_views(refusal, head, self._actor, moment) from None
                settled = False
            if not settled:
                head, fresh = self._store.fetch(self._layer), True
                continue
            if not applied.changed:
                return Step(applied, head, moment)
            swapped = self._swap(self._change(head, applied, operations, moment, what), began, what)
            head, fresh = swapped.heads[self._layer], True
            if swapped.fate is Fate.APPLIED:
                self._check_in_time(applied, moment)
                return Step(applied, head, moment)
            tries += 1
            self._pause(tries, began, what)

    def ledger_of(self, head: Snapshot) -> Ledger:
        """The ledger of a head; where there is none yet, an empty one that the swap will make."""
        if head.ledger is not None:
            return head.ledger
        made = Create(id=fresh_id(), actor=self._actor, ledger_id=fresh_id(), policy=DEFAULT_POLICY)
        return create(made)

    def _change(
        self,
        head: Snapshot,
        applied: Applied,
        operations: Sequence[Operation],
        moment: Moment,
        what: str,
    ) -> Prepared:
        change = Change(
            base=head,
            ledger=applied.ledger,
            events=applied.events,
            renewal=applied.only_renews,
            actor=self._actor,
            at=moment.now,
            operations=tuple(op.id for op in operations),
            what=what,
        )
        return self._store.prepare([change])

    def _swap(self, prepared: Prepared, began: Instant, what: str) -> Swapped:
        """Swap until it is applied or lost; raises when neither can be had."""
        again, in_doubt = 0, False
        while True:
            swapped = self._store.swap(prepared)
            if swapped.fate in (Fate.APPLIED, Fate.LOST):
                return swapped
            if not swapped.sent and swapped.cause is not Cause.MOVED:
                raise _failure(swapped, what)
            if swapped.fate is Fate.UNKNOWN:
                raise self._unknown(prepared, swapped, what)
            if swapped.cause is Cause.REFUSED and prepared.replacing:
                # Same operations on the same base: of the two forms, at most one can land.
                prepared = self._store.append_only(prepared)
                continue
            # A try without an answer may land whatever the server says to the next one.
            in_doubt = in_doubt or swapped.cause is Cause.UNREACHABLE
            again += 1
            limit = {Cause.REFUSED: 1, Cause.BUSY: BUSY_AGAIN}.get(swapped.cause, SAME_AGAIN)
            if again > limit or self._late(began):
                return self._give_up(prepared, swapped, what, in_doubt=in_doubt)
            self._clock.sleep(self._jitter(again))

    def _give_up(
        self, prepared: Prepared, swapped: Swapped, what: str, *, in_doubt: bool
    ) -> Swapped:
        """An undecided change: refused for good, or fenced off by a barrier, or unknown."""
        if not swapped.sent:
            raise Unavailable(
                "the remote takes its ledger for another one than it shows to readers",
                hints=("it may hide the ref from fetches, or answer from a stale replica",),
            )
        if swapped.cause in (Cause.REFUSED, Cause.BUSY) and not in_doubt:
            self._store.keep_pending(prepared)
            raise _failure(swapped, what)
        head = swapped.heads[self._layer]
        change = prepared.changes[self._layer]
        now = self._clock.now()
        fence = Barrier(id=fresh_id(), actor=self._actor)
        applied = apply(self.ledger_of(head), [fence], Moment(now=now, seen=head.seen))
        barrier = self._change(head, applied, [fence], Moment(now=now), "a barrier")
        fenced = self._store.swap(barrier)
        self._store.forget_pending(barrier)  # whether it lands later is nobody's concern
        after = fenced.heads.get(self._layer)
        if after is None or after.ledger is None or fenced.fate in (Fate.UNKNOWN, Fate.UNDECIDED):
            raise self._unknown(prepared, swapped, what)
        base = change.base.ledger.header.revision if change.base.ledger else 0
        fate = after.ledger.header.fate(change.operations, base)
        if fate in (Fate.APPLIED, Fate.LOST):
            self._store.forget_pending(prepared)
        if fate is Fate.APPLIED:
            return Swapped(fate=Fate.APPLIED, heads=fenced.heads)
        if fate is Fate.LOST:
            raise Unavailable(
                f"the remote did not take {what}, and it can no longer land: {swapped.detail}"
            )
        raise self._unknown(prepared, swapped, what)

    def _unknown(self, prepared: Prepared, swapped: Swapped, what: str) -> UnknownOutcome:
        self._store.keep_pending(prepared)
        return UnknownOutcome(
            f"whether {what} reached the remote cannot be known: {swapped.detail}",
            hints=("do not act on it; the next command that reaches the remote tells",),
        )

    def _check_in_time(self, applied: Applied, moment: Moment) -> None:
        """A holder may believe from the instant that its lease counts from, and no longer."""
        elapsed = moment.now.elapsed_at_most(self._clock.now())
        for outcome in applied.outcomes:
            for lease in outcome.leases:
                if lease.state is State.ACTIVE and elapsed >= lease.duration_ms:
                    raise LeaseLost(
                        f"{lease.resource} was confirmed only after its time had run out",
                        resource=lease.resource.text,
                        scope=lease.scope,
                        conflicts=(lease,),
                    )

    def _pause(self, tries: int, began: Instant, what: str) -> None:
        if self._late(began):
            raise Unavailable(
                f"{what} was overtaken {tries} times in {self._patience:.0f}s: "
                "the ledger changes too fast",
                hints=("try again in a moment",),
            )
        self._clock.sleep(self._jitter(tries))

    def _jitter(self, tries: int) -> float:
        """Full jitter below a doubling ceiling: whoever lost last must not lose always."""
        ceiling = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries, 10))
        return self._dice.uniform(0.0, ceiling)

    def _late(self, began: Instant) -> bool:
        return began.elapsed_at_most(self._clock.now()) > self._patience * 1_000


def with_views(
    refusal: GitleaseError, head: Snapshot, actor: Actor, moment: Moment
) -> GitleaseError:
    """The refusal with the leases in its way as the caller sees them."""
    policy = head.ledger.header.policy if head.ledger else DEFAULT_POLICY
    refusal.views = tuple(
        view_lease(x, layer=head.layer, actor=actor, policy=policy, moment=moment)
        for x in refusal.conflicts
    )
    return refusal


def _is_plain(applied: Applied) -> bool:
    """Whether old knowledge is enough: something to write, and nothing refused."""
    refused = any(outcome.refused for outcome in applied.outcomes)
    return applied.changed and not refused and len(applied.outcomes) == len(applied.results)


def _failure(swapped: Swapped, what: str) -> GitleaseError:
    if swapped.cause is Cause.REFUSED:
        return Denied(f"the remote refused {what}: {swapped.detail}")
    if swapped.cause is Cause.BUSY:
        return Unavailable(
            f"the ledger's ref is locked on the remote: {swapped.detail}",
            hints=("a push that was killed on the server may have left its .lock file there",),
        )
    if swapped.cause is Cause.UNREACHABLE:
        return Unavailable(f"the remote cannot be reached: {swapped.detail}")
    return Invalid(f"the remote did not take {what}: {swapped.detail}")
