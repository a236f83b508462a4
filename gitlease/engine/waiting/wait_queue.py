"""A waiter's place in line: taking, keeping and leaving it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from gitlease.core.errors import GitleaseError, HeadGone, UnknownOutcome
from gitlease.core.instant import MS
from gitlease.core.ledger import MAX_STEP
from gitlease.core.moves.operations import LeaveTicket, Operation, TakeTicket
from gitlease.core.moves.tickets import LONGEST_TICKET, Place, place
from gitlease.core.resources.resource import PATH_PREFIX, Resource, parse_resource
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import Snapshot
from gitlease.engine.transaction import Step, Transaction, fresh_id

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
    ) -> None:
        """``paths`` gives those that the claim of a resource covers: it waits for them too."""
        self._session, self._resources, self._scope = session, tuple(resources), scope
        self._paths = paths
        self._lines = self._resources
        self._transaction = Transaction(
            session.store,
            clock=session.clock,
            actor=session.actor,
            layer=session.layer,
            patience=PATIENCE,
            dice=session.dice,
            settles=False,
            carry=session.carry,
        )
        self.ticket: str | None = None
        """The id of the ticket, from when one may stand in the ledger."""
        self._since: int | None = None
        self._until = 0
        self._failed = 0
        self._operations = set[str]()

    def place(self, head: Snapshot | None) -> Place:
        """The waiter's place in that state of the ledger."""
        if head is None or head.ledger is None:
            return Place(ahead=0, behind=0, kept=False)
        now = self._session.clock.now().wall_ms
        actor = self._session.actor
        try:
            wanted = {resource: self._paths(resource) for resource in self._resources}
            return place(head.ledger, wanted, self._scope, actor, self.ticket, now)
        except HeadGone:  # to be read anew with the next look
            return Place(ahead=0, behind=0, kept=self.ticket is not None)

    def runs_out(self, seconds: float) -> bool:
        """Whether the ticket must be renewed to last for so long."""
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
        self._lines = tuple(dict.fromkeys((*self._resources, *paths)))[:MAX_STEP]
        op = TakeTicket(
            id=fresh_id(),
            actor=self._session.actor,
            resources=self._lines,
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
            if not isinstance(error, UnknownOutcome):
                self.ticket = before
            return False
        self._until, self._failed = until, 0
        if self._since is None:
            self._since = step.moment.now.wall_ms
        return True

    def leave(self) -> None:
        """Remove the ticket if possible; it also runs out by itself."""
        if self.ticket is None:
            return
        op = LeaveTicket(
            id=fresh_id(),
            actor=self._session.actor,
            resources=self._lines,
            ticket=self.ticket,
        )
        # InterruptedError: the clock of a wait that was ended does not sleep any more.
        with contextlib.suppress(GitleaseError, InterruptedError):
            self._settle(self._carry_out(op).head)

    def _carry_out(self, op: Operation) -> Step:
        self._operations.add(op.id)
        what = f"the ticket for {self._resources[0]}"
        return self._transaction.carry_out([op], what=what)

    def _settle(self, head: Snapshot) -> None:
        # Later commands have no use for the outcome of a ticket.
        store = self._session.store
        for pending in list(store.pending(self._session.layer)):
            if self._operations.intersection(pending.operations):
                store.settle(pending, head)
