"""Follows a ledger for listeners: every event once, in order, with a number of its own.

An event is numbered ``<revision>-<n>``: the revision of its step, and its place there. A listener
that was away resumes after the last number it has seen, as far as history reaches. The lapse of a
lease is no operation: it is reported when it happens, without a number.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator

from gitlease.gateway.gateway import SharedStore, revision_of
from gitlease.kernel.ledger.heads import Pace, Polling
from gitlease.kernel.ledger.ports import LedgerStep, Snapshot
from gitlease.kernel.ledger.watch import LedgerAt
from gitlease.kernel.rules.errors import GitleaseError, Unavailable
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.lease import Lease, Moment
from gitlease.kernel.rules.moves.operations import Event

# While there are listeners. A remote that is near is asked more often.
PACE = Pace(soonest=0.5, longest=2.0, slower=4.0, share=10.0)
KEPT = 5_000  # events kept for returning listeners
STEPS = 2_000  # reported one by one, between two looks and from history
LAPSED, GAP = "lapsed", "gap"


@dataclass(frozen=True)
class FollowedEvent:
    """An event and its number; a lapse has its lease, and no number.

    One with neither is a gap: history no longer has some events.
    """

    number: tuple[int, int] | None
    event: Event | None
    lapsed: Lease | None = None
    at: int = 0


Listener = Callable[[FollowedEvent], None]


class Follower:
    """Reports the events of one layer to its listeners, while there are any."""

    def __init__(self, store: SharedStore, layer: str) -> None:
        self._store, self._layer, self._clock = store, layer, store.clock
        self._lock = threading.RLock()
        self._listeners: dict[int, Listener] = {}
        self._count = 0
        self._recent: deque[FollowedEvent] = deque(maxlen=KEPT)
        self._head: Snapshot | None = None
        self._reading = threading.Lock()
        # The version that history was read of, its events, and its first revision.
        self._past: tuple[str, list[FollowedEvent], int] = "", [], 0
        self._lapsed: set[str] = set()
        self._stop, self._wake = False, store.pushed  # what was pushed here is reported at once
        self._thread: threading.Thread | None = None
        self._polling = Polling(self._clock, PACE, self._nap, patient_with=GitleaseError)

    @property
    def trouble(self) -> GitleaseError | None:
        """The error of the last look at the remote, if it failed."""
        return self._polling.trouble

    def listen(
        self, listener: Listener, after: tuple[int, int] | None = None
    ) -> Callable[[], None]:
        """Report all events from now on to a listener; the returned function ends that.

        ``after`` is the number of the last event it has seen: later ones come first, preceded by a
        gap if history does not reach that far. An unreachable remote becomes ``trouble`` if some
        state is known. Raises what a first contact with the remote may.
        """
        head = self._store.newest(self._layer) if self.is_following else None
        if head is None:  # nobody follows it yet
            try:
                head, self._polling.trouble = self._store.fetch(self._layer), None
            except Unavailable as error:
                head, self._polling.trouble = self._store.known(self._layer), error
                if head is None:
                    raise
        # Outside of the lock: reading history may take long, and the others go on meanwhile.
        past, first = ([], 0) if after is None else self._history(head)
        with self._lock:
            self._adopt(head)
            if after is not None:
                last = max((x.number for x in past if x.number), default=after)
                newer = [x for x in self._recent if x.number is not None and x.number > last]
                # The step after the last one seen is no longer there.
                if first > after[0] + 1:
                    listener(self._gap())
                for event in (*past, *newer):
                    if event.number is not None and event.number > after:
                        listener(event)
            self._count += 1
            number = self._count
            self._listeners[number] = listener
            if self._thread is None:
                self._wake.clear()  # earlier pushes are known
                self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)
                self._thread.start()
        return lambda: self._remove(number)

    @property
    def is_following(self) -> bool:
        """Return whether there are listeners, so that the ledger is being read anyway."""
        return self._thread is not None

    def close(self) -> None:
        self._stop = True
        self._wake.set()

    def _remove(self, number: int) -> None:
        # Without the lock, which is held while history is sent: an event loop must not wait for it.
        self._listeners.pop(number, None)

    def _follow(self) -> None:
        with contextlib.suppress(InterruptedError):
            for _ in self._polling.run(self._look):
                pass  # what a look finds is reported under the lock

    def _nap(self, seconds: float) -> bool:
        # InterruptedError: nobody listens any more, or the gateway is being stopped.
        pushed = self._wake.wait(seconds)
        self._wake.clear()
        if self._stop:
            raise InterruptedError
        with self._lock:
            if not self._listeners:
                self._thread = None
                # History has what happens until somebody listens again.
                self._head = None
                self._recent.clear()
                raise InterruptedError
        return pushed

    def _look(self, is_due: bool) -> tuple[()]:
        try:
            # What was pushed here is in memory: no look at the remote is needed.
            newest = None if is_due else self._store.newest(self._layer)
            head = newest or self._store.fetch(self._layer)
            with self._lock:
                self._adopt(head)
                self._report_lapses()
        except GitleaseError:
            raise
        except Exception:
            # One bug must not silence the stream.
            logging.getLogger("gitlease").exception("following %s", self._layer)
        return ()

    def _adopt(self, head: Snapshot) -> None:
        # Reports all events between the last reported head and the newest, which may be later.
        head = self._store.newest(self._layer) or head
        before = self._head
        if before is None:
            # Those that had lapsed before anybody listened are no news.
            self._head, self._lapsed = head, set(self._lapsed_leases(head))
            return
        if head.version == before.version:
            return
        steps = self._store.steps(before, head, STEPS)
        for event in [x for step in steps for x in _numbered(step)] if steps else [self._gap()]:
            self._recent.append(event)
            self._report(event)
        self._head = head

    def _report(self, event: FollowedEvent) -> None:
        # A copy: a listener may leave at any time, from another thread.
        for listener in list(self._listeners.values()):
            listener(event)

    def _gap(self) -> FollowedEvent:
        return FollowedEvent(None, None, at=self._clock.now().wall_ms)

    def _report_lapses(self) -> None:
        head = self._head
        if head is None:
            return
        lapsed = self._lapsed_leases(head)
        for lease_id, lease in lapsed.items():
            if lease_id not in self._lapsed:
                self._report(FollowedEvent(None, None, lapsed=lease, at=lease.expires_at))
        self._lapsed = set(lapsed)

    def _lapsed_leases(self, head: Snapshot) -> dict[str, Lease]:
        ledger_at = LedgerAt(head.ledger, Moment(now=self._clock.now(), seen=head.seen))
        every = head.ledger.every_lease() if head.ledger else ()
        return {x.lease_id: x for x in every if ledger_at.lapsed(x)}

    def _history(self, head: Snapshot) -> tuple[list[FollowedEvent], int]:
        # The events in history, and its first revision; read once for each head.
        if not head.version:
            return [], 0
        with self._reading:
            if self._past[0] != head.version:
                nothing = Snapshot(self._layer, version="", ledger=None, received=head.received)
                steps = self._store.steps(nothing, head, STEPS)
                first = steps[0].ledger.header.revision if steps else revision_of(head)
                events = [event for step in steps for event in _numbered(step)]
                self._past = head.version, events, first
            return self._past[1], self._past[2]


def _numbered(step: LedgerStep) -> Iterator[FollowedEvent]:
    revision = step.ledger.header.revision
    for n, event in enumerate(step.events):
        yield FollowedEvent((revision, n), event, at=event.at)
