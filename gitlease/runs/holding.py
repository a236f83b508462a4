"""The heartbeats of this process, one for each ledger, and the sessions of its runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from gitlease.core.errors import GitleaseError
from gitlease.core.instant import MS
from gitlease.core.loss import Hold, early_ms
from gitlease.engine.keeping import Keeper, Sight
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import Clock
from gitlease.engine.transaction import fresh_id
from gitlease.git.system_clock import WokenClock
from gitlease.runs.heartbeat import Heartbeat

if TYPE_CHECKING:
    from gitlease.runs.place import RunPlace

    Place = TypeVar("Place", bound=RunPlace)

ENDING, ENDING_LEAST = 10.0, 1.0  # seconds for one contact, and for all tries, at the end
CONTACTS = 4  # that a release may wait for in vain

_lock = threading.Lock()
_heartbeats: dict[tuple[LedgerSession, str], Heartbeat] = {}


def in_a_run(place: Place, kind: str, *, always: bool = False) -> Place:
    """The same place, in a session that was given by flag or environment, else in a random one.

    ``always``: in a random one, whatever was given. The session of a clone, an agent or a work tree
    is not enough: two runs of one person must never renew or release each other's leases. What the
    person holds without a session is the run's alone for its time, and the person's again after it.
    """
    if place.actor.session_explicit and not always:
        return place
    pid = 0 if kind == "dispatch" else os.getpid()  # what is dispatched has a process to come
    return place.again(run=f"{kind}-{fresh_id()[:12]}", pid=pid)


def heartbeat_of(place: RunPlace) -> Heartbeat:
    """The heartbeat of this process for a ledger, shared by all that keep leases of it.

    It reports a loss as soon as this clone learns of it for grants that are kept ``sharp``.
    """
    with _lock:
        key = place.ledger, place.actor.holder
        if key not in _heartbeats:
            _heartbeats[key] = new_heartbeat(place, sharp=False)
        return _heartbeats[key]


def new_heartbeat(
    place: RunPlace, *, early: Callable[[Hold], int] = early_ms, sharp: bool = True
) -> Heartbeat:
    """A heartbeat that is not shared.

    ``early`` says how many milliseconds before its end a grant is given up. ``sharp``: what this
    clone learns of any grant is reported at once, else with its renewal. It renews as the person,
    whichever runs the grants are of, and stays with the ledger and the holder that the place was
    opened with: what is checked out meanwhile is not a loss.
    """

    def open_ledger(limit: float) -> LedgerSession:
        return place.again(no_session=True, time_limit=limit, patience=2 * limit).ledger

    clock = place.ledger.clock
    made = Heartbeat(
        Keeper(open_ledger, clock=clock, early=early), glance=Sight(open_ledger).lost, sharp=sharp
    )
    if (drive := getattr(clock, "drive", None)) is not None:  # it is moved by hand
        drive(made)
    return made


def waking_clock(place: RunPlace, woken: threading.Event) -> Clock:
    """The clock of a place; its ``sleep`` raises InterruptedError once ``woken`` is set."""
    make: Callable[[threading.Event], Clock] = getattr(place.ledger.clock, "woken", WokenClock)
    return make(woken)


def at_the_end(place: RunPlace, lease_ids: Collection[str]) -> LedgerSession:
    """The session to release these leases with: it does not wait for a remote long past their end.

    Always for a second each time: a lease that is over may have left its edge. A remote that
    answers, and is only busy with others' changes, is asked again for ``ENDING``.
    """
    left = _seconds_left(place.ledger, lease_ids)
    limit = round(max(ENDING_LEAST, min(ENDING, left / CONTACTS)), 1)
    return place.again(time_limit=limit, patience=ENDING).ledger


def _seconds_left(ledger: LedgerSession, lease_ids: Collection[str]) -> float:
    try:
        look = ledger.known_look()
    except GitleaseError:  # damaged: the release makes it anew
        look = None
    ends = [x.expires_at for x in (look.leases if look else ()) if x.lease_id in lease_ids]
    return (max(ends) - ledger.clock.now().wall_ms) / MS if ends else float("inf")


def _forget_heartbeats() -> None:
    # A forked child has neither the threads nor the grants of its parent's heartbeats.
    global _lock
    _lock = threading.Lock()
    _heartbeats.clear()


os.register_at_fork(after_in_child=_forget_heartbeats)
