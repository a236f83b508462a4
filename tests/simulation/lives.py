"""One whole life of a world, from its seed."""

from __future__ import annotations

import random
from types import SimpleNamespace
from unittest import mock

from ledger_checker.moves import Broken
from simulation.weather import Weather
from simulation.world import World

from gitlease.kernel.ledger import heads as head_watcher
from gitlease.kernel.ledger import transaction
from gitlease.kernel.rules.frozen import replace


def life(
    seed: int,
    *,
    observed: bool | None = None,
    weather: Weather | None = None,
    steps: int = 400,
    skew: str = "60s",
) -> World:
    """One life of a world, checked all along, and its end; what is not given is drawn."""
    dice = random.Random(f"life {seed}")
    observed = bool(seed % 2) if observed is None else observed
    drifting = observed and dice.random() < 0.3
    drawn = Weather(
        faults=dice.choice((0.05, 0.25, 0.25, 0.5, 0.8)),
        kills=dice.choice((0.0, 0.04, 0.15)),
        disturbed=dice.choice((0.02, 0.05, 0.2)),
        slow=dice.choice((0.05, 0.05, 0.3)),
        lagging=dice.choice((0.0, 0.0, 0.05, 0.3)),
        rollbacks=dice.choice((0.0, 0.0, 0.003)),
        drift=0.19 if drifting else 0.004,
    )
    if random.Random(f"upheavals {seed}").random() < 0.25:
        drawn = replace(drawn, upheavals=0.05, rollbacks=0.0, drift=0.004)
    world = World(seed, observed=observed, weather=weather or drawn)
    policy = {
        "ttl_max": "10m",
        "edges.abandoned_after": "1d",
        "admins": world.runs[0].actor.holder if dice.random() < 0.5 else "",
        "rule": "observed" if observed else "wall",
        "skew": skew,
        "drift": "50%" if drifting else "1%",
        "history": dice.choice(("replace", "replace", "append")),
    }
    ids = SimpleNamespace(SystemRandom=lambda: world.dice, Random=random.Random)
    with (
        mock.patch.object(transaction, "random", ids),
        mock.patch.object(head_watcher, "GLANCE", 3.0),
    ):
        try:
            world.begin(policy)
            world.run(steps)
            world.settle()
        except Broken as found:
            raise _first(found) from None
    return world


def _first(found: Broken) -> Broken:
    """The violation with which it began: what is cleaned up after it may come upon others."""
    before: BaseException | None = found
    while before is not None:
        found, before = before if isinstance(before, Broken) else found, before.__context__
    return found
