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
    "Progress": "gitlease.kernel.rules.edge",
    "Task": "gitlease.kernel.rules.edge",
    "ConflictError": "gitlease.kernel.rules.errors",
    "Denied": "gitlease.kernel.rules.errors",
    "GitleaseError": "gitlease.kernel.rules.errors",
    "Invalid": "gitlease.kernel.rules.errors",
    "LeaseHeld": "gitlease.kernel.rules.errors",
    "LeaseLost": "gitlease.kernel.rules.errors",
    "Loss": "gitlease.kernel.rules.errors",
    "NotARepository": "gitlease.kernel.rules.errors",
    "NotFound": "gitlease.kernel.rules.errors",
    "NotHolder": "gitlease.kernel.rules.errors",
    "NothingLeft": "gitlease.kernel.rules.errors",
    "PolicyRefused": "gitlease.kernel.rules.errors",
    "Rollback": "gitlease.kernel.rules.errors",
    "Unavailable": "gitlease.kernel.rules.errors",
    "UnknownOutcome": "gitlease.kernel.rules.errors",
    "UsageError": "gitlease.kernel.rules.errors",
    "WaitTimeout": "gitlease.kernel.rules.errors",
    "Resource": "gitlease.kernel.rules.resources",
    "Became": "gitlease.kernel.rules.work",
    "CheckRule": "gitlease.verbs.findings",
    "Finding": "gitlease.verbs.findings",
    "Level": "gitlease.verbs.findings",
    "WorkRef": "gitlease.kernel.rules.work",
    "Taken": "gitlease.kernel.ledger.answers",
    "Carried": "gitlease.tasks.queue",
    "Carry": "gitlease.tasks.queue",
    "Entry": "gitlease.tasks.queue",
    "WhyNot": "gitlease.tasks.queue",
    "OwnSession": "gitlease.kernel.ledger.sessions",
    "AsyncConnection": "gitlease.library.connection",
    "Connection": "gitlease.library.connection",
    "GatewayEvent": "gitlease.library.connection",
    "connect": "gitlease.library.connection",
    "connect_async": "gitlease.library.connection",
    "Holding": "gitlease.library.holding",
    "hold": "gitlease.library.holding",
    "CannotExecute": "gitlease.library.leases",
    "Leases": "gitlease.library.leases",
    "NoCommand": "gitlease.library.leases",
    "PushAnswer": "gitlease.library.leases",
    "PushRefused": "gitlease.library.leases",
    "Session": "gitlease.library.leases",
    "Subscription": "gitlease.library.leases",
    "WatchEvent": "gitlease.library.leases",
    "AsyncLeases": "gitlease.library.opening",
    "open": "gitlease.library.opening",
    "open_async": "gitlease.library.opening",
    "run": "gitlease.library.opening",
    "session": "gitlease.library.opening",
    "Board": "gitlease.library.values",
    "BoardEntry": "gitlease.library.values",
    "BoardNews": "gitlease.library.values",
    "InitResult": "gitlease.library.values",
    "Lease": "gitlease.library.values",
    "LedgerStatus": "gitlease.library.values",
    "LeftNote": "gitlease.library.values",
    "LogEntry": "gitlease.library.values",
    "QueueReading": "gitlease.library.values",
    "RunResult": "gitlease.library.values",
    "WhoAmI": "gitlease.library.values",
    "WorkResult": "gitlease.library.values",
    "Landed": "gitlease.landing.landing",
    "WorkEvent": "gitlease.runs.verbs",
    "BrokenRule": "gitlease.check.replay",
    "Verified": "gitlease.check.replay",
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
