"""The composition root of whoever holds on: one heartbeat a process and ledger."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Hashable

from gitlease.core.errors import GitleaseError
from gitlease.core.instant import MS
from gitlease.core.loss import Hold, early_ms
from gitlease.engine.keeping import Keeper, Sight
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import Clock
from gitlease.engine.transaction import fresh_id
from gitlease.git.system_clock import WokenClock
from gitlease.runs.heartbeat import Heartbeat
from gitlease.wiring.workspace import Workspace

ENDING, ENDING_LEAST = 10.0, 1.0  # seconds for one contact, and for all tries, at the end
CONTACTS = 4  # that a release may wait for in vain

Key = tuple[Hashable, str]

_lock = threading.Lock()
_heartbeats: dict[Key, Heartbeat] = {}


def in_a_run(workspace: Workspace, kind: str, *, always: bool = False) -> Workspace:
    """The same place, in a session that was given by flag or environment, else in a random one.

    ``always``: in a random one, whatever was given.

    What a clone, an agent or a work tree is known as is not enough: two runs of one person must
    never renew or release each other's leases. What the person holds without a session is the run's
    alone for its time, and the person's again after it.
    """
    if workspace.identity.actor.session_explicit and not always:
        return workspace
    pid = 0 if kind == "dispatch" else os.getpid()  # what is dispatched has a process to come
    return workspace.again(run=f"{kind}-{fresh_id()[:12]}", pid=pid)


def heartbeat_of(workspace: Workspace) -> Heartbeat:
    """The heartbeat that this process has for a ledger: all that keep leases of it share it.

    Of a loss that this clone comes to know it tells at once for grants that are kept ``sharp``.
    """
    with _lock:
        key = workspace.ledger, workspace.identity.actor.holder
        if key not in _heartbeats:
            _heartbeats[key] = new_heartbeat(workspace, sharp=False)
        return _heartbeats[key]


def new_heartbeat(
    workspace: Workspace, *, early: Callable[[Hold], int] = early_ms, sharp: bool = True
) -> Heartbeat:
    """A heartbeat of one's own; ``early`` says how long before its end a grant is given up, in ms.

    ``sharp``: what this clone comes to know of any grant is told at once, else with its renewal.
    It asks as the person, for whichever runs the grants are of, and stays with the ledger and the
    holder that the workspace was opened with: what is checked out meanwhile is no loss.
    """

    def open_ledger(limit: float) -> LedgerSession:
        return workspace.again(no_session=True, time_limit=limit, patience=2 * limit).ledger

    clock = workspace.ledger.clock
    made = Heartbeat(
        Keeper(open_ledger, clock=clock, early=early), glance=Sight(open_ledger).lost, sharp=sharp
    )
    if (drive := getattr(clock, "drive", None)) is not None:  # it is moved by hand
        drive(made)
    return made


def waking_clock(workspace: Workspace, woken: threading.Event) -> Clock:
    """Its clock, whose ``sleep`` ends with InterruptedError once ``woken`` is set."""
    make: Callable[[threading.Event], Clock] = getattr(workspace.ledger.clock, "woken", WokenClock)
    return make(woken)


def at_the_end(workspace: Workspace, lease_ids: Collection[str]) -> LedgerSession:
    """The session for the release of these leases: it waits for no remote long after they ended.

    For a second each time in any case: a lease that is over by now may have left its task file.
    One that answers, and is only busy with others' changes, is asked again for ``ENDING``.
    """
    left = _left(workspace.ledger, lease_ids)
    limit = round(max(ENDING_LEAST, min(ENDING, left / CONTACTS)), 1)
    return workspace.again(time_limit=limit, patience=ENDING).ledger


def _left(ledger: LedgerSession, lease_ids: Collection[str]) -> float:
    """Seconds that the last of these leases has, by what this clone knows; for ever if nothing."""
    try:
        look = ledger.known_look()
    except GitleaseError:  # damaged: the release makes it anew
        look = None
    ends = [x.expires_at for x in (look.leases if look else ()) if x.lease_id in lease_ids]
    return (max(ends) - ledger.clock.now().wall_ms) / MS if ends else float("inf")


def _forget() -> None:
    """In a forked child: its parent's heartbeats have no threads here, and its grants no owner."""
    global _lock
    _lock = threading.Lock()
    _heartbeats.clear()


os.register_at_fork(after_in_child=_forget)
