"""A ledger that was deleted and restored several times while one clone was away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel.rules.values import F001, JO, KIM
from support.session import MemoryWorld

from gitlease.kernel.ledger.deleted import restore
from gitlease.kernel.rules.errors import LeaseLost, NotHolder, Rollback
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.resources import parse_resource

pytestmark = pytest.mark.default

LEE = Actor("lee@example.com", host="shed")
F002, F003 = map(parse_resource, ("F002", "F003"))


@pytest.fixture
def world() -> MemoryWorld:
    """Jo holds F001; Kim holds F002, which nobody else has seen."""
    world = MemoryWorld()
    world.of(JO).claim([F001])
    world.of(KIM).claim([F002])
    return world


def deleted_and_restored(world: MemoryWorld, *, clone: str = "", at_once: bool = False) -> None:
    """The ref is gone, and Jo brings it back as one of Jo's clones has seen it."""
    world.remote.force("global", "")
    restore(world.of(JO, clone=clone).session, at_once=at_once)


@pytest.mark.parametrize("times", [2, 3])
def test_clone_that_was_away_goes_on_after_several_restorations(
    world: MemoryWorld, times: int
) -> None:
    """S8: all but the first of them follow on states that Kim's clone never saw."""
    for _ in range(times):
        deleted_and_restored(world)
    assert world.of(KIM).renew([F002]).leases[0].token == 2


def test_clone_that_saw_one_restoration_goes_on_after_those_that_missed_it(
    world: MemoryWorld,
) -> None:
    """S8: the others follow on a state before the first, and hence before what Kim got since."""
    world.of(JO, clone="elsewhere").read()
    deleted_and_restored(world, at_once=True)
    token = world.of(KIM).claim([F003]).leases[0].token
    for _ in range(2):
        world.clock.advance(120)
        deleted_and_restored(world, clone="elsewhere")
    assert world.of(KIM).renew([F003]).leases[0].token == token


def test_restoration_by_a_clock_that_runs_behind_is_believed(world: MemoryWorld) -> None:
    """S8: the ledger waits already, and longer than by the clock of whoever restores it again."""
    deleted_and_restored(world)
    world.of(KIM).renew([F002])
    seen_by_kim = world.remote.refs["global"]
    world.clock.skew(-3_600)
    deleted_and_restored(world)
    header = world.remote.ledger(world.remote.refs["global"]).header
    assert header.closed_until == world.remote.ledger(seen_by_kim).header.closed_until
    world.of(KIM).note(F003, "half done")


def test_restoration_after_a_rollback_is_believed_and_takes_nothing_that_is_held(
    world: MemoryWorld,
) -> None:
    """S3, S8: an older state was put back and granted what Kim holds, before it was restored."""
    before = next(iter(world.remote.steps))
    world.remote.force("global", before)
    world.of(LEE).claim([F002])
    with pytest.raises(Rollback):
        world.of(KIM).renew([F002])
    world.remote.force("global", "")
    restore(world.of(LEE).session)
    with pytest.raises((LeaseLost, NotHolder)):
        world.of(KIM).renew([F002])
    assert world.holders() == [f"F001 {JO.holder}", f"F002 {LEE.holder}"]


def test_restoration_that_does_not_wait_makes_no_rollback_good(world: MemoryWorld) -> None:
    """S2: also where another step follows on it."""
    deleted_and_restored(world)
    step = world.remote.steps[world.remote.refs["global"]]
    header = replace(step.header, closed_until=None)
    world.remote.force("global", world.remote.keep(replace(step, header=header)))
    world.of(LEE).claim([F003])
    with pytest.raises(Rollback):
        world.of(KIM).renew([F002])
