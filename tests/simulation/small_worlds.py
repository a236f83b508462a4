"""The small worlds that are explored whole: who does what, and what may go wrong meanwhile."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from simulation.shared_state import OwnTime

from gitlease.kernel.rules.lease import Actor

OBSERVED = (
    ("skew", "0s"),
    ("ttl_min", "10s"),
    ("rule", "observed"),
    ("drift", "50%"),
    ("grace", "0s"),
)
USUAL = (("skew", "10s"), ("ttl_min", "10s"))
ABANDONED = (*USUAL, ("edges.abandoned_after", "1d"))
PATHS = "src/ src/*.py src/a.py"
ADMINS = (("skew", "10s"), ("ttl_min", "10s"), ("admins", "p0@example.com p1@example.com"))
PERSONS = tuple(Actor(f"p{n}@example.com") for n in range(3))
RUNS = tuple(Actor("p0@example.com", session=f"run-{n}") for n in range(3))
SESSIONS = tuple(Actor(f"p{n}@example.com", session=f"run-{n}") for n in range(3))
WRONG_CLOCKS = (
    OwnTime(wall_rate=0.25),  # its wall clock nearly stands: only the other one tells its time
    OwnTime(offset=-3_600, wall_rate=1.5, boot_rate=1.5),
    OwnTime(offset=3_600),
)


@dataclass(frozen=True)
class World:
    """What there is to explore.

    ``programs`` has, for each client, the verbs from which each of its commands is chosen.
    ``instants`` are the true seconds at which things happen, one after the other. ``silences`` is
    how many answers may fail to come, ``crashes`` how many commands may be killed. An undecided
    push is sent ``again`` so often before it is fenced off. ``actors`` are who the clients work as:
    each a person without a session, or a run of its own, of one person (``RUNS``) or of several.
    """

    name: str
    programs: tuple[tuple[tuple[str, ...], ...], ...]
    resources: tuple[str, ...]
    instants: tuple[float, ...] = (0, 6, 12, 18)
    times: tuple[OwnTime, ...] = (OwnTime(), OwnTime(offset=10), OwnTime(offset=5))
    policy: tuple[tuple[str, str], ...] = USUAL
    ttl: int = 10
    silences: int = 1
    crashes: int = 1
    again: int = 0
    ledger: bool = True
    actors: tuple[Actor, ...] = PERSONS


def worlds(clients: int, operations: int) -> list[World]:
    """The worlds of so many clients, each of which carries out so many commands at most."""

    def world(name: str, *programs: str, **fields: Any) -> World:
        resources = fields.pop("resources", "F001 F001 F001").split()
        steps = [
            tuple(tuple(step.split("|")) for step in program.split(", ")[:operations])
            for program in programs
        ]
        chosen = tuple(itertools.islice(itertools.cycle(steps), clients))
        return World(f"{name}, {clients} × {operations}", chosen, tuple(resources), **fields)

    usual = "claim, push, renew, release"
    any_verb = ", ".join(["claim|push|renew|release"] * 4)
    none: dict[str, Any] = {"silences": 0, "crashes": 0}
    once = (0,) if clients == 3 else (0, 12)  # three clients have enough ways without a lapse
    one: dict[str, Any] = {"instants": once, "crashes": 0}
    a_day: dict[str, Any] = {
        "resources": "T001 T001 T001",
        "instants": (0, 12, 86_405, 86_435),
        "policy": ABANDONED,
        **none,
    }
    return [
        world("silence", usual, **one),
        world("kills", usual, instants=once, silences=0),
        world("lapse", usual, instants=(0, 12) if clients == 3 else (0, 6, 12, 18), **none),
        world("silence and kills", "claim, release, claim, push", instants=(0,)),
        world("any verb", any_verb, instants=(0, 12) if operations < 4 else (0,), **none),
        world("unlike", "claim, extend, push, release", "note, claim, push, done", **one),
        world("revoked", usual, "revoke, claim, push, release", policy=ADMINS, **one),
        world("paths", usual, "claim, release, claim, push", resources=PATHS, **one),
        world("observed", usual, times=WRONG_CLOCKS, policy=OBSERVED, instants=(0, 8, 16), **none),
        world("no ledger", "claim, renew, release, claim", ledger=False, ttl=60, policy=(), **one),
        world("gateway", "claim for two, push, renew, release", instants=once, silences=0),
        world(
            "bound",
            "claim as the person, bind, unbind, bind",
            "bind, unbind, bind, unbind",
            instants=once,
            actors=RUNS,
            silences=0,
        ),
        world(
            "along",
            "keep, claim another, beat, claim another",
            "note, claim, beat, claim",
            instants=(0, 6, 17),
            silences=0,
        ),
        world(
            "picked",
            "pick, renew, pick, claim",
            "pick, pick, claim, renew",
            resources="T001 T001 T001",
            instants=(0, 12, 24),
            crashes=0,
        ),
        world("abandoned", "claim, renew, note, claim", "note, claim, note, claim", **a_day),
        world(
            "ended", "claim, end, note, claim", "note, claim, end, claim", actors=SESSIONS, **a_day
        ),
        world(
            "tries", "claim, release, note, claim", instants=(0,), silences=3, crashes=0, again=1
        ),
    ]
