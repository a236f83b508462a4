"""The head of one layer, followed: when the remote is asked, and what wakes earlier.

A look asks the remote for the version alone, and fetches only a new one. Between two looks this
clone's own state is watched, which costs no connection: news of another process of the clone wakes
at once. So does the end of a lease in another clone on this machine, if the system has a shared
folder for the user's runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.ports import Clock, Snapshot
from gitlease.kernel.rules.errors import GitleaseError, Unavailable
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.instant import LONGEST, MS, Instant

BETWEEN = 1.0  # seconds, at least, between two questions that another clone's word causes
GLANCE = 0.25  # seconds between two looks at this clone's own state
SHORTEST = 0.01


class HeadWatcher:
    """Watches one layer. ``head`` is the newest state that was seen."""

    def __init__(self, session: LedgerSession) -> None:
        self._store, self._layer, self._clock = session.store, session.layer, session.clock
        self.head: Snapshot | None = None
        self._mark = self._nearby = ""
        self._asked: Instant | None = None  # because another clone said so

    def refresh(self) -> Snapshot | None:
        """This clone's copy, without a connection."""
        self._mark = self._store.mark(self._layer)
        self._nearby = self._store.nearby(self._layer)
        known = self._store.known(self._layer)
        # A copy that was lost is no news of the ledger; a first look at none is.
        if known is not None or (self.head is not None and self.head.version):
            self.head = known
        return self.head

    def look(self, *, brings: bool = False) -> Snapshot:
        """The state of the remote now: one connection, and another if it has moved.

        ``brings``: one connection in either case, which costs more where nothing has moved.
        """
        if brings or self.refresh() is None:
            return self.fetch()
        # Most looks find nothing new, and a listing of refs is the cheapest question.
        version = self._store.peek([self._layer]).get(self._layer, "")
        if self.head is not None and self.head.version == version:
            return self.head
        return self.fetch()

    def fetch(self) -> Snapshot:
        """The state of the remote now, fetched in any case."""
        self.head = head = self._store.fetch(self._layer)
        return self.refresh() or head

    def nap(self, seconds: float) -> bool:
        """Let time pass; returns True early if this clone learns of another head.

        Asks the remote if another clone on this machine gives a hint of one.
        """
        began = self._clock.now()
        while (left := seconds - began.elapsed_at_most(now := self._clock.now()) / 1_000) > 0:
            self._clock.sleep(max(SHORTEST, min(GLANCE, left)))
            # Many ends in a row must not cause as many questions.
            may_ask = self._asked is None or self._asked.elapsed_at_most(now) >= BETWEEN * 1_000
            hinted = may_ask and self._store.nearby(self._layer) != self._nearby
            if hinted or self._store.mark(self._layer) != self._mark:
                before, head = self.head, None
                if hinted:
                    self._asked = now
                    with contextlib.suppress(Unavailable):  # the next look in turn says so
                        head = self.look()
                head = head or self.refresh()
                if head is not None and head.version != (before.version if before else None):
                    return True
        return False


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How often the remote is asked, in seconds.

    The pause after a look is ``soonest`` or, if that is more, ``share`` times what the look took,
    but at most ``longest``. It becomes ``slower`` times as long with each look that fails, and once
    ``lively`` seconds have passed with each look that finds nothing.
    """

    soonest: float
    longest: float
    slower: float
    share: float = 0.0
    lively: float = float(LONGEST)

    def after(self, took: float) -> float:
        """The pause after a look that took so long."""
        return min(max(self.soonest, self.share * took), self.longest)


Found = TypeVar("Found")


class Polling:
    """Looks at a ledger again and again, at a pace, until its time is over.

    ``nap`` lets so many seconds pass, or fewer, and returns True if more is known without a look;
    it raises InterruptedError to end. ``jitter`` is the part of each pause that is kept. A look
    that raises one of ``patient_with`` does not end it: ``on_trouble`` gets the first such error,
    and ``trouble`` is the last one until a look succeeds.
    """

    def __init__(
        self,
        clock: Clock,
        pace: Pace,
        nap: Callable[[float], bool],
        *,
        jitter: Callable[[], float] = lambda: 1.0,
        patient_with: type[GitleaseError] = Unavailable,
        on_trouble: Callable[[GitleaseError], None] = lambda _error: None,
    ) -> None:
        self._clock, self._pace, self._nap, self._jitter = clock, pace, nap, jitter
        self._patient_with, self._on_trouble = patient_with, on_trouble
        self.trouble: GitleaseError | None = None

    def run(
        self,
        look: Callable[[bool], Sequence[Found]],
        *,
        at_once: bool = False,
        seconds: float = LONGEST,
    ) -> Iterator[Found]:
        """What each look finds, for at most ``seconds``; ``at_once``: the first comes before a nap.

        ``look`` is called with True if the remote is to be asked; False: what is known here is new.
        """
        began, pause, woken = self._clock.now(), self._pace.soonest, False
        while (left := seconds - self._seconds_since(began)) > 0:
            if not at_once:
                woken = self._nap(min(left, pause * self._jitter()))
                if not woken and self._seconds_since(began) >= seconds:
                    return
            at_once, looked = False, self._clock.now()
            try:
                found = look(not woken)
            except self._patient_with as error:
                before, self.trouble = self.trouble, error
                # Once, however long the trouble lasts.
                if before is None:
                    self._on_trouble(error)
                pause = min(pause * self._pace.slower, self._pace.longest)
                continue
            self.trouble = None
            if found or self._seconds_since(began) <= self._pace.lively:
                pause = self._pace.after(self._seconds_since(looked))
            elif not woken:
                pause = min(pause * self._pace.slower, self._pace.longest)
            yield from found

    def _seconds_since(self, then: Instant) -> float:
        return then.elapsed_at_most(self._clock.now()) / MS
