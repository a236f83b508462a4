"""The invariants of the protocol over random lives: races, faults, wrong clocks, crashes of calls.

Every run is repeatable from its seed. ``pytest -m slow`` spends a larger budget of seeds.
"""

from __future__ import annotations

import pytest
from simulation.world import Broken, World

STEPS = 120
FEW = range(6)
MANY = range(100, 140)


def live(
    seed: int, *, observed: bool, faults: float = 0.25, steps: int = STEPS, skew: str = "60s"
) -> World:
    """One life of a world, checked all along, and its end."""
    world = World(seed, observed=observed, faults=faults)
    admins = world.people[0].actor.holder if seed % 2 else ""
    rule = "observed" if observed else "wall"
    world.begin({"ttl_max": "10m", "admins": admins, "rule": rule, "skew": skew})
    world.run(steps)
    world.settle()
    return world


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize("observed", [False, True], ids=["wall", "observed"])
def test_the_invariants_hold_in_a_faulty_world(seed: int, observed: bool) -> None:
    world = live(seed, observed=observed)
    assert world.done > STEPS
    assert world.held > 0


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", FEW)
def test_the_invariants_hold_where_most_requests_fail(seed: int) -> None:
    live(seed, observed=seed % 2 == 0, faults=0.8)


@pytest.mark.slow
def test_a_life_is_repeatable() -> None:
    one, again = (live(42, observed=False) for _ in range(2))
    assert one.true == again.true
    assert one.remote.requests == again.remote.requests
    assert sorted(one.outcomes.values()) == sorted(again.outcomes.values())


@pytest.mark.slow
def test_a_world_has_something_of_everything() -> None:
    seen: set[str] = set()
    for seed in FEW:
        seen |= set(live(seed, observed=False, faults=0.5).outcomes.values())
    assert {"ok", "held", "lost", "not_holder", "unknown_outcome", "unavailable"} <= seen


def test_the_checker_notices_an_allowance_that_is_too_small() -> None:
    with pytest.raises(Broken, match="S3"):  # noqa: PT012
        for seed in range(20):
            live(seed, observed=False, faults=0.1, skew="0s")


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY)
@pytest.mark.parametrize("observed", [False, True], ids=["wall", "observed"])
def test_the_invariants_hold_for_long(seed: int, observed: bool) -> None:
    live(seed, observed=observed, faults=(0.05, 0.3, 0.6)[seed % 3], steps=600)
