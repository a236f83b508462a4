"""Leases for repositories: the Git remote you already share is the lock server.

    import gitlease

    with gitlease.open(".") as leases:
        lease = leases.claim("F001", ttl="15m")
        leases.release("F001", note="half done, tests red")

    with gitlease.hold("F001", wait="5m") as lease:     # renews in the background, and releases
        work(fence=lease.token)
        lease.check()                                   # raises LeaseLost once it is lost

A lease keeps others who use gitlease from taking the same work; it expires by itself when its
holder goes quiet. What cannot check a token is not kept from anything: hand ``lease.token`` to
whatever can. Every refusal is a ``GitleaseError``: ``LeaseHeld`` names the holder and the time,
``LeaseLost`` means stop.

Where the project keeps its tasks in tracked files, a claim also writes who is assigned, and
``leases.claim_next()`` hands out the next task of the queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gitlease.domain.edge import Progress, Task
    from gitlease.domain.errors import (
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
    from gitlease.domain.errors import LeaseHeld as ConflictError
    from gitlease.domain.loss import Loss
    from gitlease.domain.queue import Carried, Carry, Entry, WhyNot
    from gitlease.domain.view import LeaseView as Lease
    from gitlease.faces.held import Holding, hold
    from gitlease.faces.library import Leases, QueueReading, Taken, open
    from gitlease.faces.session import Session, session
    from gitlease.faces.watch_library import Subscription, WatchEvent

_ERRORS = "gitlease.domain.errors"
_EDGE, _QUEUE = "gitlease.domain.edge", "gitlease.domain.queue"
_LIBRARY = "gitlease.faces.library"
_PLACES = {
    "open": (_LIBRARY, "open"),
    "hold": ("gitlease.faces.held", "hold"),
    "Holding": ("gitlease.faces.held", "Holding"),
    "session": ("gitlease.faces.session", "session"),
    "Session": ("gitlease.faces.session", "Session"),
    "Loss": ("gitlease.domain.loss", "Loss"),
    "Leases": (_LIBRARY, "Leases"),
    "WatchEvent": ("gitlease.faces.watch_library", "WatchEvent"),
    "Subscription": ("gitlease.faces.watch_library", "Subscription"),
    "Lease": ("gitlease.domain.view", "LeaseView"),
    "Task": (_EDGE, "Task"),
    "Progress": (_EDGE, "Progress"),
    "Entry": (_QUEUE, "Entry"),
    "WhyNot": (_QUEUE, "WhyNot"),
    "Carry": (_QUEUE, "Carry"),
    "Carried": (_QUEUE, "Carried"),
    "QueueReading": (_LIBRARY, "QueueReading"),
    "Taken": (_LIBRARY, "Taken"),
    "ConflictError": (_ERRORS, "LeaseHeld"),
}

__all__ = [
    "Carried",
    "Carry",
    "ConflictError",
    "Denied",
    "Entry",
    "GitleaseError",
    "Holding",
    "Invalid",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "Leases",
    "Loss",
    "NotARepository",
    "NotFound",
    "NotHolder",
    "NothingLeft",
    "PolicyRefused",
    "Progress",
    "QueueReading",
    "Rollback",
    "Session",
    "Subscription",
    "Taken",
    "Task",
    "Unavailable",
    "UnknownOutcome",
    "UsageError",
    "WaitTimeout",
    "WatchEvent",
    "WhyNot",
    "__version__",
    "hold",
    "open",
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
