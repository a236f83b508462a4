"""Read, decide, swap, and decide again: the only retry loop of gitlease.

1. Decide on the last known head (one connection a change). Fetch first at the first contact, and
   if others have probably changed the ledger since, so that the push would be lost.
2. A refusal is never given from old knowledge: the ledger is fetched once, and decided again.
3. What became of a swap is read, not believed. Lost: decide again on the new head. Undecided: the
   very same change is pushed again; when giving up, a barrier sees to it that it never lands.
4. A change confirmed after its lease's own time is lost: nobody may act on it.
5. What other processes of this clone ask for goes along, in the same step: renewals that will soon
   be due, and the claims of who waits for its turn. That only saves pushes: whoever asked finds it
   done in the ledger, or does it itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TypeVar

from gitlease.kernel.ledger.ports import (
    Asking,
    Cause,
    Change,
    Clock,
    LedgerStore,
    Prepared,
    Snapshot,
    Swapped,
    doing,
    note_sent,
)
from gitlease.kernel.rules.errors import (
    Denied,
    GitleaseError,
    HeadGone,
    Invalid,
    LeaseLost,
    Loss,
    Unavailable,
    UnknownOutcome,
    UsageError,
    hint,
)
from gitlease.kernel.rules.frozen import JSON, Damaged, dataclass, replace
from gitlease.kernel.rules.instant import MS, Instant
from gitlease.kernel.rules.lease import DEFAULT_POLICY, Actor, Moment, State, same_person
from gitlease.kernel.rules.ledger import MAX_STEP, WORD, Fate, Ledger
from gitlease.kernel.rules.loss import Hold, still_held
from gitlease.kernel.rules.moves.holding import UNBOUND
from gitlease.kernel.rules.moves.operations import (
    Barrier,
    Claim,
    Complete,
    Create,
    EndSession,
    Grant,
    LeaveTicket,
    Operation,
    Outcome,
    PutBack,
    Release,
    Renew,
    Restore,
    Retire,
    Revoke,
    RunOut,
    Unbind,
)
from gitlease.kernel.rules.moves.transitions import Applied, Decided, create, decide
from gitlease.kernel.rules.pace import reads_first

# Seconds for which a contended or undecided change is tried again. Where pushes are slow, all
# limits here are longer: see ``RemotePace.slowness``.
PATIENCE = 60.0
FIRST_PAUSE = 0.02  # before what was refused is sent again the same
LONGEST_PAUSE = 2.0
SHORTEST_TRY = 0.005
LONGEST_TURN = 5.0  # seconds to wait for others of this clone
OF_PATIENCE = 1 / 12  # of the patience with the remote, where that is less
LONGEST_PASS = 10.0
PASSING = 4  # tries of others for which a new one waits at most
HALVED = 8  # tries after which it waits half as long
SAME_AGAIN = 2  # times an undecided change is pushed again
BUSY_AGAIN = 30  # times it is, while others hold the lock of the ref
LOCKED_AGAIN = 5  # times, while something else is locked: seldom by a change of the ledger
DUE = 1 / 3  # of a lease's time, after which its heartbeat renews it
ALONG = DUE / 2  # and after which others do along the way
MOST_ALONG = 64  # grants
OTHERS_WAIT = 2.0  # what a delay of a step counts if others may be waiting for it
ENDING = Release, Complete, EndSession, RunOut, Unbind, Revoke, Retire, LeaveTicket
LONGEST_WISH = 10.0  # seconds for which others make a claim: no lease granted so lapses before

T = TypeVar("T")


def fresh_id(mark: str = "") -> str:
    """A random id, so that two are never alike: 80 bits, or 60 and one of ``MARKS``."""
    # The system's randomness: forks and containers of one image must not share a sequence.
    return f"{random.SystemRandom().getrandbits(80):020x}"[len(mark) :] + mark


def noting_id(actor: Actor) -> str:
    """The id of an operation that notes something: a person's word ends a ``Setback``."""
    return fresh_id("" if actor.session else WORD)


@dataclass(frozen=True)
class Step:
    """A step that was carried out: what it came to, on which head, at which instant."""

    applied: Applied
    head: Snapshot
    moment: Moment


@dataclass(frozen=True)
class Wish:
    """Claims that whoever has the turn may make, all or none, and since when that is asked."""

    claims: tuple[Claim, ...]
    since: Instant


class _Done(Exception):
    """Another process of this clone has done it, in the step that it is raised with."""


CarryOut = Callable[..., Step]  # what carries out a batch as ``Transaction.carry_out`` does


class Transaction:
    """Carries operations out on a store: on one layer, or on several in one swap."""

    def __init__(
        self,
        store: LedgerStore,
        *,
        clock: Clock,
        actor: Actor,
        layer: str,
        patience: float = PATIENCE,
        dice: random.Random | None = None,
        settles: bool = True,
        brings: bool = False,
    ) -> None:
        """``settles``: what became of a change that was left open is of use to a later command.
        ``brings``: it is a gateway, which puts back the leases of all that it brought.
        """
        self._store, self._clock, self.actor = store, clock, actor
        self._layer, self._patience, self._settles = layer, patience, settles
        self._dice, self._brings = dice or random.SystemRandom(), brings
        self._slowness = 1.0  # of the remote, as it is known at the beginning of a change

    def carry_out(
        self, operations: Sequence[Operation], *, together: bool = True, what: str = "this change"
    ) -> Step:
        """Apply a batch to the shared ledger, or raise the refusal that the fresh ledger gives."""
        along: Sequence[Operation] = ()
        others: Sequence[Operation] = ()
        alone, waiting = False, _Waiting(self._store, self._clock, self._layer, operations, what)

        def decide(heads: Mapping[str, Snapshot]) -> Mapping[str, Decided]:
            nonlocal along, others
            head = heads[self._layer]
            waiting.check(head)
            # First, since the operations may end the very same leases.
            along = () if alone else self._along(head, operations)
            batch = (*along, *operations)
            step = self.decided(head, batch, together=together)
            # Others may push the same operations: only this one tells whose step came through.
            mark, others = Barrier(id=fresh_id(), actor=self.actor), ()
            if not alone and grants(step.applied):
                others = self._claims_along(head, batch, mark)
            if others or waiting.along is not None:
                step = self.decided(head, (*batch, *others, mark), together=together)
            return {self._layer: step}

        weight = OTHERS_WAIT if any(isinstance(x, ENDING) for x in operations) else 1.0

        def change() -> Step:
            steps = self.carry_out_on(
                [self._layer], decide, what=what, on_wait=waiting.ask, weight=weight
            )
            return steps[self._layer]

        try:
            with waiting:
                try:
                    step = change()
                except Denied:
                    if not along and not others:
                        raise
                    alone = True  # it may be for what went along
                    step = change()
        except _Done as done:
            step, along = done.args[0], ()  # what an earlier try took along is no part of it
        results = step.applied.results[len(along) :][: len(operations)]
        if len(results) < len(step.applied.results):
            changed = any(isinstance(x, Outcome) and x.changed for x in results)
            step = replace(step, applied=replace(step.applied, results=results, changed=changed))
        if step.applied.changed:
            check_in_time(step.applied, step.moment, self._clock.now())
        return step

    def _claims_along(
        self, head: Snapshot, batch: Sequence[Operation], mark: Operation
    ) -> Sequence[Claim]:
        """The claims of those who wait for this turn, as far as they are granted after a batch."""
        # Whoever is refused here is left out: it decides for itself when its turn comes.
        others: list[Claim] = []
        for wish in _asked(head, Wish):
            claims = wish.claims
            # A step of several people is a gateway's alone.
            if not all(same_person(x.actor.holder, self.actor.holder) for x in claims):
                continue
            # Whoever waited longer may have been stopped: its lease would have lapsed by now.
            if not claims or wish.since.elapsed_at_most(self._clock.now()) > LONGEST_WISH * MS:
                continue
            with suppress(GitleaseError):
                step = self.decided(head, (*batch, *others, *claims, mark), together=False)
                results = step.applied.results[len(batch) + len(others) : -1]
                granted = [_granted(step.applied.ledger, claim) for claim in claims]
                # All or none, and as its own step would have it.
                plain = [isinstance(x, Outcome) and replace(x, events=()) for x in results]
                if None not in granted and granted == plain:
                    others += claims
        return others

    def _along(self, head: Snapshot, operations: Sequence[Operation]) -> Sequence[Operation]:
        """The renewal of what other processes ask for, and would soon have to renew themselves.

        Raises _Done if the operation is such a renewal, and was made since it was asked for.
        """
        # Each asks anew for every renewal: no lease outlives its heartbeat by more than one.
        ledger, holder = head.ledger, self.actor.holder
        if ledger is None or not (asked := [*_asked(head, tuple[Hold, ...])]):
            return ()
        moment, due, done = Moment(now=self._clock.now(), seen=head.seen), list[Grant](), {}
        own = [x for op in operations for x in getattr(op, "grants", ())]
        named = {getattr(op, "resource", None) for op in operations}
        for hold in (hold for holds in asked for hold in holds):
            try:
                lease = still_held(ledger, hold.grant, holder, moment)
            except HeadGone:
                raise
            except GitleaseError:  # another's, or lost: its own heartbeat finds that out
                continue
            seen, duration = head.seen(lease), lease.duration_ms
            since = hold.since if seen is None else seen.since or seen.at
            elapsed = since.elapsed_at_most(moment.now)
            # What was written in this clone counts as seen from its decision.
            if since.wall_ms != lease.renewed_at:
                continue
            if lease.renewed_at != hold.since.wall_ms:
                if elapsed < DUE * duration:
                    done[hold.grant] = lease, since
            elif elapsed >= ALONG * duration and hold.grant.resource not in named:
                due.append(hold.grant)
        first, *others = operations
        if isinstance(first, Renew) and not others and own and done.keys() >= {*own}:
            leases, instants = zip(*(done[grant] for grant in own), strict=True)
            outcome = Outcome(operation=first.id, status="renewed", leases=leases)
            at = replace(moment, now=min(instants, key=lambda x: x.wall_ms))
            raise _Done(Step(Applied(ledger, (outcome,), changed=True), head, at))
        due = [x for x in due if x not in own][:MOST_ALONG]
        if not due or len(operations) >= MAX_STEP:
            return ()
        # As the person: the grants are of several sessions.
        actor = replace(self.actor, session=None, session_explicit=False)
        return [Renew(id=fresh_id(), actor=actor, grants=tuple(due))]

    def decided(
        self, head: Snapshot, operations: Sequence[Operation], *, together: bool = True
    ) -> Decided:
        """Decide a batch on a head, now; raises the refusal that it gives."""
        moment = Moment(now=self._clock.now(), seen=head.seen)
        try:
            step = decide(self.ledger_of(head), operations, moment, together=together)
        except GitleaseError as refusal:
            raise with_views(refusal, head, self.actor, moment) from None
        for result in step.applied.results:
            if isinstance(result, HeadGone):  # no refusal: the ledger never said so
                raise result
        return step

    def rehearse(self, operations: Sequence[Operation], *, together: bool = True) -> Step:
        """Decide a batch on the newest state and write nothing; raises the refusal it gives."""
        # A rehearsal is a promise of what would happen now: it is not made from old knowledge.
        head = self._store.fetch(self._layer)
        step = self.decided(head, operations, together=together)
        # Whether the remote would take the change, only a push can tell.
        self._store.admit(head, grants=grants(step.applied))
        return Step(step.applied, head, step.moment)

    def carry_out_on(
        self,
        layers: Sequence[str],
        decide: Callable[[Mapping[str, Snapshot]], Mapping[str, Decided]],
        *,
        what: str,
        send: Callable[[Prepared], Swapped] | None = None,
        on_wait: Callable[[], None] = lambda: None,
        weight: float = 1.0,
    ) -> Mapping[str, Step]:
        """Change several ledgers in one swap, as ``decide`` says on each new state of them.

        ``on_wait`` is called while another process of this clone has the turn. ``send`` does the
        swap where something else goes along with it: then it counts as done whenever it lands,
        since whoever comes late is refused by the ledger itself. ``weight`` is that of
        ``reads_first``.
        """
        began = self._clock.now()
        paces = [head.pace for head in map(self._store.known, layers) if head is not None]
        self._slowness = max([1.0, *(pace.slowness for pace in paces)])
        with ExitStack() as turn:
            # What goes along may be much, and take long: nobody is kept waiting for that.
            longest = min(LONGEST_TURN * self._slowness, self._limit * OF_PATIENCE)
            wait = longest if send is None else 0.0

            def take() -> None:
                if wait:
                    turn.enter_context(self._store.turn(layers, wait, on_wait))

            def pause(tries: int, at: Instant) -> bool:
                """Let others pass, those of this clone too."""
                turn.close()
                waited = self._pause(tries, began, at, what)
                take()
                return waited

            take()
            # Known only now: whoever had the turn before may have read or changed it.
            # To send again what goes along costs more than a ledger's change.
            known = self._known_heads(layers, weight if send is None else OTHERS_WAIT)
            return self._carried_out(layers, decide, what, send, began, pause, *known)

    def _carried_out(
        self,
        layers: Sequence[str],
        decide: Callable[[Mapping[str, Snapshot]], Mapping[str, Decided]],
        what: str,
        send: Callable[[Prepared], Swapped] | None,
        began: Instant,
        pause: Callable[[int, Instant], bool],
        heads: dict[str, Snapshot],
        fresh: set[str],
    ) -> Mapping[str, Step]:
        tries, at = 0, self._clock.now()  # when this try began
        while True:
            if any(head.former is not None for head in heads.values()):
                heads = self._put_back(heads, began, what)
            unread = [layer for layer in layers if layer not in fresh]
            stale = unread
            changed: dict[str, Decided] = {}
            try:
                steps = decide(heads)
                stale = [layer for layer in stale if not _is_plain(steps[layer].applied)]
                changed = {layer: step for layer, step in steps.items() if step.applied.changed}
                swapped = None
                if changed and not stale:
                    stale = unread  # where it is not admitted, it is by what is there now
                    self._admit(heads, changed)
                    stale = []
                    swapped = self._swap(self._changes(heads, changed, what), began, what, send)
            # What is wrong with the words of a call, no newer state mends.
            except UsageError:
                raise
            except HeadGone:
                tries += 1
                pause(tries, at)
                stale = list(layers)
            # A refusal is never given from old knowledge.
            except GitleaseError:
                if not stale:
                    raise
            if stale:
                at = self._clock.now()
                heads |= {layer: self._store.fetch(layer) for layer in stale}
                fresh.update(stale)
                continue
            if swapped is not None:
                heads |= swapped.heads
                fresh.update(swapped.heads)
                if swapped.fate is not Fate.APPLIED:
                    tries += 1
                    waited = pause(tries, at)
                    at = self._clock.now()
                    if waited:  # others will have come first
                        heads = {layer: self._store.fetch(layer) for layer in layers}
                    continue
            return {x: Step(step.applied, heads[x], step.moment) for x, step in steps.items()}

    def _known_heads(
        self, layers: Sequence[str], weight: float
    ) -> tuple[dict[str, Snapshot], set[str]]:
        """The heads to decide on first, and the layers that had to be fetched for that."""
        heads, fresh, now = dict[str, Snapshot](), set[str](), self._clock.now()
        for layer in layers:
            # No fetch on the happy path: the swap itself shows whether it is old.
            known = self._store.known(layer)
            if known is None or self._reads_first(known, now, weight):
                known = self._store.fetch(layer, before_push=True)
                fresh.add(layer)
            heads[layer] = known
        return heads, fresh

    def _reads_first(self, known: Snapshot, now: Instant, weight: float) -> bool:
        age = known.received.elapsed_at_least(now) / MS
        return reads_first(known.pace, age, weight)

    def _admit(self, heads: Mapping[str, Snapshot], steps: Mapping[str, Decided]) -> None:
        """Raise why one of these steps may not be written on its head."""
        for layer, step in steps.items():
            if not all(isinstance(x, Barrier | Restore) for x in step.record.operations):
                self._store.admit(heads[layer], grants=grants(step.applied))

    def _put_back(
        self, heads: Mapping[str, Snapshot], began: Instant, what: str
    ) -> dict[str, Snapshot]:
        """Put back what restored ledgers lack of this clone's own leases; the heads after that."""
        after = dict(heads)
        for layer, head in heads.items():
            if (former := head.former) is None:
                continue
            from gitlease.kernel.ledger.restoring import owed

            now = Moment(now=self._clock.now())
            for actor, leases in owed(head, self.actor, now, brings=self._brings):
                back = PutBack(id=fresh_id(), actor=actor, leases=leases)
                try:
                    step = self.decided(after[layer], [back])
                except HeadGone:
                    raise
                except GitleaseError:
                    continue  # the operation itself finds that they are lost, and says why
                swapped = self._swap(
                    self._changes({layer: after[layer]}, {layer: step}, what), began, what, None
                )
                after |= swapped.heads
                if swapped.fate is not Fate.APPLIED:
                    return after  # once more on what is there now
            former.settle()
            after[layer] = replace(after[layer], former=None)
        return after

    def ledger_of(self, head: Snapshot) -> Ledger:
        """The ledger of a head; where there is none yet, an empty one that the swap will make."""
        if head.ledger is not None:
            return head.ledger
        made = Create(id=fresh_id(), actor=self.actor, ledger_id=fresh_id(), policy=DEFAULT_POLICY)
        return create(made)

    def _changes(
        self, heads: Mapping[str, Snapshot], steps: Mapping[str, Decided], what: str
    ) -> Prepared:
        return self._store.prepare(
            [Change(base=heads[layer], decided=step, what=what) for layer, step in steps.items()]
        )

    def _swap(
        self,
        prepared: Prepared,
        began: Instant,
        what: str,
        send: Callable[[Prepared], Swapped] | None,
    ) -> Swapped:
        """Swap until it is applied or lost; raises when neither can be had."""
        again, in_doubt = 0, False
        refusals = 1 if send is None else 0  # what goes along may be much to send again
        while True:
            swapped = (send or self._store.swap)(prepared)
            if swapped.fate in (Fate.APPLIED, Fate.LOST):
                return swapped
            # Nothing went out that could still land, so this is no unknown outcome.
            if not swapped.sent and swapped.cause is not Cause.MOVED:
                raise _failure(swapped, what)
            if swapped.fate is Fate.UNKNOWN:
                raise self._unknown(prepared, swapped, what)
            if swapped.cause is Cause.WORK and not in_doubt:
                self._store.forget_pending(prepared)  # it shares the fate of what was refused
                raise _failure(swapped, what)
            if swapped.cause is Cause.REFUSED and prepared.replacing:
                # Same operations on the same base: of the two forms, at most one can land.
                prepared = self._store.prepare([*prepared.changes.values()], append=True)
                continue
            # A try without an answer may land whatever the server says to the next one.
            in_doubt = in_doubt or swapped.cause is Cause.UNREACHABLE
            again += 1
            is_other = bool(swapped.locked) or swapped.unnamed
            limits = {
                Cause.REFUSED: refusals,
                Cause.TROUBLE: refusals + 1,
                Cause.BUSY: min(LOCKED_AGAIN, BUSY_AGAIN) if is_other else BUSY_AGAIN,
            }
            limit = limits.get(swapped.cause, SAME_AGAIN)
            if again > limit or self._late(began):
                return self._give_up(prepared, swapped, what, in_doubt=in_doubt)
            # Full jitter below a doubling ceiling: whoever lost last must not lose always.
            ceiling = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(again, 10))
            self._clock.sleep(self._dice.uniform(0.0, ceiling))

    def _give_up(
        self, prepared: Prepared, swapped: Swapped, what: str, *, in_doubt: bool
    ) -> Swapped:
        """An undecided change: refused for good, or fenced off by a barrier, or unknown."""
        if not swapped.sent:
            raise Unavailable(
                "the remote compares pushes with another ledger than it shows to readers",
                hints=("it may hide the ref from fetches, or answer from a stale replica",),
            )
        if swapped.cause is Cause.REFUSED and not in_doubt:
            self._store.forget_pending(prepared)  # so it said of every try
            raise _failure(swapped, what)
        # A lock that somebody removes, or a host that recovers, may let the last try through yet.
        if swapped.cause in (Cause.BUSY, Cause.TROUBLE) and not in_doubt:
            self._leave_open(prepared)
            raise _failure(swapped, what)
        layer, change = next(iter(prepared.changes.items()))  # all of them move together, or none
        if swapped.heads[layer].ledger is None and _follows_a_deleted_ledger(change):
            # A barrier would make a new ledger here, which grants at once (S2).
            raise self._unknown(prepared, swapped, what)
        step = self.decided(swapped.heads[layer], [Barrier(id=fresh_id(), actor=self.actor)])
        barrier = self._changes(swapped.heads, {layer: step}, "a barrier")
        fenced = self._store.swap(barrier)
        self._store.forget_pending(barrier)  # whether it lands later is nobody's concern
        after = fenced.heads.get(layer)
        if after is None or after.ledger is None or fenced.fate in (Fate.UNKNOWN, Fate.UNDECIDED):
            raise self._unknown(prepared, swapped, what)
        base = change.base.ledger.header.revision if change.base.ledger else 0
        fate = after.ledger.header.fate(change.operations, base)
        if fate in (Fate.APPLIED, Fate.LOST):
            self._store.forget_pending(prepared)
        if fate is Fate.APPLIED:
            return Swapped(fate=Fate.APPLIED, heads={**swapped.heads, **fenced.heads})
        if fate is Fate.LOST:
            raise Unavailable(
                f"the remote did not take {what}, and it can no longer land: {swapped.detail}"
            )
        raise self._unknown(prepared, swapped, what)

    def _leave_open(self, prepared: Prepared) -> None:
        if self._settles:
            self._store.keep_pending(prepared)
        else:
            self._store.forget_pending(prepared)

    def _unknown(self, prepared: Prepared, swapped: Swapped, what: str) -> UnknownOutcome:
        self._leave_open(prepared)
        return UnknownOutcome(
            f"whether {what} reached the remote cannot be known: {swapped.detail}",
            hints=(
                *swapped.hints,
                "do not act on it; the next command that reaches the remote reports the outcome",
            ),
        )

    def _pause(self, tries: int, began: Instant, at: Instant, what: str) -> bool:
        """Let others pass for a while (see ``pause_after``), and say whether it did."""
        if self._late(began):
            raise Unavailable(
                f"{what} was overtaken {tries} times in {self._limit:.0f}s: "
                "the ledger changes too fast",
                hints=("try again in a moment",),
            )
        with doing(f"{what}: others were faster {tries} times, trying again"):
            now = self._clock.now()
            lasted, age = at.elapsed_at_most(now) / MS, began.elapsed_at_most(now) / MS
            pause = pause_after(tries, lasted, age, self._dice)
            if pause:
                self._clock.sleep(pause)
        return pause > 0

    def _late(self, began: Instant) -> bool:
        return began.elapsed_at_most(self._clock.now()) > self._limit * MS

    @property
    def _limit(self) -> float:
        return self._patience * self._slowness


class _Waiting:
    """Claims that wait for their turn, and that whoever has it is asked to make along the way."""

    def __init__(
        self,
        store: LedgerStore,
        clock: Clock,
        layer: str,
        operations: Sequence[Operation],
        what: str,
    ) -> None:
        self._store, self._clock, self._layer, self._what = store, clock, layer, what
        self._claims = [x for x in operations if isinstance(x, Claim)]
        # Half a step at most, so that whoever has the turn can take them along.
        self._may = len(self._claims) == len(operations) <= MAX_STEP // 2
        self._since: Instant | None = None
        self.along: Asking | None = None
        """Where it was asked that another process carry them out."""

    def ask(self) -> None:
        """Ask for them, once."""
        if self._since is not None or not self._may:
            return
        self._since, head = self._clock.now(), self._store.known(self._layer)
        if head is not None and head.along is not None:
            note_sent(self._what)
            self.along = head.along
            wish = Wish(claims=tuple(self._claims), since=self._since)
            self.along.ask(self._claims[0].id, JSON.dump(wish))

    def check(self, head: Snapshot) -> None:
        """Raise _Done once they are made; LeaseLost if what was granted has ended since."""
        if self._since is None or self.along is None or head.ledger is None:
            return
        outcomes = [_granted(head.ledger, x) for x in self._claims]
        if not any(outcomes) and not any(head.ledger.header.entry(x.id) for x in self._claims):
            return
        for claim, outcome in zip(self._claims, outcomes, strict=True):
            if outcome is None:
                name, told = claim.resource.text, "was granted, and has ended since"
                raise LeaseLost(f"{name} {told}", resource=name, loss=Loss.RELEASED_ELSEWHERE)
        # Counted from when it was asked for, which is never too late (S3).
        applied = Applied(head.ledger, tuple(filter(None, outcomes)), changed=True)
        raise _Done(Step(applied, head, Moment(now=self._since, seen=head.seen)))

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, _: object
    ) -> None:
        if self.along is None:
            return
        # Nobody may make them any more from here on.
        self.along.ask(self._claims[0].id, None)
        if isinstance(why, GitleaseError) and (head := self._store.known(self._layer)):
            self.check(head)  # whoever had the turn may have made them since
        # Another process may have pushed them before this one failed (S6).
        if isinstance(why, Unavailable) and not isinstance(why, UnknownOutcome):
            raise UnknownOutcome(
                f"whether {self._what} reached the remote cannot be known: {why.message}",
                hints=(hint("do not act on it unless it is shown: {}", "list"),),
            ) from None
        if kind is not None and not issubclass(kind, Exception):  # whoever cleans up must see it
            with self._store.turn([self._layer], LONGEST_TURN, lambda: None):
                pass


def _asked(head: Snapshot, kind: type[T]) -> Iterator[T]:
    """The requests of other processes of this clone, as far as they are of this kind."""
    for value in head.along.asked() if head.along is not None else ():
        with suppress(Damaged):
            yield JSON.load(kind, value)


def _granted(ledger: Ledger, claim: Claim) -> Outcome | None:
    """The outcome of a claim by the ledger that has it; None where that is not all of it."""
    entry, lease = ledger.header.entry(claim.id), ledger.lease(claim.resource, claim.scope)
    if lease is None or lease.state is not State.ACTIVE:
        return None
    if claim.id != lease.operation and claim.lease_id != lease.lease_id:
        return None
    # It stands, whoever of its holder renewed it since, and whatever the ring has forgotten.
    status = entry.outcome if entry is not None else "claimed"
    return Outcome(operation=claim.id, status=status, leases=(lease,))


def _follows_a_deleted_ledger(change: Change) -> bool:
    """Return whether a change restores a ledger, or makes another in the place of one."""
    waits = any(isinstance(x, Restore) for x in change.decided.record.operations)
    return waits or change.base.ledger is not None


def check_in_time(applied: Applied, moment: Moment, now: Instant) -> None:
    """Raise LeaseLost if a lease of this step had expired by ``now``, when it was confirmed."""
    elapsed = moment.now.elapsed_at_most(now)
    for outcome in applied.outcomes:
        if outcome.status == UNBOUND:  # who gives it back believes in nothing any more
            continue
        for lease in outcome.leases:
            over = lease.expires_at <= moment.now.wall_ms  # as decided: it promises nothing
            if lease.state is State.ACTIVE and not over and elapsed >= lease.duration_ms:
                name = lease.resource.text
                told = f"{name} was confirmed only after it had expired"
                raise LeaseLost(told, resource=name, scope=lease.scope, conflicts=(lease,))


def pause_after(tries: int, lasted: float, age: float, dice: random.Random) -> float:
    """For how many seconds to let others pass after so many tries were overtaken.

    ``lasted`` is the time that the last of them took, and ``age`` that since the first one began.
    0 for at once, on what was just read; after a pause it is to be read anew.
    """
    if tries <= 1:
        return 0.0
    lasted = max(SHORTEST_TRY, lasted)
    # Older attempts pause less, which prevents starvation.
    pause = dice.uniform(0.0, lasted * PASSING * HALVED / (HALVED + age / lasted))
    return 0.0 if pause < lasted / 2 else min(LONGEST_PASS, pause)


def with_views(
    refusal: GitleaseError, head: Snapshot, actor: Actor, moment: Moment
) -> GitleaseError:
    """The refusal with the leases in its way as the caller sees them."""
    return refusal.with_(views=head.views(refusal.conflicts, actor, moment))


def grants(applied: Applied) -> bool:
    """Return whether a step gives anybody a lease that they did not have."""
    return any(
        after is not None
        and after.state is State.ACTIVE
        and (before is None or before.lease_id != after.lease_id)
        for before, after in applied.ledger.changes.leases.values()
    )


def _is_plain(applied: Applied) -> bool:
    """Return whether old knowledge is enough: something to write, and nothing refused."""
    refused = any(outcome.refused for outcome in applied.outcomes)
    return applied.changed and not refused and len(applied.outcomes) == len(applied.results)


def _failure(swapped: Swapped, what: str) -> GitleaseError:
    if swapped.cause in (Cause.REFUSED, Cause.WORK):
        return Denied(f"the remote refused {what}: {swapped.detail}", hints=swapped.hints)
    if swapped.cause is Cause.BUSY and "lock" in swapped.detail:
        what = swapped.locked or ("a ref" if swapped.unnamed else "the ledger's ref")
        return Unavailable(
            f"{what} is locked on the remote: {swapped.detail}",
            hints=("a push that was killed on the server may have left its .lock file there",),
        )
    if swapped.cause is Cause.BUSY:
        return Unavailable(
            f"the remote says that another change came first, but shows none: {swapped.detail}",
            hints=("it may answer from a stale replica: try again later",),
        )
    if swapped.cause is Cause.TROUBLE:
        return Unavailable(
            f"the remote failed to take {what}: {swapped.detail}",
            hints=(*swapped.hints, "the trouble is the host's: try again later"),
        )
    if swapped.cause is Cause.UNREACHABLE:
        return Unavailable(f"the remote cannot be reached: {swapped.detail}", hints=swapped.hints)
    return Invalid(f"the remote did not take {what}: {swapped.detail}")
