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

import sys

__version__ = "1.0.0rc1"


def exports(package):
    """Return the ``__getattr__`` of a package: it imports a name when the name is first used.

    The package's stub, ``__init__.pyi``, lists what it exports. A hook that runs on every commit
    pays for nothing that it does not use.
    """

    names = {}

    def load(name):
        if not names:
            names.update(_exported(package))
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        # A module of the package, or a name of a module: looked up at every use, so that a test
        # may replace it there.
        __import__(f"{package}.{name}" if names[name] == package else names[name])
        return getattr(sys.modules[names[name]], name)

    return load


def _exported(package):
    """Read a package's exports from its stub, and their modules."""
    with open(f"{sys.modules[package].__file__}i", encoding="utf-8") as stub:
        imports = (line.split() for line in stub if line.startswith("from gitlease."))
        return {words[3]: words[1] for words in imports}


def __dir__():
    return sorted([*_exported(__name__), "__version__"])


_load = exports(__name__)


def __getattr__(name):
    return __dir__() if name == "__all__" else _load(name)
