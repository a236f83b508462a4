"""What the sessions of a gateway share: a store with its newest head, and steps that are joined."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from gitlease.core.errors import GitleaseError, UnknownOutcome
from gitlease.core.frozen import replace
from gitlease.core.lease import Actor
from gitlease.core.ledger import Fate
from gitlease.core.moves.operations import LeaveTicket, Operation, TakeTicket
from gitlease.core.moves.transitions import Applied
from gitlease.core.outcome import Event, Outcome
from gitlease.engine.ports import (
    Change,
    Clock,
    LedgerStep,
    LedgerStore,
    Pending,
    Prepared,
    Snapshot,
    Swapped,
)
from gitlease.engine.transaction import Step
from gitlease.gateway.joining import Joiner

YOUNG = 1_000  # milliseconds for which what the remote said counts as what it says
ANSWER = 90.0  # seconds for which an answer is waited for: more than a step may take


class SharedStore:
    """A ledger's store as the sessions of a gateway share it: the newest head is kept in memory.

    What is asked of the remote within a second is asked once. Nothing is pending here: what became
    of a step is known to the joiner, whose store this wraps.
    """

    def __init__(self, store: LedgerStore, clock: Clock) -> None:
        self.inner, self.clock = store, clock
        self._lock = threading.Lock()  # of the heads in memory: nobody waits for a remote in it
        self._asking = threading.Lock()
        self._heads: dict[str, Snapshot] = {}
        self._asked = 0
        self._failed: GitleaseError | None = None

    def adopt(self, head: Snapshot) -> None:
        """Take a head that was pushed or fetched as the newest one, if it is."""
        with self._lock:
            known = self._heads.get(head.layer)
            if known is None or revision_of(head) >= revision_of(known):
                self._heads[head.layer] = head

    def newest(self, layer: str) -> Snapshot | None:
        """The newest head in memory, without a look at what the clone knows."""
        return self._heads.get(layer)

    @property
    def place(self) -> str:
        return self.inner.place

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.inner.warnings

    def known(self, layer: str) -> Snapshot | None:
        if layer not in self._heads and (head := self.inner.known(layer)) is not None:
            self.adopt(head)
        return self.newest(layer)

    def fetch(self, layer: str, there: str = "") -> Snapshot:
        if (head := self._young(layer)) is not None:
            return head
        asked = self._asked
        with self._asking:  # whoever waited for another's question has its answer
            return self._young(layer) or self._ask(layer, there, asked)

    def _ask(self, layer: str, there: str, asked: int) -> Snapshot:
        if self._failed is not None and self._asked != asked:
            raise copy.copy(self._failed)
        try:
            head, self._failed = self.inner.fetch(layer, there), None
        except GitleaseError as error:
            self._failed = error
            raise
        finally:
            self._asked += 1
        self.adopt(head)
        return head

    def follow(self, layer: str) -> Snapshot:
        """The newest head, by a look at the remote that brings nothing where it has not moved."""
        there, known = self.inner.peek([layer]).get(layer, ""), self.newest(layer)
        if known is not None and there == known.version:
            return known
        asked = self._asked
        with self._asking:
            return self._ask(layer, there, asked)

    def _young(self, layer: str) -> Snapshot | None:
        head = self.newest(layer)
        young = head and head.received.elapsed_at_most(self.clock.now()) < YOUNG
        return head if young else None

    def confirm(self, layer: str, *, rolled_back: bool = False) -> Snapshot:
        return self.inner.confirm(layer, rolled_back=rolled_back)

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        return self.inner.peek(layers)

    def turn(self, layers: Sequence[str], seconds: float) -> AbstractContextManager[object]:
        return nullcontext()

    def mark(self, layer: str) -> str:
        head = self.newest(layer)
        return head.version if head else ""

    def nearby(self, layer: str) -> str:
        return ""

    def prepare(self, changes: Sequence[Change]) -> Prepared:
        return self.inner.prepare(changes)

    def append_only(self, prepared: Prepared) -> Prepared:
        return self.inner.append_only(prepared)

    def swap(self, prepared: Prepared) -> Swapped:
        swapped = self.inner.swap(prepared)
        for head in swapped.heads.values():
            self.adopt(head)
        return swapped

    def pending(self, layer: str) -> Iterable[Pending]:
        return ()

    def settle(self, pending: Pending, head: Snapshot) -> Fate:
        return self.inner.settle(pending, head)

    def keep_pending(self, prepared: Prepared) -> None:
        self.inner.keep_pending(prepared)

    def forget_pending(self, prepared: Prepared) -> None:
        self.inner.forget_pending(prepared)

    def history(self, layer: str, limit: int, *, older: bool = False) -> tuple[Event, ...]:
        return self.inner.history(layer, limit, older=older)

    def deepen(self, layer: str) -> bool:
        return self.inner.deepen(layer)

    def steps(self, before: Snapshot, after: Snapshot, limit: int) -> Sequence[LedgerStep]:
        return self.inner.steps(before, after, limit)

    def shown(self, layer: str, notices: Iterable[str]) -> frozenset[str]:
        return self.inner.shown(layer, notices)


class JoinedSteps:
    """Carries out the steps of one request through a joiner.

    ``key``: the first operation that lands has this id in the ledger, so that a request which is
    sent again is known, whoever has forgotten it meanwhile. A place in line does not count.
    """

    def __init__(self, joiner: Joiner, actor: Actor, key: str | None = None) -> None:
        self._joiner, self._actor, self._key = joiner, actor, key

    def __call__(self, operations: Sequence[Operation], *, together: bool, what: str) -> Step:
        asked = list(operations)
        key = None if isinstance(asked[0], TakeTicket | LeaveTicket) else self._key
        if key is not None:
            asked[0] = replace(asked[0], id=key)
        answer = self._joiner.ask(self._actor, asked, together=together, what=what)
        try:
            step = answer.result(ANSWER)
        except TimeoutError:
            raise UnknownOutcome(
                f"whether {what} reached the remote cannot be known: it did not answer in time",
                hints=("ask again with the same key",),
            ) from None
        if key is None:
            return step
        if step.applied.changed:
            self._key = None
        return _under(step, key, operations[0].id)


def _under(step: Step, key: str, own: str) -> Step:
    """The step with the id of its first operation as its caller knows it."""
    results: tuple[Outcome | GitleaseError, ...] = tuple(
        replace(x, operation=own) if isinstance(x, Outcome) and x.operation == key else x
        for x in step.applied.results
    )
    applied = Applied(step.applied.ledger, results, changed=step.applied.changed)
    return Step(applied, step.head, step.moment)


def revision_of(head: Snapshot) -> int:
    """The revision of a state; 0 where there is no ledger."""
    return head.ledger.header.revision if head.ledger else 0


class NoInbox:
    """Where no work is done in the background, nothing is left to be said."""

    def leave(self, texts: Sequence[str]) -> None:
        """Nobody would find it here."""

    def take(self) -> tuple[str, ...]:
        return ()
