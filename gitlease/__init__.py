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
    from gitlease.faces.library.async_connection import AsyncConnection, connect_async
    from gitlease.faces.library.async_leases import AsyncLeases
    from gitlease.faces.library.connection import Connection, connect
    from gitlease.faces.library.gateway_answers import GatewayEvent
    from gitlease.faces.library.holding import Holding, hold
    from gitlease.faces.library.leases import Leases, PushAnswer, PushRefused, Session
    from gitlease.faces.library.opening import open, open_async, run, session
    from gitlease.faces.library.queue_types import Carry, Entry, LeftNote, QueueReading, Taken
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

_MODULES = {
    "gitlease.core.edge": "Progress Task",
    "gitlease.core.finding": "CheckRule Finding Level",
    "gitlease.core.loss": "Loss",
    "gitlease.core.resources.resource": "Resource",
    "gitlease.core.view": "Lease",
    "gitlease.core.work_push": "Became WorkRef",
    "gitlease.engine.queue.order": "Carried WhyNot",
    "gitlease.engine.sessions": "OwnSession",
    "gitlease.faces.library.gateway_answers": "GatewayEvent",
    "gitlease.faces.library.async_leases": "AsyncLeases",
    "gitlease.faces.library.connection": "Connection connect",
    "gitlease.faces.library.async_connection": "AsyncConnection connect_async",
    "gitlease.faces.library.holding": "Holding hold",
    "gitlease.faces.library.leases": "Leases PushAnswer PushRefused Session",
    "gitlease.faces.library.opening": "open open_async run session",
    "gitlease.faces.library.queue_types": "Carry Entry LeftNote QueueReading Taken",
    "gitlease.faces.library.reading": "CheckResult InitResult LedgerStatus LogEntry Setting WhoAmI",
    "gitlease.faces.library.running": "CannotExecute NoCommand RunResult WorkEvent WorkResult",
    "gitlease.faces.library.watching": "Subscription WatchEvent",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

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
    """Import a name when it is used: a hook that runs on every commit pays for nothing else."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(_MODULE_OF.get(name, "gitlease.core.errors"))
    return getattr(module, "LeaseHeld" if name == "ConflictError" else name)
