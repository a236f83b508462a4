"""Leases for repositories: the Git remote you already share is the lock server.

    import gitlease

    with gitlease.open(".") as leases:
        lease = leases.claim("F001", ttl="15m")
        leases.release("F001", note="half done, tests red")

    with gitlease.hold("F001", wait="5m") as held:      # renews in the background, and releases
        work(fence=held.token)
        held.check()                                    # raises LeaseLost once it is lost

    result = gitlease.run(["make", "test"], "F001")     # a command that runs while it is held

    async with gitlease.open_async(".") as awaited:     # the same verbs, awaited
        lease = await awaited.claim("F001", wait="5m")

A lease keeps others who use gitlease from taking the same work; it expires by itself when its
holder goes quiet. What cannot check a token is not kept from anything: hand ``lease.token`` to
whatever can. Every refusal is a ``GitleaseError``: ``LeaseHeld`` names the holder and the time,
``LeaseLost`` means stop.

Where the project keeps its tasks in tracked files, a claim also writes who is assigned, and
``leases.claim_next()`` hands out the next task of the queue; ``leases.work(command)`` is a pool
that has a command work on one after the other. ``@leases.on_available(…)`` calls back when
something may be claimed, ``@leases.on_assignment`` when a task is newly assigned to you.
``gitlease.connect(url, token=…)`` speaks to a gateway, without git, and ``gitlease.testing`` has a
ledger in memory for your own tests.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it: `typing` takes longer than all else for --version

__version__ = "0.1.0"

if TYPE_CHECKING:
    from typing import Any

    from gitlease.core.edge import Progress, Task
    from gitlease.core.errors import (
        Denied,
        GitleaseError,
        Invalid,
        LeaseHeld,
        LeaseLost,
        NotARepository,
        NotFound,
        NothingLeft,
        NotHolder,
        PolicyRefused,
        Rollback,
        Unavailable,
        UnknownOutcome,
        UsageError,
        WaitTimeout,
    )
    from gitlease.core.errors import LeaseHeld as ConflictError
    from gitlease.core.finding import CheckRule, Finding, Level
    from gitlease.core.loss import Loss
    from gitlease.core.resources.resource import Resource
    from gitlease.core.view import Lease
    from gitlease.core.work_push import Became, WorkRef
    from gitlease.engine.queue.order import Carried, WhyNot
    from gitlease.engine.sessions import OwnSession
    from gitlease.faces.library.answered import GatewayEvent
    from gitlease.faces.library.awaited import AsyncLeases
    from gitlease.faces.library.connected import (
        Connection,
        connect,
    )
    from gitlease.faces.library.connected_async import AsyncConnection, connect_async
    from gitlease.faces.library.held import Holding, hold
    from gitlease.faces.library.leases import Leases, PushAnswer, PushRefused, Session
    from gitlease.faces.library.opening import open, open_async, run, session
    from gitlease.faces.library.queued import Carry, Entry, LeftNote, QueueReading, Taken
    from gitlease.faces.library.reading import (
        CheckResult,
        InitResult,
        LedgerStatus,
        LogEntry,
        Setting,
        WhoAmI,
    )
    from gitlease.faces.library.running import (
        CannotExecute,
        NoCommand,
        RunResult,
        WorkEvent,
        WorkResult,
    )
    from gitlease.faces.library.watching import Subscription, WatchEvent

_ERRORS, _EDGE = "gitlease.core.errors", "gitlease.core.edge"
_QUEUE, _QUEUED = "gitlease.engine.queue.order", "gitlease.faces.library.queued"
_LIBRARY, _OPENING = "gitlease.faces.library.leases", "gitlease.faces.library.opening"
_RUNNING, _READING = "gitlease.faces.library.running", "gitlease.faces.library.reading"
_FINDING, _WORK = "gitlease.core.finding", "gitlease.core.work_push"
_CONNECTED = "gitlease.faces.library.connected"
_PLACES = {
    "open": (_OPENING, "open"),
    "open_async": (_OPENING, "open_async"),
    "AsyncLeases": ("gitlease.faces.library.awaited", "AsyncLeases"),
    "connect": (_CONNECTED, "connect"),
    "connect_async": (f"{_CONNECTED}_async", "connect_async"),
    "Connection": (_CONNECTED, "Connection"),
    "AsyncConnection": (f"{_CONNECTED}_async", "AsyncConnection"),
    "GatewayEvent": ("gitlease.faces.library.answered", "GatewayEvent"),
    "run": (_OPENING, "run"),
    "RunResult": (_RUNNING, "RunResult"),
    "WorkEvent": (_RUNNING, "WorkEvent"),
    "WorkResult": (_RUNNING, "WorkResult"),
    "hold": ("gitlease.faces.library.held", "hold"),
    "Holding": ("gitlease.faces.library.held", "Holding"),
    "session": (_OPENING, "session"),
    "Session": (_LIBRARY, "Session"),
    "PushAnswer": (_LIBRARY, "PushAnswer"),
    "PushRefused": (_LIBRARY, "PushRefused"),
    "WorkRef": (_WORK, "WorkRef"),
    "Became": (_WORK, "Became"),
    "CannotExecute": (_RUNNING, "CannotExecute"),
    "NoCommand": (_RUNNING, "NoCommand"),
    "Resource": ("gitlease.core.resources.resource", "Resource"),
    "CheckRule": (_FINDING, "CheckRule"),
    "CheckResult": (_READING, "CheckResult"),
    "InitResult": (_READING, "InitResult"),
    "LogEntry": (_READING, "LogEntry"),
    "Setting": (_READING, "Setting"),
    "LedgerStatus": (_READING, "LedgerStatus"),
    "WhoAmI": (_READING, "WhoAmI"),
    "Finding": (_FINDING, "Finding"),
    "Level": (_FINDING, "Level"),
    "OwnSession": ("gitlease.engine.sessions", "OwnSession"),
    "Loss": ("gitlease.core.loss", "Loss"),
    "Leases": (_LIBRARY, "Leases"),
    "WatchEvent": ("gitlease.faces.library.watching", "WatchEvent"),
    "Subscription": ("gitlease.faces.library.watching", "Subscription"),
    "Lease": ("gitlease.core.view", "Lease"),
    "Task": (_EDGE, "Task"),
    "Progress": (_EDGE, "Progress"),
    "Entry": (_QUEUED, "Entry"),
    "WhyNot": (_QUEUE, "WhyNot"),
    "Carry": (_QUEUED, "Carry"),
    "Carried": (_QUEUE, "Carried"),
    "QueueReading": (_QUEUED, "QueueReading"),
    "Taken": (_QUEUED, "Taken"),
    "LeftNote": (_QUEUED, "LeftNote"),
    "ConflictError": (_ERRORS, "LeaseHeld"),
}

__all__ = [
    "AsyncConnection",
    "AsyncLeases",
    "Became",
    "CannotExecute",
    "Carried",
    "Carry",
    "CheckResult",
    "CheckRule",
    "ConflictError",
    "Connection",
    "Denied",
    "Entry",
    "Finding",
    "GatewayEvent",
    "GitleaseError",
    "Holding",
    "InitResult",
    "Invalid",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "Leases",
    "LedgerStatus",
    "LeftNote",
    "Level",
    "LogEntry",
    "Loss",
    "NoCommand",
    "NotARepository",
    "NotFound",
    "NotHolder",
    "NothingLeft",
    "OwnSession",
    "PolicyRefused",
    "Progress",
    "PushAnswer",
    "PushRefused",
    "QueueReading",
    "Resource",
    "Rollback",
    "RunResult",
    "Session",
    "Setting",
    "Subscription",
    "Taken",
    "Task",
    "Unavailable",
    "UnknownOutcome",
    "UsageError",
    "WaitTimeout",
    "WatchEvent",
    "WhoAmI",
    "WhyNot",
    "WorkEvent",
    "WorkRef",
    "WorkResult",
    "__version__",
    "connect",
    "connect_async",
    "hold",
    "open",
    "open_async",
    "run",
    "session",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Load what is asked for: a hook that runs on every commit pays for nothing else."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _PLACES.get(name, (_ERRORS, name))
    return getattr(import_module(module), attribute)
