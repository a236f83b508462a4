"""The wait: stand in line, look politely, wake when it may be free, and stop in time.

1. Whoever has to wait takes a ticket (``kernel.rules.moves.tickets``). It is a courtesy: where it
   cannot be had, the wait goes on without, behind those who have one.
2. The first in line looks again a second after each look, or after as long as the look took, since
   what is waited for at all is often about to end. Its pauses grow to a twelfth of the time for
   which it has been first, but not beyond a few seconds while others behind it count on it. Its
   look is a fetch, so it claims right after the look that finds a release. The others look less
   often the further back they stand, and ask for the version alone. Between two looks this clone's
   own state is watched, which costs no connection: news of another process of the clone wakes at
   once. So does the end of a lease in another clone on this machine, if the system has a shared
   folder for the user's runs.
3. What is free is first left to those who have waited longer, for a window each.
4. An assignment that no live lease goes with does not end by waiting: that is said at once.
5. A remote that cannot be reached for a while does not end the wait; its limit does, with one more
   try.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence

from gitlease.kernel.ledger.answers import Answer, Turn
from gitlease.kernel.ledger.chores import pending_messages
from gitlease.kernel.ledger.claim import Attempt, ClaimPlan
from gitlease.kernel.ledger.heads import HeadWatcher
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.ports import Snapshot
from gitlease.kernel.ledger.transaction import Step, Transaction, fresh_id
from gitlease.kernel.rules.errors import (
    GitleaseError,
    HeadGone,
    LeaseHeld,
    Unavailable,
    UnknownOutcome,
    WaitTimeout,
)
from gitlease.kernel.rules.instant import LONGEST, MS, Instant, format_duration
from gitlease.kernel.rules.lease import free_at
from gitlease.kernel.rules.ledger import MAX_STEP
from gitlease.kernel.rules.moves.operations import LeaveTicket, Operation, TakeTicket
from gitlease.kernel.rules.moves.tickets import (
    LONGEST_COURTESY,
    LONGEST_TICKET,
    WINDOW,
    NotYourTurn,
    Place,
    may_pass,
    place,
)
from gitlease.kernel.rules.resources import PATH_PREFIX, Resource, parse_resource

TRIES = 3  # failures in a row, after which it is waited without a ticket
PATIENCE = 20.0  # seconds for which one push of a ticket is tried
RENEWED = 3_600_000  # milliseconds before its end at which the ticket of a long wait is renewed


class WaitQueue:
    """The line for some resources, as one waiter stands in it."""

    def __init__(
        self,
        session: LedgerSession,
        resources: Sequence[Resource],
        scope: str,
        paths: Callable[[Resource], tuple[str, ...]] = lambda _resource: (),
        *,
        is_one: bool = False,
    ) -> None:
        """``paths`` gives those that the claim of a resource covers: it waits for them too.

        ``is_one``: any one of the resources will do.
        """
        self._session, self._resources, self._scope = session, tuple(resources), scope
        self._paths, self._is_one = paths, is_one
        self.lines = self._resources
        """What the ticket is for."""
        self._transaction = Transaction(
            session.store,
            clock=session.clock,
            actor=session.actor,
            layer=session.layer,
            patience=PATIENCE,
            dice=session.terms.dice,
            # What became of a ticket is of no use to a later command.
            settles=False,
        )
        self.ticket: str | None = None
        """The id of the ticket, from when one may stand in the ledger."""
        self._since: int | None = None
        self._until = 0
        self._failed = 0

    def place(self, head: Snapshot | None) -> Place:
        """The waiter's place in that state of the ledger."""
        if head is None or head.ledger is None:
            return Place(ahead=0, behind=0, kept=False)
        now = self._session.clock.now().wall_ms
        actor = self._session.actor
        try:
            wanted = {resource: self._paths(resource) for resource in self._resources}
            one = self._is_one
            return place(head.ledger, wanted, self._scope, actor, self.ticket, now, is_one=one)
        except HeadGone:  # to be read anew with the next look
            return Place(ahead=0, behind=0, kept=self.ticket is not None)

    def runs_out(self, seconds: float) -> bool:
        """Return whether the ticket must be renewed to last for so long."""
        left = self._until - self._session.clock.now().wall_ms
        return left < RENEWED and left < (seconds - 1) * MS

    def take(self, seconds: float) -> bool:
        """Take or renew the ticket for so long; returns whether it is in the ledger.

        A failure does not end the wait: it is tried again later, at most ``TRIES`` times in a row.
        """
        if self._failed >= TRIES:
            return False
        now = self._session.clock.now().wall_ms
        until = min(now + round(seconds * MS), now + LONGEST_TICKET)
        paths = (
            parse_resource(PATH_PREFIX + path)
            for resource in self._resources
            for path in self._paths(resource)
        )
        self.lines = tuple(dict.fromkeys((*self._resources, *paths)))[:MAX_STEP]
        op = TakeTicket(
            id=fresh_id(),
            actor=self._session.actor,
            resources=self.lines,
            scope=self._scope,
            ticket=self.ticket or fresh_id(),
            since=self._since,
            until=until,
        )
        before, self.ticket = self.ticket, op.ticket  # whatever interrupts this
        try:
            step = self._carry_out(op)
        except GitleaseError as error:
            self._failed += 1
            # One that may have landed must be left again.
            if not isinstance(error, UnknownOutcome):
                self.ticket = before
            return False
        self._until, self._failed = until, 0
        if self._since is None:
            # Kept for renewals: a place in line counts from its first ticket.
            self._since = step.moment.now.wall_ms
        return True

    def leave(self) -> None:
        """Remove the ticket if possible; it also runs out by itself."""
        if self.ticket is None:
            return
        # InterruptedError: the clock of a wait that was ended does not sleep any more.
        with contextlib.suppress(GitleaseError, InterruptedError):
            self._carry_out(self.leaving())

    def leaving(self) -> Operation:
        """The operation that gives up the place, to be carried out with others."""
        return LeaveTicket(
            id=fresh_id(),
            actor=self._session.actor,
            resources=self.lines,
            ticket=self.ticket or "",
        )

    def _carry_out(self, op: Operation) -> Step:
        what = f"the ticket for {self._resources[0]}"
        carry_out = self._session.terms.carry or self._transaction.carry_out
        return carry_out([op], together=True, what=what)


PAUSE = 1.0  # seconds after a look of the first in line
PART_OF_WAIT = 1 / 12  # of the time for which it has been first: its pauses grow to that
LOOK = 7.0  # seconds between the looks of the second, and of the first before others, at most
LOOK_FIRST = 1.2  # of who waits and claims nothing: then each look doubles what has been waited
LOOK_ALONE = 9.5  # at most: ten looks in the first minute
LOOK_LATER = 15.0  # after the first minute, with nobody behind
LOOK_FAR = 3.5  # for each who stands before
LOOK_MOST = 60.0
LOOK_TROUBLED = 30.0  # while the remote cannot be reached, at most
SOON = 3.0  # what is free within so many seconds needs no ticket
MINUTE = 60.0
NOTHING = LONGEST * 1.0


class Waiter:
    """One wait, for at most ``seconds``, until an attempt at what is planned succeeds.

    Without ``claims`` the attempts only decide whether a claim would be granted, and take no place
    in line.
    """

    def __init__(
        self,
        plan: ClaimPlan,
        *,
        seconds: int,
        on_wait: Callable[[LeaseHeld], None],
        claims: bool = True,
    ) -> None:
        session, options = plan.session, plan.options
        self._session, self._plan, self._claims = session, plan, claims
        self._store, self._layer = session.store, session.layer
        self._clock, self._dice = session.clock, session.terms.dice
        self._watcher = HeadWatcher(session)
        self._queue = WaitQueue(
            session,
            plan.resources,
            options.scope,
            lambda x: plan.paths.get(x, ()),
            is_one=options.one,
        )
        self._seconds, self._on_wait = seconds, on_wait
        self._began = self._looked = session.clock.now()
        self._first_since = self._began  # since when nobody comes before it in line
        self._took = 0.0  # seconds, by the last look that was a fetch
        self._is_fresh = False  # whether this clone's copy serves for the attempt
        self._held: LeaseHeld | None = None
        self._ahead = 0
        self._free_since: Instant | None = None
        self._trouble: Unavailable | None = None
        self._failures = 0
        self._unknown: UnknownOutcome | None = None

    def attempts(self) -> Iterator[Attempt]:
        """Yield an attempt whenever one may succeed, until one does.

        Raises WaitTimeout, Unavailable if the remote can no longer be reached, and any error of an
        attempt that waiting does not change.
        """
        try:
            done = yield from self._first()
            while not done:
                if self._left() <= 0:
                    yield from self._last()
                    return
                if self._held is not None:
                    self._on_wait(self._held)
                if self._stand_in_line():
                    self._looked = self._clock.now()  # the push compared what this clone knows
                    done = yield from self._try(due=False)
                if not done:
                    done = yield from self._try(due=self._nap())
        except BaseException:
            # To leave costs a push, which would fail as well; the ticket runs out by itself.
            if self._trouble is None:
                self._queue.leave()
            raise

    def check_free(self, attempt: Attempt) -> Answer:
        """Decide by a fresh state of the ledger, without claiming. Raises LeaseHeld."""
        known = self._watcher.refresh()
        head = known if self._is_fresh and known is not None else self._watcher.look()
        self._is_fresh = True
        self._session.messages.add(pending_messages(self._store, head))
        try:
            self._decide(head, attempt.turn)
        except HeadGone:
            head = self._watcher.fetch()
            self._decide(head, attempt.turn)
        # A claim is refused there: what it lacks may be held where the ledger is.
        if (doubt := self._store.doubt(head)) is not None:
            raise doubt
        return Answer(status="free", changed=False, warnings=head.warnings)

    # --- trying ---------------------------------------------------------------------------------

    def _first(self) -> Generator[Attempt, None, bool]:
        try:
            return (yield from self._attempt(looked=False))
        except UnknownOutcome:
            raise
        except Unavailable as error:
            head = self._watcher.refresh()
            if head is None or head.received.elapsed_at_most(self._began) > 0:
                raise  # do not wait for a remote that never answered
            self._trouble = self._without_messages(error)
            return False

    def _try(self, *, due: bool) -> Generator[Attempt, None, bool]:
        done = False
        try:
            if due:
                self._look()
            refusal = self._refusal()
            if refusal is None or refusal.by_edge:
                done = yield from self._attempt(looked=due)
            else:
                self._note(refusal)
        except Unavailable as trouble:
            error = self._without_messages(trouble)
            if isinstance(error, UnknownOutcome):
                self._unknown = error
            # An attempt that may have landed is what must be told in the end.
            if not isinstance(self._trouble, UnknownOutcome):
                self._trouble = error
            self._failures += 1
            return False
        if due:
            self._trouble, self._failures = None, 0
        return done

    def _look(self) -> None:
        """Ask the remote, by a fetch if this claim is first in line."""
        began = self._looked = self._clock.now()
        is_first = self._is_first()
        self._watcher.look(brings=is_first)
        if is_first:
            self._took = self._seconds_since(began)
            self._looked = self._clock.now()  # the pause begins with the answer

    def _refusal(self) -> LeaseHeld | None:
        """The refusal of a claim in this clone's copy; None if an attempt is worth it."""
        if (head := self._watcher.refresh()) is None:
            return None
        try:
            # Of several, one may be abandoned by now while others are still held.
            if self._plan.options.one:
                for attempt in self._plan.attempts(self._turn()):
                    with attempt:
                        self._decide(head, attempt.turn)
            else:
                self._decide(head, self._turn())
        except LeaseHeld as held:
            return held
        except GitleaseError:  # what waiting does not change is left for an attempt to say
            pass
        return None

    def _decide(self, head: Snapshot, turn: Turn) -> None:
        self._session.transaction.decided(head, self._plan.operations(turn)[0])

    def _attempt(self, *, looked: bool) -> Generator[Attempt, None, bool]:
        """Yield attempts in this turn; return whether one succeeded.

        ``looked``: this clone's copy is fresh already.
        """
        self._is_fresh = looked
        try:
            yield from self._plan.attempts(self._turn())
        except LeaseHeld as refusal:
            # No wait ends an assignment.
            if refusal.by_edge:
                raise
            self._session.messages.add(refusal.warnings)
            self._watcher.refresh()
            self._note(refusal)
            return False
        return True

    def _last(self) -> Iterator[Attempt]:
        """The limit is reached: one more try."""
        held = self._held
        # A wait of no time has just been refused: asking again would change nothing.
        if held is not None and not self._seconds and not isinstance(held, NotYourTurn):
            raise self._timeout(held)
        self._is_fresh = False
        try:
            yield from self._plan.attempts(self._turn())
        except LeaseHeld as refusal:
            if refusal.by_edge:
                raise
            self._session.messages.add(refusal.warnings)
            self._check_known()
            raise self._timeout(refusal) from None
        except UnknownOutcome:
            raise
        except Unavailable as error:
            latest = self._without_messages(error)
            self._check_known()
            if self._trouble is not None or held is None:
                raise self._with_messages(self._trouble or latest) from None
            self._trouble = latest
            raise self._timeout(held) from None

    def _check_known(self) -> None:
        """Raise UnknownOutcome where an attempt of this wait may still land: S6."""
        if self._unknown is not None and list(self._store.pending(self._layer)):
            raise self._with_messages(self._unknown) from None

    def _without_messages(self, error: Unavailable) -> Unavailable:
        # The wait goes on after it: whatever ends the wait reports them.
        self._session.messages.add(error.warnings)
        return error.with_(warnings=())

    def _with_messages(self, error: Unavailable) -> Unavailable:
        return error.with_(warnings=self._session.messages.take())

    def _note(self, refusal: LeaseHeld) -> None:
        self._held = refusal
        before, self._ahead = self._ahead, self._queue.place(self._watcher.head).ahead
        if refusal.each:  # of the resource that is free
            self._ahead = len(refusal.waiting)
        if not isinstance(refusal, NotYourTurn):
            self._free_since = None
        elif self._free_since is None or self._ahead != before:
            self._free_since = self._clock.now()

    def _turn(self) -> Turn:
        return Turn(self._queue.ticket, may_pass(self._free_for()), self._queue.lines)

    # --- waiting --------------------------------------------------------------------------------

    def _stand_in_line(self) -> bool:
        # Who only looks takes no place from those who claim.
        if not self._claims or self._trouble is not None or self._left() <= SOON:
            return False
        at = self._queue.place(self._watcher.head)
        if at.kept and not self._queue.runs_out(self._left()):
            return False
        # Two pushes for a ticket that is of no use in a moment.
        if self._queue.ticket is None and not at.ahead and self._ends_soon():
            return False
        return self._queue.take(self._left())

    def _nap(self) -> bool:
        # Returns whether the next look is due.
        look_in = self._interval() - self._seconds_since(self._looked)
        nap, due = min((self._left(), False), (self._next_event(), False), (look_in, True))
        # However soon it is, never a busy loop.
        return not self._watcher.nap(max(nap, 0.05)) and due and not self._was_answered()

    def _was_answered(self) -> bool:
        """Return whether another process of this clone got the remote's answer since the last look.

        Then the pause of the first in line begins again: the claims of a clone share their looks.
        """
        head = self._watcher.refresh()
        if head is None or self._trouble is not None or not self._is_first():
            return False
        if self._seconds_since(head.received) >= self._seconds_since(self._looked):
            return False
        self._looked = head.received
        return True

    def _interval(self) -> float:
        """Seconds from one look to the next."""
        waited, at = self._seconds_since(self._began), self._queue.place(self._watcher.head)
        # Those before come first: looking as often as they do would only cost the remote.
        if at.ahead and self._claims:
            look = min(LOOK_MOST, max(LOOK, LOOK_FAR * at.ahead))
            self._first_since = self._clock.now()
        elif self._claims and not self._ends_soon():
            most = LOOK if at.behind else LOOK_LATER
            first_for = self._seconds_since(self._first_since)
            look = min(most, max(PAUSE, self._took, first_for * PART_OF_WAIT))
        elif at.behind:
            look = LOOK
        elif waited < MINUTE:
            look = LOOK_ALONE if self._ends_soon() else min(LOOK_ALONE, max(LOOK_FIRST, waited))
        else:
            look = LOOK_LATER
        if self._failures:
            look = max(look, min(LOOK_TROUBLED, LOOK * 2.0 ** min(self._failures - 1, 9)))
        # Waiters that began together must not all ask at the same moment.
        return look * self._dice.uniform(0.7, 1.0)

    def _is_first(self) -> bool:
        """Return whether nobody who claims comes before this claim."""
        return self._claims and not self._queue.place(self._watcher.head).ahead

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
        if self._held is None:
            return NOTHING
        refusals = self._held.each or (self._held,)
        waits = [self._time_of(x) for x in refusals if isinstance(x, LeaseHeld)]
        # Of several, those that should be free by now must not hide the next one.
        return min((x for x in waits if x > 0), default=min(waits))

    def _time_of(self, held: LeaseHeld) -> float:
        """Seconds until the leases in the way have lapsed."""
        ends, head = held.free_at_ms, self._watcher.head
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
        return WaitTimeout(
            f"waited {format_duration(self._seconds)}: {held.message}",
            resource=held.resource,
            scope=held.scope,
            conflicts=held.conflicts,
            free_at=held.free_at_ms,
            holder=held.whose,
            views=held.views,
            warnings=self._session.messages.take(),
        )
