"""The composition root of whoever holds on: one heartbeat a process and ledger."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from gitlease.adapters.heartbeat import Heartbeat
from gitlease.adapters.system_clock import WokenClock
from gitlease.bootstrap import Workspace
from gitlease.domain.loss import Hold, early_ms
from gitlease.keeping import Keeper, Sight
from gitlease.ports import Clock
from gitlease.service import LeaseService
from gitlease.swapping import fresh_id

Key = tuple[str, str, str, str]

_lock = threading.Lock()
_heartbeats: dict[Key, Heartbeat] = {}


def in_a_run(workspace: Workspace, kind: str) -> Workspace:
    """The same place, in a session that was given by flag or environment, else in a random one.

    What a clone, an agent or a work tree is known as is not enough: two runs of one person must
    never renew or release each other's leases. What the person holds without a session is shared by
    all of their runs, and stays the person's.
    """
    if workspace.identity.actor.session_explicit:
        return workspace
    return workspace.again(run=f"{kind}-{fresh_id()[:12]}")


def heartbeat_of(workspace: Workspace) -> Heartbeat:
    """The heartbeat that this process has for a ledger: all that keep leases of it share it.

    Of a loss that this clone comes to know it tells at once for grants that are kept ``sharp``.
    """
    with _lock:
        key = _key(workspace)
        if key not in _heartbeats:
            _heartbeats[key] = new_heartbeat(workspace, sharp=False)
        return _heartbeats[key]


def new_heartbeat(
    workspace: Workspace, *, early: Callable[[Hold], int] = early_ms, sharp: bool = True
) -> Heartbeat:
    """A heartbeat of one's own; ``early`` says how long before its end a grant is given up, in ms.

    ``sharp``: what this clone comes to know of any grant is told at once, else with its renewal.
    It asks as the person, for whichever runs the grants are of, and opens the repository anew each
    time: what the settings say by then is what holds.
    """
    open_service = _opener(workspace)
    keeper = Keeper(open_service, clock=workspace.service.clock, early=early)
    return Heartbeat(keeper, glance=Sight(open_service).lost, sharp=sharp)


def waking_clock(woken: threading.Event) -> Clock:
    """This machine's clocks, whose ``sleep`` ends with InterruptedError once ``woken`` is set."""
    return WokenClock(woken)


def _opener(workspace: Workspace) -> Callable[[float], LeaseService]:
    def open_service(limit: float) -> LeaseService:
        opened = workspace.again(no_session=True, time_limit=limit, patience=2 * limit)
        return opened.service

    return open_service


def _key(workspace: Workspace) -> Key:
    return (
        workspace.repository.common_dir,
        workspace.layer,
        workspace.location.url or "",
        workspace.identity.actor.holder,
    )


def _forget() -> None:
    """In a forked child: its parent's heartbeats have no threads here, and its grants no owner."""
    global _lock
    _lock = threading.Lock()
    _heartbeats.clear()


os.register_at_fork(after_in_child=_forget)
