"""What the sessions of a gateway share: a store with its newest head, and steps that are joined."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from gitlease.core.errors import GitleaseError, UnknownOutcome
from gitlease.core.frozen import replace
from gitlease.core.instant import Instant
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
from gitlease.gateway.joiner import Joiner
from gitlease.gateway.known_keys import keyed

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
        self._answered: dict[str, int] = {}  # by which question the head of a layer was given
        self._failed: GitleaseError | None = None

    def adopt(self, head: Snapshot) -> Snapshot:
        """Take a head that was pushed or fetched as the newest one, if it is; the newest one.

        Which it is where the ledger was replaced, or an older one accepted, the clone itself knows.
        """
        with self._lock:
            known = self._heads.get(head.layer)
            if known is not None and not _goes_on(known, head):
                head = self.inner.known(head.layer) or head
            self._heads[head.layer] = head
            return head

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

    def _ask(self, layer: str, there: str, asked: int, *, look: bool = False) -> Snapshot:
        if self._failed is not None and self._asked != asked:
            raise copy.copy(self._failed)
        self._failed = None
        try:
            head = self._looked(layer) if look else self.inner.fetch(layer, there)
            self._answered[layer] = self._asked
        except GitleaseError as error:
            self._failed = error
            raise
        finally:
            self._asked += 1
        return self.adopt(head)

    def follow(self, layer: str) -> Snapshot:
        """The newest head, by a look at the remote that brings nothing where it has not moved.

        What was said by then does not count: whoever knows of a change finds it.
        """
        asked = self._asked
        with self._asking:
            begun_since = self._answered.get(layer, 0) > asked  # that one may have begun before
            if begun_since and (head := self._young(layer)) is not None:
                return head
            return self._ask(layer, "", asked, look=True)

    def _looked(self, layer: str) -> Snapshot:
        there, known = self.inner.peek([layer]).get(layer, ""), self.newest(layer)
        if known is None or there != known.version:
            return self.inner.fetch(layer, there)
        return replace(known, received=self.clock.now())

    def _young(self, layer: str) -> Snapshot | None:
        head = self.newest(layer)
        young = head and head.received.elapsed_at_most(self.clock.now()) < YOUNG
        return head if young else None

    def confirm(self, layer: str, *, rolled_back: bool = False) -> Snapshot:
        return self.inner.confirm(layer, rolled_back=rolled_back)

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        """What the remote has, as it said within a second: all who wait ask it together."""
        return {layer: (self._young(layer) or self.follow(layer)).version for layer in layers}

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


class RequestClock:
    """The clock of a request, whose sleep raises what ``check`` does: nobody waits in vain."""

    def __init__(self, clock: Clock, check: Callable[[], None]) -> None:
        self._clock, self._check = clock, check

    def now(self) -> Instant:
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        self._check()
        self._clock.sleep(seconds)


class JoinedSteps:
    """Carries out the steps of one request through a joiner.

    ``key``: the first step that lands has it in the ledger, so that a request which is sent again
    is known, whoever has forgotten it meanwhile. A place in line does not count. ``check`` raises
    where the request may not be carried out any more.
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
            answer.cancel()  # where it has not begun, it never will
            raise UnknownOutcome(
                f"whether {what} reached the remote cannot be known: it did not answer in time",
                hints=("ask again with the same key",) if key else (),
            ) from None
        if key is None:
            return step
        if step.applied.changed:
            self._key = None
        return _under(step, {y.id: x.id for x, y in zip(operations, asked, strict=True)})


def _under(step: Step, ids: Mapping[str, str]) -> Step:
    """The step with the ids of its operations as its caller knows them."""
    results: tuple[Outcome | GitleaseError, ...] = tuple(
        replace(x, operation=ids[x.operation]) if isinstance(x, Outcome) else x
        for x in step.applied.results
    )
    applied = Applied(step.applied.ledger, results, changed=step.applied.changed)
    return Step(applied, step.head, step.moment)


def revision_of(head: Snapshot) -> int:
    """The revision of a state; 0 where there is no ledger."""
    return head.ledger.header.revision if head.ledger else 0


def _goes_on(known: Snapshot, head: Snapshot) -> bool:
    """Whether a head may be a later state of the ledger that is known."""
    if known.ledger is None or head.ledger is None:
        return known.ledger is None
    same = known.ledger.header.ledger_id == head.ledger.header.ledger_id
    return same and revision_of(head) >= revision_of(known)


class NoInbox:
    """Where no work is done in the background, nothing is left to be said."""

    def leave(self, texts: Sequence[str]) -> None:
        """Nobody would find it here."""

    def take(self) -> tuple[str, ...]:
        return ()
