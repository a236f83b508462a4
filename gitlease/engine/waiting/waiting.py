"""The wait: stand in line, look politely, wake when it may be free, and stop in time.

1. Whoever has to wait takes a ticket (``core.moves.tickets``). It is a courtesy: where it cannot be
   had, the wait goes on without, behind those who have one.
2. Who waits alone looks soon, since what is waited for at all is often about to end, then after
   twice the time, then every few seconds as long as the wait is young. The first in line looks
   every few seconds as long as others stand behind it, who count on that; the further back, the
   less often.
3. What is free is first left to those who have waited longer, for a window each.
4. An assignment that no live lease goes with does not end by waiting: that is said at once.
5. A remote that cannot be reached for a while does not end the wait; its limit does, with one more
   try.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gitlease.core.errors import LeaseHeld, Unavailable, UnknownOutcome, WaitTimeout
from gitlease.core.frozen import replace
from gitlease.core.instant import LONGEST, MS, Instant, format_duration
from gitlease.core.lease import free_at
from gitlease.core.moves.tickets import LONGEST_COURTESY, WINDOW, NotYourTurn, may_pass
from gitlease.core.resources.resource import Resource
from gitlease.engine.answers import Answer, Turn
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.waiting.head_watcher import HeadWatcher
from gitlease.engine.waiting.wait_conditions import WaitCondition
from gitlease.engine.waiting.wait_queue import WaitQueue

LOOK = 7.0  # seconds between the looks of the first in line, at most
LOOK_FIRST = 1.2  # of who waits alone: then each look doubles what has been waited
LOOK_ALONE = 9.5  # at most: ten looks in the first minute
LOOK_LATER = 15.0  # after the first minute, with nobody behind
LOOK_FAR = 3.5  # for each who stands before
LOOK_MOST = 60.0
LOOK_TROUBLED = 30.0  # while the remote cannot be reached, at most
SOON = 3.0  # what is free within so many seconds needs no ticket
MINUTE = 60.0
NOTHING = LONGEST * 1.0


class Waiter:
    """One wait, for at most ``seconds``."""

    def __init__(
        self,
        session: LedgerSession,
        condition: WaitCondition,
        resources: Sequence[Resource],
        scope: str,
        *,
        seconds: int,
        on_wait: Callable[[LeaseHeld], None],
    ) -> None:
        self._condition, self._session = condition, session
        self._store, self._layer = session.store, session.layer
        self._clock, self._dice = session.clock, session.dice
        self._watcher = HeadWatcher(session)
        self._queue = WaitQueue(session, resources, scope, condition.paths)
        self._seconds, self._on_wait = seconds, on_wait
        self._began = self._looked = session.clock.now()
        self._held: LeaseHeld | None = None
        self._ahead = 0
        self._free_since: Instant | None = None
        self._trouble: Unavailable | None = None
        self._failures = 0
        self._unknown: UnknownOutcome | None = None
        self._said: tuple[str, ...] = ()

    def get(self) -> Answer:
        """Wait, and return the answer as soon as it can be had.

        Raises WaitTimeout, Unavailable if the remote can no longer be reached, and any error of an
        attempt that waiting does not change.
        """
        answer = self._first()
        try:
            while answer is None:
                if self._left() <= 0:
                    answer = self._last()
                    break
                if self._held is not None:
                    self._on_wait(self._held)
                news = self._stand_in_line()  # with which all that is known is fresh
                answer = self._try(due=False) if news else None
                if answer is None:
                    answer = self._try(due=self._nap())
        except BaseException:
            if self._trouble is None:
                self._queue.leave()
            raise
        return replace(answer, warnings=tuple(dict.fromkeys((*self._said, *answer.warnings))))

    # --- trying ---------------------------------------------------------------------------------

    def _first(self) -> Answer | None:
        try:
            return self._attempt(looked=False)
        except UnknownOutcome:
            raise
        except Unavailable as error:
            head = self._watcher.refresh()
            if head is None or head.received.elapsed_at_most(self._began) > 0:
                raise  # a remote that was not even met once is no case for patience
            self._trouble = error
            return None

    def _try(self, *, due: bool) -> Answer | None:
        try:
            if due:
                self._looked = self._clock.now()
                self._watcher.look()
            refusal = self._refusal()
            if refusal is None or refusal.by_edge:
                answer = self._attempt(looked=due)
            else:
                answer = None
                self._note(refusal)
        except Unavailable as error:
            if isinstance(error, UnknownOutcome):
                self._unknown = error
            if not isinstance(self._trouble, UnknownOutcome):
                self._trouble = error
            self._failures += 1
            return None
        if due:
            self._trouble, self._failures = None, 0
        return answer

    def _refusal(self) -> LeaseHeld | None:
        head = self._watcher.refresh()
        return None if head is None else self._condition.refusal(head, self._turn())

    def _attempt(self, *, looked: bool) -> Answer | None:
        try:
            return self._condition.attempt(self._turn(), looked=looked)
        except LeaseHeld as refusal:
            if refusal.by_edge:
                raise
            self._watcher.refresh()
            self._note(refusal)
            return None

    def _last(self) -> Answer:
        """The limit is reached: one more try."""
        held = self._held
        if held is not None and not self._seconds and not isinstance(held, NotYourTurn):
            raise self._timeout(held)
        try:
            return self._condition.attempt(self._turn(), looked=False)
        except LeaseHeld as refusal:
            if refusal.by_edge:
                raise
            self._said += refusal.warnings
            self._check_known()
            raise self._timeout(refusal) from None
        except UnknownOutcome:
            raise
        except Unavailable as error:
            self._check_known()
            if self._trouble is not None:
                raise self._trouble from None
            if held is None:
                raise
            self._trouble = error
            raise self._timeout(held) from None

    def _check_known(self) -> None:
        """Raise UnknownOutcome where an attempt of this wait may still land: S6."""
        if self._unknown is not None and list(self._store.pending(self._layer)):
            raise self._unknown from None

    def _note(self, refusal: LeaseHeld) -> None:
        self._held = refusal
        self._said = tuple(dict.fromkeys((*self._said, *refusal.warnings)))
        before, self._ahead = self._ahead, self._queue.place(self._watcher.head).ahead
        if not isinstance(refusal, NotYourTurn):
            self._free_since = None
        elif self._free_since is None or self._ahead != before:
            self._free_since = self._clock.now()

    def _turn(self) -> Turn:
        return Turn(self._queue.ticket, may_pass(self._free_for()))

    # --- waiting --------------------------------------------------------------------------------

    def _stand_in_line(self) -> bool:
        if not self._condition.in_line or self._trouble is not None or self._left() <= SOON:
            return False
        at = self._queue.place(self._watcher.head)
        if at.kept and not self._queue.runs_out(self._left()):
            return False
        if self._queue.ticket is None and not at.ahead and self._ends_soon():
            return False
        return self._queue.take(self._left())

    def _nap(self) -> bool:
        # Returns whether the next look is due.
        look_in = self._interval() - self._seconds_since(self._looked)
        nap, due = min((self._left(), False), (self._next_event(), False), (look_in, True))
        return not self._watcher.nap(max(nap, 0.05)) and due

    def _interval(self) -> float:
        """Seconds from one look to the next."""
        waited, at = self._seconds_since(self._began), self._queue.place(self._watcher.head)
        if at.ahead and self._condition.in_line:
            look = min(LOOK_MOST, max(LOOK, LOOK_FAR * at.ahead))
        elif at.behind:
            look = LOOK
        elif waited < MINUTE:
            look = LOOK_ALONE if self._ends_soon() else min(LOOK_ALONE, max(LOOK_FIRST, waited))
        else:
            look = LOOK_LATER
        if self._failures:
            look = max(look, min(LOOK_TROUBLED, LOOK * 2.0 ** min(self._failures - 1, 9)))
        return look * self._dice.uniform(0.7, 1.0)

    def _next_event(self) -> float:
        """Seconds until the clock alone may change what is known, if nobody writes."""
        if self._trouble is not None:
            return NOTHING  # first the remote must answer again
        if isinstance(self._held, NotYourTurn):
            return max(0.0, min(self._ahead * WINDOW, LONGEST_COURTESY) - self._free_for()) + 0.01
        wait = self._free_in()
        if wait <= 0:
            return NOTHING  # the clocks disagree: looking more often does not help
        return wait + self._dice.uniform(0.05, 0.3)

    def _free_in(self) -> float:
        held, head = self._held, self._watcher.head
        if held is None:
            return NOTHING
        ends = held.free_at_ms
        if ends is None and head is not None and held.conflicts:
            # What an edge keeps is not free then, but the wait is over, and says so.
            moment = self._session.moment(head)
            ends = max(free_at(x, head.policy, moment) for x in held.conflicts)
        return NOTHING if ends is None else (ends - self._clock.now().wall_ms) / MS

    def _ends_soon(self) -> bool:
        return 0 < self._free_in() < SOON

    def _free_for(self) -> float:
        """Seconds for which it has been left to those who have waited longer."""
        if self._free_since is None:
            return 0.0
        return self._free_since.elapsed_at_least(self._clock.now()) / MS

    def _left(self) -> float:
        return self._seconds - self._seconds_since(self._began)

    def _seconds_since(self, then: Instant) -> float:
        return then.elapsed_at_most(self._clock.now()) / MS

    def _timeout(self, held: LeaseHeld) -> WaitTimeout:
        timeout = WaitTimeout(
            f"waited {format_duration(self._seconds)}: {held.message}",
            resource=held.resource,
            scope=held.scope,
            conflicts=held.conflicts,
            free_at=held.free_at_ms,
            holder=held.whose,
        )
        timeout.views, timeout.warnings = held.views, tuple(dict.fromkeys(self._said))
        return timeout
