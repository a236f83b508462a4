"""The invariants where a whole ledger is deleted, restored, replaced and moved, by random lives."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import pytest
from simulation.lives import life
from simulation.machines import LAYER
from simulation.places import MOVED
from simulation.weather import Weather
from simulation.world import World

from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.resources import parse_resource

ROUGH = Weather(faults=0.2, kills=0.05, disturbed=0.03, lagging=0.05, upheavals=0.1)


@pytest.mark.default
@pytest.mark.parametrize("observed", [False, True], ids=["wall", "observed"])
def test_the_invariants_hold_when_a_ledger_is_deleted_and_moved(observed: bool) -> None:
    world = life(3, observed=observed, weather=ROUGH, steps=30)
    assert world.faults["deletion"] + world.faults["main names another place"] > 1


@pytest.mark.default
def test_a_lease_has_run_out_where_its_ledger_moved_back_and_the_clock_was_set_back() -> None:
    """S3: the old copy at the first place, and the wall clock, say nothing of when it was made."""
    world = World(0, observed=True, weather=Weather(faults=0.0, kills=0.0))
    admin, holder = world.runs[0], world.runs[2]
    with mock.patch.object(world, "elapse", return_value=None):
        world.begin({"rule": "observed", "admins": admin.actor.holder})
        assert world.command(holder, "read") == "ok"
        world.upheavals.main = MOVED
        assert world.command(admin, "move") == "ok"
        assert world.command(holder, "claim again", parse_resource("deploy")) == "ok"
        (lease,) = holder.own
        world.upheavals.main = LAYER
        assert world.command(admin, "move") == "ok"
        holder.machine.clock.step(-3_600.0)
        assert world.checker.believes(holder, lease)
        world.true += lease.ttl + 1
        assert world.command(holder, "read") == "ok"
        assert not world.checker.believes(holder, lease)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [411, 488, 536])
def test_long_lives_in_which_ledgers_move_back(seed: int) -> None:
    assert life(seed, steps=1_000).faults["main names another place"] > 1


@pytest.mark.slow
def test_upheavals_have_something_of_everything() -> None:
    faults, back, waived = Counter[str](), 0, 0
    for seed in (2, 3, 12, 21, 23, 30):
        world = life(seed, weather=ROUGH, steps=150)
        faults += world.faults
        back += world.checker.losses.put_back
        waived += world.checker.losses.waived
    assert faults.keys() >= {"deletion", "restore", "restore now", "new ledger"}
    assert faults["main names another place"] > 5
    assert back
    assert waived


@pytest.mark.slow
@pytest.mark.parametrize("seed", [19, 26, 77])
def test_clones_that_miss_several_restorations_go_on(seed: int) -> None:
    """In two of these lives a ledger is restored twice while a clone that has seen more is away.

    In the third, a lease that was taken over in the lost part is live again.
    """
    assert life(seed, weather=ROUGH, steps=150).faults["deletion"]


@pytest.mark.slow
@pytest.mark.parametrize("operations", [5_000, pytest.param(50_000, marks=pytest.mark.nightly)])
def test_the_invariants_hold_through_many_upheavals(operations: int) -> None:
    done, seed = 0, 900_000
    while done < operations:
        often = (0.03, 0.1, 0.3)[seed % 3]
        done += life(seed, weather=replace(ROUGH, upheavals=often), steps=150).done
        seed += 1
