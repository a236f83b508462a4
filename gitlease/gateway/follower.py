"""Follows a ledger for those who listen: every event once, in order, with a number of its own.

An event is numbered ``<revision>-<n>``: the revision of the step that it belongs to, and its place
there. Whoever was away goes on after the last number that it saw, as far as history reaches. That a
lease ran out is nobody's doing: it is told at its time, without a number.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator

from gitlease.core.errors import GitleaseError, Unavailable
from gitlease.core.expiry import Moment
from gitlease.core.frozen import dataclass
from gitlease.core.instant import MS
from gitlease.core.lease import Lease
from gitlease.core.outcome import Event
from gitlease.engine.ports import LedgerStep, Snapshot
from gitlease.engine.waiting.events import Scene
from gitlease.gateway.session import SharedStore, revision_of

SOONEST, EVERY = 0.5, 2.0  # seconds between two looks at the remote, while somebody listens
SHARE = 10  # times what a look took, between these: one that is near is looked at more often
KEPT = 5_000  # events that are kept for those who come back
STEPS = 2_000  # that are told one by one, of those between two looks and of history
LAPSED, GAP = "lapsed", "gap"


@dataclass(frozen=True, slots=True)
class Told:
    """An event and its number; a lapse has the lease that it is about, and no number.

    With neither it is a gap: more happened than history tells.
    """

    number: tuple[int, int] | None
    event: Event | None
    lapsed: Lease | None = None
    at: int = 0


Listener = Callable[[Told], None]


class Follower:
    """Tells listeners what happens to the ledger of one layer, while there are any.

    ``trouble`` is why the last look at it failed, where it did.
    """

    def __init__(self, store: SharedStore, layer: str) -> None:
        self._store, self._layer, self._clock = store, layer, store.clock
        self._lock = threading.RLock()
        self._listeners: dict[int, Listener] = {}
        self._count = 0
        self._told: deque[Told] = deque(maxlen=KEPT)
        self._head: Snapshot | None = None
        self._reading = threading.Lock()
        self._past: tuple[str, list[Told], int] = "", [], 0  # by a version, and from a revision on
        self._lapsed: set[str] = set()
        self._stop, self._news = False, threading.Event()
        self._thread: threading.Thread | None = None
        self.trouble: GitleaseError | None = None

    def listen(
        self, listener: Listener, after: tuple[int, int] | None = None
    ) -> Callable[[], None]:
        """Tell a listener all that happens from now on; what is returned ends that.

        ``after`` is the number of the last event that it saw: what came since is told first, and
        before it that there is a gap, where history does not go back so far.
        A remote that does not answer is this follower's ``trouble``, where a state is known.
        Raises what a first contact with the remote may.
        """
        head = self._first_head()
        past, first = ([], 0) if after is None else self._history(head)  # outside of the lock
        with self._lock:
            self._adopt(head)
            if after is not None:
                last = max((x.number for x in past if x.number), default=after)
                newer = [x for x in self._told if x.number is not None and x.number > last]
                if first > after[0] + 1:
                    listener(self._gap())
                for told in (*past, *newer):
                    if told.number is not None and told.number > after:
                        listener(told)
            self._count += 1
            number = self._count
            self._listeners[number] = listener
            if self._thread is None:
                self._news.clear()  # what was pushed before is no news
                self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)
                self._thread.start()
        return lambda: self._leave(number)

    def _first_head(self) -> Snapshot:
        if self._thread is not None and (head := self._store.newest(self._layer)) is not None:
            return head  # which is followed already
        try:
            head, self.trouble = self._store.fetch(self._layer), None
        except Unavailable as error:
            known, self.trouble = self._store.known(self._layer), error
            if known is None:
                raise
            head = known
        return head

    @property
    def is_following(self) -> bool:
        """Whether the ledger is looked at anyway, since somebody listens."""
        return self._thread is not None

    def heard(self, head: Snapshot) -> None:
        """A head that was pushed here: what it brings is told at once, by a thread of its own."""
        self._news.set()

    def close(self) -> None:
        self._stop = True
        self._news.set()

    def _leave(self, number: int) -> None:
        self._listeners.pop(number, None)  # without the lock: no event loop may wait for it

    def _follow(self) -> None:
        pause = SOONEST
        while not self._stop:
            pushed = self._news.wait(pause)
            self._news.clear()
            with self._lock:
                if not self._listeners:
                    self._thread = None
                    self._head = None  # what happens while nobody listens is for history to tell
                    self._told.clear()
                    return
            pause, began = EVERY, self._clock.now()
            try:
                newest = self._store.newest(self._layer) if pushed else None
                head = newest or self._store.follow(self._layer)
                pause = pause_after(began.elapsed_at_most(self._clock.now()) / MS)
                with self._lock:
                    self._adopt(head)
                    self._tell_lapses()
                self.trouble = None
            except GitleaseError as error:
                self.trouble = error  # it is looked at again
            except Exception:  # who listens is not left in silence by one fault
                logging.getLogger("gitlease").exception("following %s", self._layer)

    def _adopt(self, head: Snapshot) -> None:
        """Tell all between the last head that was told and the newest one, at least this one."""
        head = self._store.newest(self._layer) or head
        before = self._head
        if before is None:
            self._head, self._lapsed = head, set(self._over(head))
            return
        if head.version == before.version:
            return
        steps = self._store.steps(before, head, STEPS)
        for told in [x for step in steps for x in _numbered(step)] if steps else [self._gap()]:
            self._told.append(told)
            self._tell(told)
        self._head = head

    def _tell(self, told: Told) -> None:
        for listener in list(self._listeners.values()):
            listener(told)

    def _gap(self) -> Told:
        return Told(None, None, at=self._clock.now().wall_ms)

    def _tell_lapses(self) -> None:
        head = self._head
        if head is None:
            return
        over = self._over(head)
        for lease_id, lease in over.items():
            if lease_id not in self._lapsed:
                self._tell(Told(None, None, lapsed=lease, at=lease.expires_at))
        self._lapsed = set(over)

    def _over(self, head: Snapshot) -> dict[str, Lease]:
        scene = Scene(head.ledger, Moment(now=self._clock.now(), seen=head.seen))
        every = head.ledger.every_lease() if head.ledger else ()
        return {x.lease_id: x for x in every if scene.lapsed(x)}

    def _history(self, head: Snapshot) -> tuple[list[Told], int]:
        """What history has, and from which revision on; read once for each head."""
        if not head.version:
            return [], 0
        with self._reading:
            if self._past[0] != head.version:
                nothing = Snapshot(self._layer, version="", ledger=None, received=head.received)
                steps = self._store.steps(nothing, head, STEPS)
                first = steps[0].ledger.header.revision if steps else revision_of(head)
                found = [told for step in steps for told in _numbered(step)]
                self._past = head.version, found, first
            return self._past[1], self._past[2]


def pause_after(took: float) -> float:
    """How long the remote is left alone after a look that took so many seconds."""
    return min(max(SOONEST, SHARE * took), EVERY)


def _numbered(step: LedgerStep) -> Iterator[Told]:
    revision = step.ledger.header.revision
    for n, event in enumerate(step.events):
        yield Told((revision, n), event, at=event.at)
