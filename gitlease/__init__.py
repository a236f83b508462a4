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

import importlib

__version__ = "1.0.0rc1"

# The public names with their modules, each loaded when it is first used: a hook that runs on every
# commit pays for nothing that it does not use. `__init__.pyi` says the same to type checkers.
_MODULES = {
    "CheckResult": "gitlease.check.rules",
    "Progress": "gitlease.core.edge",
    "Task": "gitlease.core.edge",
    "ConflictError": "gitlease.core.errors",
    "Denied": "gitlease.core.errors",
    "GitleaseError": "gitlease.core.errors",
    "Invalid": "gitlease.core.errors",
    "LeaseHeld": "gitlease.core.errors",
    "LeaseLost": "gitlease.core.errors",
    "Loss": "gitlease.core.errors",
    "NotARepository": "gitlease.core.errors",
    "NotFound": "gitlease.core.errors",
    "NotHolder": "gitlease.core.errors",
    "NothingLeft": "gitlease.core.errors",
    "PolicyRefused": "gitlease.core.errors",
    "Rollback": "gitlease.core.errors",
    "Unavailable": "gitlease.core.errors",
    "UnknownOutcome": "gitlease.core.errors",
    "UsageError": "gitlease.core.errors",
    "WaitTimeout": "gitlease.core.errors",
    "Resource": "gitlease.core.resources",
    "Became": "gitlease.core.work",
    "CheckRule": "gitlease.core.work",
    "Finding": "gitlease.core.work",
    "Level": "gitlease.core.work",
    "WorkRef": "gitlease.core.work",
    "Taken": "gitlease.engine.answers",
    "Carried": "gitlease.engine.queue",
    "Carry": "gitlease.engine.queue",
    "Entry": "gitlease.engine.queue",
    "WhyNot": "gitlease.engine.queue",
    "OwnSession": "gitlease.engine.sessions",
    "AsyncConnection": "gitlease.faces.library.connection",
    "Connection": "gitlease.faces.library.connection",
    "GatewayEvent": "gitlease.faces.library.connection",
    "connect": "gitlease.faces.library.connection",
    "connect_async": "gitlease.faces.library.connection",
    "Holding": "gitlease.faces.library.holding",
    "hold": "gitlease.faces.library.holding",
    "CannotExecute": "gitlease.faces.library.leases",
    "Leases": "gitlease.faces.library.leases",
    "NoCommand": "gitlease.faces.library.leases",
    "PushAnswer": "gitlease.faces.library.leases",
    "PushRefused": "gitlease.faces.library.leases",
    "Session": "gitlease.faces.library.leases",
    "Subscription": "gitlease.faces.library.leases",
    "WatchEvent": "gitlease.faces.library.leases",
    "AsyncLeases": "gitlease.faces.library.opening",
    "open": "gitlease.faces.library.opening",
    "open_async": "gitlease.faces.library.opening",
    "run": "gitlease.faces.library.opening",
    "session": "gitlease.faces.library.opening",
    "Board": "gitlease.faces.library.values",
    "BoardEntry": "gitlease.faces.library.values",
    "BoardNews": "gitlease.faces.library.values",
    "InitResult": "gitlease.faces.library.values",
    "Lease": "gitlease.faces.library.values",
    "LedgerStatus": "gitlease.faces.library.values",
    "LeftNote": "gitlease.faces.library.values",
    "LogEntry": "gitlease.faces.library.values",
    "QueueReading": "gitlease.faces.library.values",
    "RunResult": "gitlease.faces.library.values",
    "WhoAmI": "gitlease.faces.library.values",
    "WorkResult": "gitlease.faces.library.values",
    "Landed": "gitlease.push.landing",
    "WorkEvent": "gitlease.verbs.running",
    "BrokenRule": "gitlease.verify.replay",
    "Verified": "gitlease.verify.replay",
    "Setting": "gitlease.wiring.workspace",
}


def __getattr__(name: str) -> object:
    if name == "__all__":
        return __dir__()
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*_MODULES, "__version__"])
