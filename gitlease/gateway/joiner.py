"""Joins the steps of many actors: requests that arrive during a push go into the next one.

1. Each request is decided under its own actor, in order of arrival, on one state of the ledger.
   A refused one leaves nothing behind, and affects no other.
2. A refusal is based on the newest state: if the others' step lands by compare-and-swap, the state
   it was decided on was the newest; if there is nothing to push, the state is fetched.
3. Each is answered only after the remote has its step. The remote's answer holds for all requests
   of a step; if it refuses a step of several, they are carried out one by one.
4. Where the next step waits already, the answers wait until its push has begun: the threads that
   they wake share one interpreter with the step, and would hold it up.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate

from gitlease.kernel.ledger.ports import Clock, LedgerStore, Snapshot
from gitlease.kernel.ledger.transaction import (
    Step,
    Transaction,
    check_in_time,
    fresh_id,
    with_views,
)
from gitlease.kernel.rules.errors import GitleaseError, HeadGone, Invalid, LeaseLost, Unavailable
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import Actor, Moment, same_person
from gitlease.kernel.rules.ledger import MARKS, MAX_STEP, RingEntry
from gitlease.kernel.rules.moves.operations import Acknowledge, Event, Operation, Outcome
from gitlease.kernel.rules.moves.transitions import Applied, Decided, decide

# --- idempotency keys -------------------------------------------------------------------------
# The id of a keyed operation is the request's key and a random part. By the key any gateway finds
# in the ledger what it, or another, has done before; the random part keeps attempts apart. A key
# counts only where history shows what was done under it, in the name of the request's own holder:
# whoever else may push can guess a key, and write its id, but change nothing as that holder. A
# renewal that history no longer shows is simply made again.

EVENTS = 4_000  # of history, read at first
KEPT = 20_000  # keys
KEY = 20  # characters of an id that are its key; a random id has as many
CLAIMED = frozenset({"claimed", "taken_over"})
# Of several in one request, the first is what it came to.
OUTCOMES = (
    *("released", "completed", "revoked", "taken_over", "claimed"),
    *("run_out", "unassigned", "extended", "renewed", "noted"),
)


def keyed(operations: Sequence[Operation], key: str) -> list[Operation]:
    """The operations with ids that begin with a key, except acknowledgements."""
    marks = [next((mark for mark in MARKS if x.id.endswith(mark)), "") for x in operations]
    return [
        x if isinstance(x, Acknowledge) else replace(x, id=key + fresh_id(mark))
        for x, mark in zip(operations, marks, strict=True)
    ]


def events_under(key: str, holder: str, store: LedgerStore, layer: str) -> list[Event]:
    """The effects of a holder's request with this key, newest first, by the history."""
    past = store.history(layer, EVENTS)
    return [x for x in past if x.operation[:KEY] == key and same_person(x.by, holder)]


class KnownKeys:
    """A ledger's recent keyed requests, and their outcomes."""

    def __init__(self, store: LedgerStore, layer: str) -> None:
        self._store, self._layer = store, layer
        self._ledger, self._last = "", RingEntry("", 0, "")
        self._seen: OrderedDict[str, None] = OrderedDict()

    def outcome(self, key: str, holder: str) -> str | None:
        """The outcome of a holder's request with this key, None if there was none."""
        if key not in self._seen:
            return None
        kinds = {event.kind for event in events_under(key, holder, self._store, self._layer)}
        return next((kind for kind in OUTCOMES if kind in kinds), None)

    def learn(self, head: Snapshot) -> None:
        """Learn the keys up to a head; those of a replaced ledger are forgotten."""
        if head.ledger is None or not head.ledger.header.ring:
            return
        header = head.ledger.header
        ring, last = header.ring, self._last
        if header.ledger_id == self._ledger and ring[-1] == last:
            return
        if header.ledger_id != self._ledger or last not in ring:
            self._seen.clear()
            for event in reversed(self._store.history(self._layer, EVENTS)):
                self._keep(event.operation, event.kind)
            last = RingEntry("", 0, "")
        for entry in ring:
            if entry.revision > last.revision:
                self._keep(entry.operation, entry.outcome)
        self._ledger, self._last = header.ledger_id, ring[-1]

    def _keep(self, operation: str, outcome: str) -> None:
        if len(operation) == 2 * KEY and outcome in OUTCOMES:
            self._seen.setdefault(operation[:KEY])
            while len(self._seen) > KEPT:
                self._seen.popitem(last=False)


# --- steps of many ----------------------------------------------------------------------------

Results = tuple[Outcome | GitleaseError, ...]
SAME = "the same request is being carried out"
MOST = 64  # requests in one step


@dataclass(eq=False)
class StepRequest:
    """One request's operations, all or none (``together``) or each for itself; and their step."""

    actor: Actor
    operations: tuple[Operation, ...]
    together: bool
    what: str
    key: str | None
    answer: Future[Step] = field(default_factory=Future)


class AppliedBefore(Invalid):
    """The ledger has this request's operation already, with this ``outcome``."""

    def __init__(self, outcome: str) -> None:
        super().__init__(f"this request was carried out before: {outcome}")
        self.outcome = outcome


class Joiner:
    """Carries out the requests for one layer, in one thread that starts with the first.

    ``actor`` is the gateway itself, which only ever creates a ledger. ``steps`` counts pushed ones.
    """

    def __init__(
        self,
        store: LedgerStore,
        *,
        clock: Clock,
        actor: Actor,
        layer: str,
        on_step: Callable[[Step], object] = lambda _step: None,
    ) -> None:
        self._store, self._clock, self._layer, self._on_step = store, clock, layer, on_step
        self._transaction = Transaction(store, clock=clock, actor=actor, layer=layer, brings=True)
        self._keys = KnownKeys(store, layer)
        self._waiting: list[StepRequest] = []
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._unanswered: list[tuple[_Batch, Step]] = []  # of steps that have landed
        self.steps = 0

    def ask(
        self,
        actor: Actor,
        operations: Sequence[Operation],
        *,
        together: bool,
        what: str,
        key: str | None = None,
    ) -> Future[Step]:
        """Carry operations out with the next step. Raises Unavailable once closed.

        With a ``key`` they are carried out once: AppliedBefore if the ledger has it already.
        """
        request = StepRequest(actor, tuple(operations), together, what, key)
        with self._news:
            if self._closed:
                raise Unavailable("this gateway is being stopped", hints=("try again in a moment",))
            self._waiting.append(request)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="joiner", daemon=True)
                self._thread.start()
            self._news.notify()
        return request.answer

    def close(self) -> None:
        """Take no more requests, and answer the pending ones."""
        with self._news:
            self._closed = True
            self._news.notify()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            try:
                if batch:
                    self._carry_out(batch)
            except BaseException as error:
                # Whatever it is, the callers must get it: they would wait for good.
                _fail(batch, error)

    def _next(self) -> list[StepRequest] | None:
        if not self._waiting:
            self._answer()
        with self._news:
            while not self._waiting and not self._closed:
                self._news.wait()
            if not self._waiting:
                return None
            sizes = accumulate(len(x.operations) for x in self._waiting[:MOST])
            # One that is too large by itself is tried alone, and gets the refusal.
            fitting = max(1, sum(size <= MAX_STEP for size in sizes))
            batch, self._waiting = self._waiting[:fitting], self._waiting[fitting:]
        # Whoever gave up waiting was told that nothing is known: nothing is begun for them.
        return [x for x in batch if x.answer.set_running_or_notify_cancel()]

    def _carry_out(self, batch: Sequence[StepRequest]) -> None:
        joined = _Batch(batch, self._transaction, self._clock, self._keys)
        what = batch[0].what if len(batch) == 1 else f"{batch[0].what} and {len(batch) - 1} more"

        def decided(heads: Mapping[str, Snapshot]) -> Mapping[str, Decided]:
            return {self._layer: joined.decide(heads[self._layer])}

        try:
            # The last step is answered when the next push has begun: the threads that an answer
            # wakes would hold up a step that waits.
            send = partial(self._store.swap, on_start=self._answer)
            steps = self._transaction.carry_out_on([self._layer], decided, what=what, send=send)
        except GitleaseError as error:
            # UnknownOutcome is an Unavailable: then none of them may be tried again.
            if len(batch) == 1 or isinstance(error, Unavailable):
                return _fail(batch, error)
            # The server refuses one of them, or the step is too large.
            for request in batch:
                self._carry_out([request])
            return None
        self.steps += any(step.applied.changed for step in steps.values())
        self._on_step(steps[self._layer])
        self._unanswered.append((joined, steps[self._layer]))

    def _answer(self) -> None:
        landed, self._unanswered = self._unanswered, []
        for joined, step in landed:
            joined.answer(step)


class _Batch:
    """The requests of one step, accepted or refused."""

    def __init__(
        self, batch: Sequence[StepRequest], transaction: Transaction, clock: Clock, keys: KnownKeys
    ) -> None:
        self._batch, self._transaction, self._clock, self._keys = batch, transaction, clock, keys
        self._accepted: list[StepRequest] = []
        self._refused: dict[StepRequest, GitleaseError | Applied] = {}

    def decide(self, head: Snapshot) -> Decided:
        """Decide the batch on a head, as one step."""
        # The first request that cannot be carried out whole is refused and removed; the ones after
        # it are decided again without it.
        ledger = self._transaction.ledger_of(head)
        moment = Moment(now=self._clock.now(), seen=head.seen)
        self._accepted, self._refused = [], {}
        self._keys.learn(head)
        keys = set[str]()
        for request in self._batch:
            if request.key is None:
                self._accepted.append(request)
            elif (before := self._keys.outcome(request.key, request.actor.holder)) is not None:
                self._refused[request] = AppliedBefore(before)
            # A client that repeats a request at once must not have it done twice in one step.
            elif request.key in keys:
                self._refused[request] = Unavailable(SAME, hints=("ask again",))
            else:
                keys.add(request.key)
                self._accepted.append(request)
        while self._accepted:
            operations = [op for request in self._accepted for op in request.operations]
            step = decide(ledger, operations, moment, together=False)
            results = self._by_request(step.applied)
            for result in step.applied.results:
                # The whole step was decided on a state that is no longer there.
                if isinstance(result, HeadGone):
                    raise result
            refused = {x: [isinstance(y, GitleaseError) for y in results[x]] for x in results}
            out = [x for x in self._accepted if all(refused[x])]
            torn_ones = (x for x in self._accepted if x.together and any(refused[x]))
            torn = next((x for x in torn_ones if x not in out), None)
            if torn is None and not out:
                return replace(step, record=step.record.brought_by(self._transaction.actor.holder))
            # Requests refused whole have changed nothing, so all of them leave at once, unless a
            # torn one may have got in the way of a later one.
            for request in out if torn is None else [torn]:
                self._accepted.remove(request)
                some = results[request]
                if request.together:
                    error = next(x for x in some if isinstance(x, GitleaseError))
                    self._refused[request] = with_views(error, head, request.actor, moment)
                else:
                    self._refused[request] = Applied(step.applied.ledger, some, changed=False)
        return decide(ledger, [], moment, together=False)

    def answer(self, step: Step) -> None:
        """Answer each request, once the step is in the ledger."""
        results = self._by_request(step.applied) if self._accepted else {}
        for request in self._accepted:
            applied = Applied(
                step.applied.ledger,
                results[request],
                changed=any(isinstance(x, Outcome) and x.changed for x in results[request]),
            )
            try:
                # A grant whose time went by during the push is lost, though it landed.
                check_in_time(applied, step.moment, self._clock.now())
            except LeaseLost as late:
                request.answer.set_exception(late)
            else:
                request.answer.set_result(Step(applied, step.head, step.moment))
        for request, refused in self._refused.items():
            if isinstance(refused, Applied):
                request.answer.set_result(Step(refused, step.head, step.moment))
            else:
                request.answer.set_exception(refused)

    def _by_request(self, applied: Applied) -> dict[StepRequest, Results]:
        results, at = {}, 0
        for request in self._accepted:
            results[request] = applied.results[at : at + len(request.operations)]
            at += len(request.operations)
        return results


def _fail(batch: Sequence[StepRequest], error: BaseException) -> None:
    for request in batch:
        if not request.answer.done():
            request.answer.set_exception(copy.copy(error))
