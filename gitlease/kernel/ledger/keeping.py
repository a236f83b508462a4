"""The heartbeat: when to renew which grants, and when to give them up.

1. All grants of a process are renewed in one push, when the first has used a third of its time,
   with jitter, so that many processes do not beat as one.
2. Whoever of this clone changes the ledger renews along what will soon be due: each keeper asks for
   that, once for every renewal, and pushes nothing where it finds it done.
3. A failure is retried with growing pauses until a grant's own time is nearly over: then it is
   given up, whatever is on its way.
4. Nothing is ever claimed here. A loss is final. An expiry is reported before anybody else may
   start; a revocation, or a release from elsewhere, with the next renewal, or as soon as this
   clone learns of it.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence

from gitlease.kernel.ledger.acts import renew_grants
from gitlease.kernel.ledger.answers import Answer
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.ports import Clock, Snapshot
from gitlease.kernel.ledger.transaction import DUE, fresh_id
from gitlease.kernel.rules.errors import GitleaseError, LeaseLost, Loss, Unavailable
from gitlease.kernel.rules.frozen import JSON, dataclass, replace
from gitlease.kernel.rules.instant import MS, Instant
from gitlease.kernel.rules.loss import Hold, Lost, ending, still_held, was_ended_by_own
from gitlease.kernel.rules.moves.operations import Grant
from gitlease.kernel.rules.resources import parse_resource

AT_ONCE = 200  # grants of one push: as many events as one commit tells
LATEST = 0.42  # of a grant's time, after which it is renewed at the latest, and DUE at the soonest
FIRST_RETRY = 1.0  # seconds after the first failure, at most
CONTACT_LEAST, CONTACT_MOST = 2.0, 30.0  # seconds for one contact with the remote
PUSHES = 2.0  # times the usual push of this remote, which a contact may take at least
EVENTS_SEARCHED = 500
GLANCES_SKIPPED = 30  # after one that failed
NO_ANSWER = "the remote has not answered yet"
DOUBTED = 10  # looks, one a second, for which a release is taken for the end of the work


@dataclass(frozen=True, kw_only=True)
class RenewalResult:
    """The result of one heartbeat: ``renewed`` grants start anew, ``lost`` ones are final.

    ``failure`` is why the others are in doubt, and must be tried again.
    """

    asked: tuple[Hold, ...]
    renewed: tuple[Hold, ...] = ()
    lost: tuple[Lost, ...] = ()
    failure: GitleaseError | None = None


class _Kept:
    def __init__(self, hold: Hold, due_ms: float) -> None:
        self.hold, self.due_ms = hold, due_ms
        self.failures = 0
        self.failure: GitleaseError | None = None
        self.asked = False  # its renewal is under way


class Keeper:
    """Schedules the renewals of one process; ``open_session`` takes the limit of each contact.

    ``early`` gives the milliseconds before its end at which a grant is given up. Not thread-safe,
    except for ``renew``.
    """

    def __init__(
        self,
        open_session: Callable[[float], LedgerSession],
        *,
        clock: Clock,
        dice: random.Random | None = None,
        early: Callable[[Hold], int] = Hold.early_ms,
    ) -> None:
        self._open, self._clock, self._early = open_session, clock, early
        self._dice = dice or random.SystemRandom()
        self._kept: dict[str, _Kept] = {}
        self._name = fresh_id()
        self._asked: tuple[Hold, ...] = ()
        # Seconds that a push to this remote takes, 0 if unknown; None: it was not asked for yet.
        self._push: float | None = None

    def add(self, holds: Sequence[Hold]) -> None:
        """Keep these grants; the time of one already kept starts anew."""
        for hold in holds:
            self._keep(hold)

    def drop(self, lease_ids: Sequence[str]) -> None:
        """Stop keeping these grants."""
        for lease_id in lease_ids:
            self._kept.pop(lease_id, None)

    # --- the heartbeat --------------------------------------------------------------------------

    def due_in(self) -> float | None:
        """Seconds until the next heartbeat, not below zero."""
        now = self._clock.now()
        waits = [self._due(kept, now) for kept in self._kept.values()]
        return max(0.0, min(waits) / MS) if waits else None

    def batch(self) -> tuple[Hold, ...]:
        """All kept grants once any of them is due, else none."""
        now = self._clock.now()
        # One push renews everything: what is not due yet goes along for nothing.
        if not any(self._due(kept, now) <= 0 for kept in self._kept.values()):
            return ()
        for kept in self._kept.values():
            kept.asked = True
        return tuple(kept.hold for kept in self._kept.values())

    def renew(self, batch: Sequence[Hold]) -> RenewalResult:
        """Renew these grants; any error becomes the answer's ``failure``."""
        renewed: list[Hold] = []
        lost: list[Lost] = []
        failure: GitleaseError | None = None
        try:
            # Several contacts must fit into the rest of the shortest grant.
            now = self._clock.now()
            left = min(hold.left_ms(now) for hold in batch) / MS
            session = self._open(min(CONTACT_MOST, max(self._least(), left / 3)))
            for start in range(0, len(batch), AT_ONCE):
                part = batch[start : start + AT_ONCE]
                answer = renew_grants(session, [hold.grant for hold in part])
                session.mailbox.leave(
                    [x for x in answer.warnings if x not in session.store.warnings]
                )
                renewed += holds_of(answer)
                by_id = {hold.grant.lease_id: hold for hold in part}
                for refusal in answer.refused:
                    if isinstance(refusal, LeaseLost) and refusal.lease_id in by_id:
                        lost.append(_lost(session, by_id[refusal.lease_id], refusal))
                    else:
                        failure = refusal
            self._learn_pace(session)
        except GitleaseError as error:
            failure = error
        except Exception as error:  # a fault of ours is no reason to stop beating
            failure = Unavailable(f"a fault of gitlease: {type(error).__name__}: {error}")
        return RenewalResult(
            asked=tuple(batch), renewed=tuple(renewed), lost=tuple(lost), failure=failure
        )

    def wishes(self) -> tuple[Hold, ...] | None:
        """The renewals to ask others of this clone for; None if that is asked already."""
        holds = tuple(kept.hold for kept in self._kept.values())
        return None if holds == self._asked else holds

    def ask(self, wishes: tuple[Hold, ...]) -> None:
        """Ask so; any failure means that everything is renewed here."""
        self._asked = wishes
        with contextlib.suppress(Exception):
            session = self._open(CONTACT_LEAST)
            head = self._learn_pace(session)
            if head is not None and head.along is not None:
                head.along.ask(self._name, [JSON.dump(x) for x in wishes])

    def settle(self, beat: RenewalResult) -> tuple[Lost, ...]:
        """Restart renewed grants, give up lost ones, and retry the others."""
        lost = tuple(
            replace(x, hold=kept.hold)  # as it was renewed last
            for x in beat.lost
            if (kept := self._kept.get(x.hold.grant.lease_id)) is not None
        )
        for one in lost:
            del self._kept[one.hold.grant.lease_id]
        for hold in beat.renewed:
            if hold.grant.lease_id in self._kept:
                self._keep(hold)
        heard = {hold.grant.lease_id for hold in beat.renewed}
        for hold in beat.asked:
            kept = self._kept.get(hold.grant.lease_id)
            if kept is not None and hold.grant.lease_id not in heard:
                self._retry_later(kept, beat.failure)
        return lost

    # --- the deadline ---------------------------------------------------------------------------

    def ends_in(self) -> float | None:
        """Seconds until the first grant must be given up, not below zero."""
        now = self._clock.now()
        ends = [self._until_given_up(kept.hold, now) for kept in self._kept.values()]
        return max(0.0, min(ends) / MS) if ends else None

    def left_ms(self, lease_id: str) -> int:
        """Milliseconds until a grant must be given up, 0 if it is over or not kept."""
        kept = self._kept.get(lease_id)
        return 0 if kept is None else max(0, self._until_given_up(kept.hold, self._clock.now()))

    def overdue(self) -> tuple[Lost, ...]:
        """Give up every grant whose time is nearly over."""
        now = self._clock.now()
        over = [k for k in self._kept.values() if self._until_given_up(k.hold, now) <= 0]
        self.drop([kept.hold.grant.lease_id for kept in over])
        lost = list[Lost]()
        for kept in over:
            if kept.failure is None and not kept.asked:  # this process, or its machine, slept
                lost.append(Lost(hold=kept.hold, loss=Loss.EXPIRED))
            else:
                detail = NO_ANSWER if kept.failure is None else kept.failure.message
                lost.append(Lost(hold=kept.hold, loss=Loss.UNREACHABLE, detail=detail))
        return tuple(lost)

    # --- how ------------------------------------------------------------------------------------

    def _least(self) -> float:
        """The least seconds for one contact: it must not cut off a push that would arrive."""
        if self._push is None:  # a short lease may be due before anything was asked for
            self._push = 0.0
            self._learn_pace(self._open(CONTACT_LEAST))
        return max(CONTACT_LEAST, PUSHES * self._push)

    def _learn_pace(self, session: LedgerSession) -> Snapshot | None:
        head = session.store.known(session.layer)
        if head is not None:
            self._push = head.pace.push
        return head

    def _keep(self, hold: Hold) -> None:
        # Heartbeats that began together must not push together for ever.
        part = self._dice.uniform(DUE, LATEST)
        self._kept[hold.grant.lease_id] = _Kept(hold, part * hold.duration_ms)

    def _due(self, kept: _Kept, now: Instant) -> float:
        return kept.due_ms - kept.hold.since.elapsed_at_most(now)

    def _retry_later(self, kept: _Kept, failure: GitleaseError | None) -> None:
        # After a ninth of the grant's time at most, so that some tries are left.
        kept.failure, kept.asked = failure, False
        ceiling = min(FIRST_RETRY * 2.0**kept.failures, kept.hold.duration_ms / MS / 9)
        # Bounded, since a power of two overflows after a thousand failures.
        kept.failures = min(kept.failures + 1, 20)
        elapsed = kept.hold.since.elapsed_at_most(self._clock.now())
        kept.due_ms = elapsed + self._dice.uniform(ceiling / 2, ceiling) * MS

    def _until_given_up(self, hold: Hold, now: Instant) -> int:
        return hold.left_ms(now) - self._early(hold)


class LossDetector:
    """Finds losses in what this clone already knows, without a connection.

    ``open_session`` must give a session of its own. Not thread-safe.
    """

    def __init__(self, open_session: Callable[[float], LedgerSession]) -> None:
        self._open = open_session
        self._session: LedgerSession | None = None
        self._judged: tuple[str, frozenset[str]] | None = None
        self._doubted: dict[str, int] = {}  # by lease, the looks for which it has been away
        self._skip = 0

    def lost(self, holds: Sequence[Hold]) -> tuple[Lost, ...]:
        """The grants that are lost by this clone's copy; none if it cannot be read."""
        # A copy that cannot be read is left alone for a while, and not tried every second.
        if self._skip:
            self._skip -= 1
            return ()
        try:
            return self._look(holds)
        except Exception:  # the next renewal tells
            self._session, self._judged, self._skip = None, None, GLANCES_SKIPPED
            return ()

    def _look(self, holds: Sequence[Hold]) -> tuple[Lost, ...]:
        if self._session is None:
            self._session = self._open(CONTACT_LEAST)
        session, ids = self._session, frozenset(hold.grant.lease_id for hold in holds)
        now = (session.store.mark(session.layer), ids)
        # Read again only if any process of the clone has written what it knows.
        if now == self._judged and not self._doubted.keys() & ids:
            return ()
        head = session.store.known(session.layer)
        gone = [x for hold in holds if head and (x := _gone(session, head, hold)) is not None]
        released = {x.hold.grant.lease_id for x in gone if x.loss is Loss.RELEASED_ELSEWHERE}
        # A release may be the last thing that the holder's own work does, which then ends by
        # itself, as ``done`` with a commit and its hooks.
        looks = {one: self._doubted.get(one, 0) + 1 for one in released}
        self._doubted = {one: n for one, n in looks.items() if n <= DOUBTED}
        self._judged = now
        return tuple(x for x in gone if x.hold.grant.lease_id not in self._doubted)


def holds_of(answer: Answer) -> tuple[Hold, ...]:
    """The caller's live leases in an answer, from its instant on."""
    # Nothing was written, so no time of a lease starts anew.
    if answer.at is None:
        return ()
    return tuple(
        Hold(
            grant=Grant(
                parse_resource(view.resource), view.scope, view.session, view.lease_id, view.token
            ),
            since=answer.at,
            duration_ms=round((view.expires_at - view.renewed_at).total_seconds() * MS),
        )
        for view in answer.leases
        if view.state == "active"
    )


def _gone(session: LedgerSession, head: Snapshot, hold: Hold) -> Lost | None:
    ledger, grant = head.ledger, hold.grant
    if ledger is None or ledger.header.token < grant.token:
        return None  # of before the grant
    try:
        still_held(ledger, grant, session.actor.holder, session.moment(head))
    except LeaseLost as refusal:
        if refusal.loss is not Loss.EXPIRED:  # expiry is left to the deadline
            return _lost(session, hold, refusal)
    except GitleaseError:  # a damaged record tells nothing
        pass
    return None


def _lost(session: LedgerSession, hold: Hold, refusal: LeaseLost) -> Lost:
    try:
        events = tuple(session.store.history(session.layer, EVENTS_SEARCHED))
    except GitleaseError:
        events = ()
    loss, by = ending(events, hold.grant.token) or (refusal.loss or Loss.EXPIRED, refusal.whose)
    head, holder = session.store.known(session.layer), session.actor.holder
    ledger = head.ledger if head is not None else None
    by_own = ledger is not None and was_ended_by_own(ledger, events, hold.grant, holder)
    return Lost(hold=hold, loss=loss, by=by, by_own=by_own)
