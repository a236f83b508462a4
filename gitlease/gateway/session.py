"""The sessions of a gateway: a shared store with its newest head, and joined steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from threading import Lock

from gitlease.core.errors import GitleaseError, UnknownOutcome
from gitlease.core.frozen import replace
from gitlease.core.instant import Instant
from gitlease.core.lease import Actor
from gitlease.core.moves.operations import LeaveTicket, Operation, Outcome, TakeTicket
from gitlease.core.moves.transitions import Applied
from gitlease.engine.ports import (
    Clock,
    LedgerStore,
    Pending,
    Prepared,
    Snapshot,
    Swapped,
)
from gitlease.engine.transaction import Step
from gitlease.gateway.joiner import Joiner
from gitlease.gateway.known_keys import keyed

YOUNG = 1_000  # milliseconds for which an answer of the remote counts as current
ANSWER = 90.0  # seconds to wait for a step: more than it may take


@dataclass
class Looks:
    """The looks at the remote that requests share, one at a time."""

    turn: Lock = field(default_factory=Lock)
    begun: int = 0
    of_layer: dict[str, int] = field(default_factory=dict)  # the number of its last good look
    failures: int = 0
    failure: GitleaseError | None = None  # of the last look


class SharedStore:
    """A ledger's store, shared by the sessions of a gateway; the newest head is kept in memory.

    A fetch is a look at the remote that began after the call, or in ``since_now()`` after that
    one: nobody is told "you hold it" from what the remote had before it was asked. Whoever comes
    during a look shares the next one. Nothing is ever pending here: the joiner, which uses the
    inner store, settles its own steps.
    """

    def __init__(self, store: LedgerStore, clock: Clock) -> None:
        self.inner, self.clock = store, clock
        self._lock = Lock()  # for the heads in memory; never held during a look
        self._heads: dict[str, Snapshot] = {}
        self._looks = Looks()
        self._since: int | None = None  # looks with a higher number will do
        self.confirm, self.prepare, self.append_only = (
            store.confirm,
            store.prepare,
            store.append_only,
        )
        self.settle, self.keep_pending = store.settle, store.keep_pending
        self.forget_pending, self.history = store.forget_pending, store.history
        self.deepen, self.steps, self.shown = store.deepen, store.steps, store.shown
        self.accept, self.doubt, self.admit = store.accept, store.doubt, store.admit
        self.read_elsewhere = store.read_elsewhere

    def since_now(self) -> SharedStore:
        """The same store for one request, whose reads within a second share one look."""
        other = copy.copy(self)
        other._since = self._looks.begun
        return other

    def adopt(self, head: Snapshot) -> Snapshot:
        """Keep a pushed or fetched head if it is newer; return the newest.

        If the ledger was replaced or rolled back, the clone's own record decides.
        """
        with self._lock:
            known = self._heads.get(head.layer)
            if known is not None and not _continues(known, head):
                head = self.inner.known(head.layer) or head
            self._heads[head.layer] = head
            return head

    def newest(self, layer: str) -> Snapshot | None:
        """The newest head in memory."""
        return self._heads.get(layer)

    @property
    def place(self) -> str:
        return self.inner.place

    @property
    def moved(self) -> bool:
        return self.inner.moved

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.inner.warnings

    def known(self, layer: str) -> Snapshot | None:
        if layer not in self._heads and (head := self.inner.known(layer)) is not None:
            self.adopt(head)
        return self.newest(layer)

    def fetch(self, layer: str, there: str = "") -> Snapshot:
        looks = self._looks
        since = looks.begun if self._since is None else self._since
        failures = looks.failures
        with looks.turn:
            if looks.of_layer.get(layer, 0) > since and (head := self._young(layer)) is not None:
                return head
            if looks.failure is not None and looks.failures != failures:
                raise copy.copy(looks.failure)
            looks.begun += 1
            try:
                head = self._look(layer)
            except GitleaseError as error:
                looks.failure, looks.failures = error, looks.failures + 1
                raise
            looks.failure, looks.of_layer[layer] = None, looks.begun
            return self.adopt(head)

    def _look(self, layer: str) -> Snapshot:
        if (known := self.newest(layer)) is None:
            return self.inner.fetch(layer)
        began, there = self.clock.now(), self.inner.peek([layer]).get(layer, "")
        if there != known.version:
            return self.inner.fetch(layer, there)
        return replace(known, received=began)

    def _young(self, layer: str) -> Snapshot | None:
        head = self.newest(layer)
        young = head and head.received.elapsed_at_most(self.clock.now()) < YOUNG
        return head if young else None

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        """The remote's heads, at most a second old: all waiting requests share one question."""
        return {layer: (self._young(layer) or self.fetch(layer)).version for layer in layers}

    def turn(self, layers: Sequence[str], seconds: float) -> AbstractContextManager[object]:
        return nullcontext()

    def mark(self, layer: str) -> str:
        head = self.newest(layer)
        return head.version if head else ""

    def nearby(self, layer: str) -> str:
        return ""

    def swap(self, prepared: Prepared) -> Swapped:
        swapped = self.inner.swap(prepared)
        for head in swapped.heads.values():
            self.adopt(head)
        return swapped

    def pending(self, layer: str) -> Iterable[Pending]:
        return ()


class RequestClock:
    """A request's clock, whose ``sleep`` raises once the request may not go on."""

    def __init__(self, clock: Clock, check: Callable[[], None]) -> None:
        self._clock, self._check = clock, check

    def now(self) -> Instant:
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        self._check()
        self._clock.sleep(seconds)


class JoinedSteps:
    """Carries out the steps of one request through a joiner.

    The first step that lands carries the ``key`` into the ledger, so that a repeated request is
    recognised; a place in the wait queue does not. ``check`` raises once the request may not go on.
    """

    def __init__(
        self,
        joiner: Joiner,
        actor: Actor,
        key: str | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._joiner, self._actor, self._key, self._check = joiner, actor, key, check

    def __call__(self, operations: Sequence[Operation], *, together: bool, what: str) -> Step:
        key = None
        if not isinstance(operations[0], TakeTicket | LeaveTicket):
            self._check()
            key = self._key
        asked = operations if key is None else keyed(operations, key)
        answer = self._joiner.ask(self._actor, asked, together=together, what=what, key=key)
        try:
            step = answer.result(ANSWER)
        except TimeoutError:
            answer.cancel()  # so that it never begins
            raise UnknownOutcome(
                f"whether {what} reached the remote is unknown: it did not answer in time",
                hints=("repeat the request with the same key",) if key else (),
            ) from None
        if key is None:
            return step
        if step.applied.changed:
            self._key = None
        return _with_ids(step, {y.id: x.id for x, y in zip(operations, asked, strict=True)})


def _with_ids(step: Step, ids: Mapping[str, str]) -> Step:
    results: tuple[Outcome | GitleaseError, ...] = tuple(
        replace(x, operation=ids[x.operation]) if isinstance(x, Outcome) else x
        for x in step.applied.results
    )
    applied = Applied(step.applied.ledger, results, changed=step.applied.changed)
    return Step(applied, step.head, step.moment)


def revision_of(head: Snapshot) -> int:
    """The revision of a head, 0 without a ledger."""
    return head.ledger.header.revision if head.ledger else 0


def _continues(known: Snapshot, head: Snapshot) -> bool:
    """Whether a head may be a later state of the known ledger."""
    if known.ledger is None or head.ledger is None:
        return known.ledger is None
    same = known.ledger.header.ledger_id == head.ledger.header.ledger_id
    return same and revision_of(head) >= revision_of(known)


class NoInbox:
    """An inbox that keeps nothing: a gateway does no work in the background."""

    def leave(self, texts: Sequence[str]) -> None:
        return None

    def take(self) -> tuple[str, ...]:
        return ()
