"""Joins the steps of many actors: what comes while a push is under way goes into the next one.

1. Each request is decided under its own actor, in the order in which they came, on one state of
   the ledger. One that is refused leaves nothing behind, and harms no other.
2. A refusal is given on the newest state: where the others' step lands by compare-and-swap, the
   state that it was decided on was the newest one; where there is nothing to push, it is fetched.
3. Each is answered only after the remote has it. What the remote says to a step counts for all in
   it; where it refuses one of several, they are carried out one by one.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from gitlease.core.errors import GitleaseError, HeadGone, Invalid, LeaseLost, Unavailable
from gitlease.core.expiry import Moment
from gitlease.core.frozen import replace
from gitlease.core.lease import Actor
from gitlease.core.ledger import MAX_STEP
from gitlease.core.moves.operations import Operation
from gitlease.core.moves.step_record import Decided, decide
from gitlease.core.moves.transitions import Applied
from gitlease.core.outcome import Outcome
from gitlease.engine.ports import Clock, LedgerStore, Snapshot
from gitlease.engine.transaction import PATIENCE, Step, Transaction, check_in_time, with_views
from gitlease.gateway.known_keys import KnownKeys

Results = tuple[Outcome | GitleaseError, ...]
SAME = "the same request is being carried out"
MOST = 64  # requests that go into one step


class StepRequest:
    """What one request asks for: operations that go together, or each for itself.

    ``answer`` comes to the step as far as it is this request's.
    """

    def __init__(
        self,
        actor: Actor,
        operations: Sequence[Operation],
        *,
        together: bool,
        what: str,
        key: str | None = None,
    ) -> None:
        self.actor, self.operations = actor, tuple(operations)
        self.together, self.what, self.key = together, what, key
        self.answer: Future[Step] = Future()


class AppliedBefore(Invalid):
    """The ledger has the operation of this request already; ``outcome`` is what it came to."""

    def __init__(self, outcome: str) -> None:
        super().__init__(f"this request was carried out before: {outcome}")
        self.outcome = outcome


class Joiner:
    """Carries out what is asked of one layer, by one thread that starts with the first request.

    ``actor`` is the gateway's own, in whose name nothing is decided but that a ledger begins.
    """

    def __init__(
        self,
        store: LedgerStore,
        *,
        clock: Clock,
        actor: Actor,
        layer: str,
        patience: float = PATIENCE,
        on_step: Callable[[Snapshot], object] = lambda _head: None,
    ) -> None:
        self._store, self._clock, self._layer, self._on_step = store, clock, layer, on_step
        self._transaction = Transaction(
            store, clock=clock, actor=actor, layer=layer, patience=patience
        )
        self._keys = KnownKeys(store, layer)
        self._waiting: list[StepRequest] = []
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.steps = 0
        """How many steps were pushed."""

    def ask(
        self,
        actor: Actor,
        operations: Sequence[Operation],
        *,
        together: bool,
        what: str,
        key: str | None = None,
    ) -> Future[Step]:
        """Have operations carried out with the next step. Raises Unavailable once it is closed.

        With a ``key`` they are carried out once: AppliedBefore where the ledger has it.
        """
        asked = StepRequest(actor, operations, together=together, what=what, key=key)
        with self._news:
            if self._closed:
                raise Unavailable("this gateway is being stopped", hints=("try again in a moment",))
            self._waiting.append(asked)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="joiner", daemon=True)
                self._thread.start()
            self._news.notify()
        return asked.answer

    def close(self) -> None:
        """Take nothing more, and answer what was asked."""
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
            except BaseException as error:  # whoever waits must hear of it, whatever it is
                _fail(batch, error)

    def _next(self) -> list[StepRequest] | None:
        """What goes into the next step, without what was given up; None at the end."""
        with self._news:
            while not self._waiting and not self._closed:
                self._news.wait()
            if not self._waiting:
                return None
            size = many = 0
            for asked in self._waiting[:MOST]:
                size += len(asked.operations)
                if many and size > MAX_STEP:
                    break
                many += 1
            batch, self._waiting = self._waiting[:many], self._waiting[many:]
        return [asked for asked in batch if asked.answer.set_running_or_notify_cancel()]

    def _carry_out(self, batch: Sequence[StepRequest]) -> None:
        joined = _Joined(batch, self._transaction, self._clock, self._keys)
        what = batch[0].what if len(batch) == 1 else f"{batch[0].what} and {len(batch) - 1} more"

        def decided(heads: Mapping[str, Snapshot]) -> Mapping[str, Decided]:
            return {self._layer: joined.decide(heads[self._layer])}

        try:
            steps = self._transaction.carry_out_on(
                [self._layer], decided, what=what, send=self._store.swap
            )
        except Unavailable as error:  # or what became of it cannot be known
            return _fail(batch, error)
        except GitleaseError as error:
            if len(batch) == 1:
                return _fail(batch, error)
            for one in batch:  # the server has something against one of them, or it is too much
                self._carry_out([one])
            return None
        self.steps += any(step.applied.changed for step in steps.values())
        self._on_step(steps[self._layer].head)
        joined.answer(steps[self._layer])


class _Joined:
    """A batch as it is decided: what goes into the step, and what was refused."""

    def __init__(
        self,
        batch: Sequence[StepRequest],
        transaction: Transaction,
        clock: Clock,
        keys: KnownKeys,
    ) -> None:
        self._batch, self._transaction, self._clock = batch, transaction, clock
        self._keys = keys
        self._taken: list[StepRequest] = []
        self._refused: dict[StepRequest, GitleaseError | Applied] = {}

    def decide(self, head: Snapshot) -> Decided:
        """What of the batch the table allows on a head, in one step.

        The first request that cannot have all that it wants is refused for what stood there or
        came before it, and taken out; whoever came after it is decided anew without it.
        """
        ledger = self._transaction.ledger_of(head)
        moment = Moment(now=self._clock.now(), seen=head.seen)
        self._taken, self._refused = [], {}
        self._keys.learn(head)
        keys = set[str]()
        for asked in self._batch:
            if asked.key is None:
                self._taken.append(asked)
            elif (before := self._keys.outcome(asked.key)) is not None:
                self._refused[asked] = AppliedBefore(before)
            elif asked.key in keys:
                self._refused[asked] = Unavailable(SAME, hints=("ask again",))
            else:
                keys.add(asked.key)
                self._taken.append(asked)
        while self._taken:
            operations = [op for asked in self._taken for op in asked.operations]
            step = decide(ledger, operations, moment, together=False)
            results = self._by_request(step.applied)
            for result in step.applied.results:
                if isinstance(result, HeadGone):
                    raise result
            out = [asked for asked in self._taken if all(map(_is_refused, results[asked]))]
            torn = next((x for x in self._taken if x not in out and _is_torn(x, results[x])), None)
            if torn is None and not out:
                return replace(step, record=step.record.brought_by(self._transaction.actor.holder))
            # Those that came to nothing have changed nothing: all of them leave at once, unless
            # one that is torn may have been in the way of a later one.
            for asked in out if torn is None else [torn]:
                self._taken.remove(asked)
                self._refused[asked] = _refusal(asked, results[asked], head, moment, step)
        return decide(ledger, [], moment, together=False)

    def answer(self, step: Step) -> None:
        """Tell everybody what the step came to for them, once it stands in the ledger."""
        results = self._by_request(step.applied) if self._taken else {}
        for asked in self._taken:
            applied = Applied(
                step.applied.ledger,
                results[asked],
                changed=any(isinstance(x, Outcome) and x.changed for x in results[asked]),
            )
            try:
                check_in_time(applied, step.moment, self._clock.now())
            except LeaseLost as late:
                asked.answer.set_exception(late)
            else:
                asked.answer.set_result(Step(applied, step.head, step.moment))
        for asked, refused in self._refused.items():
            if isinstance(refused, Applied):
                asked.answer.set_result(Step(refused, step.head, step.moment))
            else:
                asked.answer.set_exception(refused)

    def _by_request(
        self, applied: Applied
    ) -> dict[StepRequest, tuple[Outcome | GitleaseError, ...]]:
        results, at = {}, 0
        for asked in self._taken:
            results[asked] = applied.results[at : at + len(asked.operations)]
            at += len(asked.operations)
        return results


def _is_torn(asked: StepRequest, results: Sequence[Outcome | GitleaseError]) -> bool:
    return asked.together and any(_is_refused(x) for x in results)


def _is_refused(result: Outcome | GitleaseError) -> bool:
    return isinstance(result, GitleaseError)


def _refusal(
    asked: StepRequest,
    results: Sequence[Outcome | GitleaseError],
    head: Snapshot,
    moment: Moment,
    step: Decided,
) -> GitleaseError | Applied:
    if not asked.together:
        return Applied(step.applied.ledger, tuple(results), changed=False)
    error = next(x for x in results if isinstance(x, GitleaseError))
    return with_views(error, head, asked.actor, moment)


def _fail(batch: Sequence[StepRequest], error: BaseException) -> None:
    for asked in batch:
        if not asked.answer.done():
            asked.answer.set_exception(copy.copy(error))
