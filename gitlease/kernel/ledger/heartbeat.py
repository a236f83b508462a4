"""Heartbeats: threads that renew what this process holds, and that watch the time meanwhile.

A renewal may hang for as long as a remote does, so the end of a grant is watched by a thread of its
own: a loss is always reported in time. The threads do not keep a process from ending.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol, Self, TypeVar
from weakref import WeakValueDictionary

from gitlease.kernel.git.run import log
from gitlease.kernel.ledger.keeping import PUSHES, Keeper, LossDetector, RenewalResult
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import Actor, Lease
from gitlease.kernel.rules.loss import Hold, Lost
from gitlease.kernel.rules.moves.operations import grant_of
from gitlease.kernel.rules.resources import Resource

RENEWING, WATCHING = "renewing", "watching"
UNDER_WAY = 5.0  # seconds after which a renewal that is under way is checked again
LONGEST_NAP = 1.0  # seconds: a wait does not count suspended time, so the clocks are read again


class HeldPlace(Protocol):
    """One person at one ledger, who can be opened again for a thread."""

    @property
    def actor(self) -> Actor: ...
    @property
    def ledger(self) -> LedgerSession: ...
    @property
    def again(self) -> Callable[..., Self]: ...


Place = TypeVar("Place", bound=HeldPlace)
Listener = Callable[[Lost], None]
Glance = Callable[[Sequence[Hold]], Sequence[Lost]]


class Heartbeat:
    """Keeps grants alive in the background, as ``keeping`` decides. Safe for threads.

    ``glance`` says once a second which grants are lost by what this clone knows: of the ``sharp``.
    """

    def __init__(
        self,
        keeping: Keeper,
        *,
        name: str = "gitlease heartbeat",
        glance: Glance = lambda _holds: (),
        sharp: bool = True,
    ) -> None:
        self._keeping, self._name = keeping, name
        self._glance, self._sharp = glance, sharp
        self._glanced: dict[tuple[str, Listener], Hold] = {}
        self._changed = threading.Condition()
        self._listeners: dict[str, list[Listener]] = {}
        self._paused = 0
        self._beating = False
        self._running: set[str] = set()

    def keep(self, holds: Sequence[Hold], listener: Listener, *, sharp: bool | None = None) -> None:
        """Keep grants until they are dropped or lost; ``listener`` is called once for each loss.

        That happens in a thread of the heartbeat, or in that of ``look``. ``sharp``: as soon as
        this clone knows, so drop such a grant before ending it.
        """
        sharp = self._sharp if sharp is None else sharp
        with self._changed:
            self._keeping.add(holds)
            for hold in holds:
                self._listeners.setdefault(hold.grant.lease_id, []).append(listener)
                if sharp:
                    self._glanced[hold.grant.lease_id, listener] = hold
            for role, run in ((RENEWING, self._beat), (WATCHING, self._watch)):
                if role not in self._running:
                    self._running.add(role)
                    name = f"{self._name}: {role}"
                    threading.Thread(target=run, name=name, daemon=True).start()
            self._changed.notify_all()

    def drop(self, lease_ids: Sequence[str], listener: Listener) -> None:
        """Remove a listener from these grants; a grant without listeners is no longer kept."""
        with self._changed:
            for lease_id in lease_ids:
                self._glanced.pop((lease_id, listener), None)
                others = [x for x in self._listeners.pop(lease_id, []) if x != listener]
                if others:
                    self._listeners[lease_id] = others
                else:
                    self._keeping.drop([lease_id])
            self._changed.notify_all()

    def look(self) -> None:
        """Check now whether anything must be given up; listeners are called before this returns."""
        with self._changed:
            notices = self._notices(self._keeping.overdue())
        _notify(notices)

    def due_in(self) -> float | None:
        """Seconds until the next renewal; None if nothing is kept."""
        with self._changed:
            due = self._keeping.due_in()
            if self._beating:  # it may be waiting for the clock before another try
                return min(due, UNDER_WAY) if due is not None else UNDER_WAY
            return due

    def beat(self) -> None:
        """Renew what is due, and report losses, now: for a clock that is moved by hand."""
        with self._changed:
            while self._beating:
                self._changed.wait(LONGEST_NAP)
            batch = () if self._paused else self._keeping.batch()
            self._beating = bool(batch)
        self._carry_out(batch)
        self.look()

    def left_ms(self, lease_id: str) -> int:
        """Milliseconds for which a grant can be relied on; 0 for one that is not kept."""
        with self._changed:
            return self._keeping.left_ms(lease_id)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """In this block no renewal starts, and none is under way: for a fenced push."""
        with self._changed:
            self._paused += 1
            while self._beating:
                self._changed.wait(LONGEST_NAP)
        try:
            yield
        finally:
            with self._changed:
                self._paused -= 1
                self._changed.notify_all()

    # --- the threads ----------------------------------------------------------------------------

    def _beat(self) -> None:
        while (batch := self._next_batch()) is not None:
            self._carry_out(batch)

    def _carry_out(self, batch: Sequence[Hold]) -> None:
        if batch:
            beat = self._keeping.renew(batch)
        else:  # the losses that this clone has learned of meanwhile
            with self._changed:
                holds = {lease_id: hold for (lease_id, _), hold in self._glanced.items()}
            lost = tuple(self._glance(tuple(holds.values()))) if holds else ()
            beat = RenewalResult(asked=(), lost=lost)
        _log(beat)
        with self._changed:
            if batch:
                self._beating = False
            notices = self._notices(self._keeping.settle(beat))
            if batch or notices:
                self._changed.notify_all()
            wishes = self._keeping.wishes()
        # Without the lock: a listener may call back, or take its time.
        _notify(notices)
        if wishes is not None:
            self._keeping.ask(wishes)

    def _next_batch(self) -> tuple[Hold, ...] | None:
        """Wait for the next batch: empty after a nap, None if nothing is left to keep."""
        with self._changed:
            if (wait := self._keeping.due_in()) is None:
                self._running.discard(RENEWING)
                return None
            if not self._paused and (batch := self._keeping.batch()):
                self._beating = True
                return batch
            nap = LONGEST_NAP if self._paused else min(max(wait, 0.01), LONGEST_NAP)
            self._changed.wait(nap)
            return ()

    def _watch(self) -> None:
        while True:
            with self._changed:
                notices = self._notices(self._keeping.overdue())
                if not notices:
                    wait = self._keeping.ends_in()
                    if wait is None:
                        self._running.discard(WATCHING)
                        return
                    self._changed.wait(min(max(wait, 0.001), LONGEST_NAP))
            _notify(notices)

    def _notices(self, lost: Sequence[Lost]) -> list[tuple[Listener, Lost]]:
        notices = []
        for loss in lost:
            lease_id = loss.hold.grant.lease_id
            # A loss is final, and told once.
            for listener in self._listeners.pop(lease_id, ()):
                self._glanced.pop((lease_id, listener), None)
                notices.append((listener, loss))
            log("warning", "%s", loss.error.message)
        return notices


def _log(beat: RenewalResult) -> None:
    for hold in beat.renewed:
        text = "renewed %s (token %d) for %d s"
        log("debug", text, hold.grant.resource, hold.grant.token, hold.duration_ms // MS)
    if beat.failure is not None:
        names = ", ".join(sorted({str(hold.grant.resource) for hold in beat.asked}))
        text = "%s could not be renewed, and will be tried again: %s"
        log("info", text, names, beat.failure.message)


def _notify(notices: Sequence[tuple[Listener, Lost]]) -> None:
    for listener, lost in notices:
        try:
            listener(lost)
        except Exception as error:  # of the caller: the other listeners must still be called
            known = type(error), error, error.__traceback__, threading.current_thread()
            threading.excepthook(threading.ExceptHookArgs(known))


ENDING, ENDING_LEAST = 10.0, 1.0  # seconds for one contact, and for all tries, at the end
CONTACTS = 4  # that a release may wait for in vain

_lock = threading.Lock()
# Weak: those who keep leases hold on to their heartbeat, and so do its threads while they run. Each
# key holds a whole workspace, which must go with the heartbeat.
_heartbeats: WeakValueDictionary[tuple[LedgerSession, str], Heartbeat] = WeakValueDictionary()


def in_a_run(place: Place, kind: str, *, always: bool = False) -> Place:
    """The same place, in a session that was given by flag or environment, else in a random one.

    ``always``: in a random one, whatever was given. The session of a clone, an agent or a work tree
    is not enough: two runs of one person must never renew or release each other's leases.
    """
    pid = 0 if kind == "dispatch" else os.getpid()  # what is dispatched has a process to come
    if place.actor.session_explicit and not always:
        # Whoever gave the session may have a terminal that outlives this run by far.
        is_run = kind in ("run", "dispatch")
        return place.again(session=place.actor.session, pid=pid) if is_run else place
    return place.again(run=f"{kind}-{fresh_id()[:12]}", pid=pid)


def heartbeat_of(place: HeldPlace) -> Heartbeat:
    """The heartbeat of this process for a ledger, shared by all that keep leases of it."""
    with _lock:
        key = place.ledger, place.actor.holder
        heartbeat = _heartbeats.get(key)
        if heartbeat is None:
            heartbeat = _heartbeats[key] = new_heartbeat(place, sharp=False)
        return heartbeat


def new_heartbeat(
    place: HeldPlace, *, early: Callable[[Hold], int] = Hold.early_ms, sharp: bool = True
) -> Heartbeat:
    """A heartbeat that is not shared, and gives a grant up so ``early`` (ms) before its end.

    It renews as the person, whichever runs the grants are of, and stays with the ledger and the
    holder that the place was opened with: what is checked out meanwhile is not a loss.
    """

    def open_ledger(limit: float) -> LedgerSession:
        # As the person: one heartbeat renews the grants of several runs.
        return place.again(no_session=True, time_limit=limit, patience=2 * limit).ledger

    clock = place.ledger.clock
    made = Heartbeat(
        Keeper(open_ledger, clock=clock, early=early),
        glance=LossDetector(open_ledger).lost,
        sharp=sharp,
    )
    if (drive := getattr(clock, "drive", None)) is not None:  # it is moved by hand
        drive(made)
    return made


@contextlib.contextmanager
def kept(place: HeldPlace, resource: Resource) -> Iterator[None]:
    """Renew one's own leases of a resource in this block; a loss is left to their next use."""
    now, heartbeat = place.ledger.clock.now(), heartbeat_of(place)
    leases = [x for x in place.ledger.own_live() if x.answers_to(place.actor) and not x.parked]
    holds = [
        Hold(grant=grant_of(x), since=now, duration_ms=x.expires_at - now.wall_ms)
        for x in leases
        if x.resource == resource
    ]

    def unheard(_lost: Lost) -> None: ...

    heartbeat.keep(holds, unheard)
    try:
        yield
    finally:
        heartbeat.drop([x.grant.lease_id for x in holds], unheard)


def at_the_end(place: HeldPlace, lease_ids: Collection[str]) -> LedgerSession:
    """The session to release these leases with: it does not wait for a remote long past their end.

    A remote that answers, and is only busy with others' changes, is asked again for ``ENDING``,
    and for longer where its pushes are slow.
    """
    return place_at_the_end(place, lease_ids).ledger


def place_at_the_end(place: Place, lease_ids: Collection[str]) -> Place:
    """The same place with the limits of time of ``at_the_end``."""
    limit, least, leases = ENDING, ENDING_LEAST, list[Lease]()
    ledger = place.ledger
    with contextlib.suppress(GitleaseError):  # damaged: the release makes it anew
        leases = ledger.own_live()
        head = ledger.store.known(ledger.layer)
        if head is not None:  # the release must not be cut off where pushes are slow
            least = max(least, PUSHES * head.pace.push)
            limit = max(limit, least)
    if ends := [x.expires_at for x in leases if x.lease_id in lease_ids]:
        seconds = (max(ends) - ledger.clock.now().wall_ms) / MS
        # A remote that is away must not hold up the end of a run for longer than its lease lasts.
        limit = round(max(least, min(limit, seconds / CONTACTS)), 1)
    return place.again(time_limit=limit, patience=ENDING)


def _forget_heartbeats() -> None:
    # A forked child has neither the threads nor the grants of its parent's heartbeats.
    global _lock
    _lock = threading.Lock()
    _heartbeats.clear()


os.register_at_fork(after_in_child=_forget_heartbeats)
