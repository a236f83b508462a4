"""Failed and waiting tasks by the service: steps counted, the queue, and a person's word."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core.values import F001, JO, KIM
from support.memory import Fault
from support.session import MemoryWorld
from support.tasks import task

from gitlease.core import LEFT_ALONE, Actor, Grant, NothingLeft
from gitlease.engine import Answer, ClaimOptions, WhyNot

POOL = replace(JO, session="work-1", session_explicit=True)
NOTE = "exit 3 on laptop"
PICKED = ClaimOptions(picked=True)


def grants(answer: Answer) -> list[Grant]:
    return [Grant(F001, x.scope, x.session, x.lease_id, x.token) for x in answer.leases]


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(task("F001"))


def fail(world: MemoryWorld, who: Actor = POOL) -> Answer:
    answer, _ = world.queue(who).claim_next(PICKED)
    world.asked()
    return world.of(who).give_back(grants(answer), note=NOTE, commit=None, failed=True)


def why(world: MemoryWorld, who: Actor = KIM) -> WhyNot | None:
    (entry,) = world.queue(who).queue().entries
    return entry.why_not


def test_failure_is_one_push_with_note_edge_and_count(world: MemoryWorld) -> None:
    """S8: no kill lies between the release and its count."""
    answer = fail(world)
    assert world.asked() == ["push"]
    assert (answer.status, answer.edge) == ("released", "removed")
    (entry,) = world.queue(KIM).queue().entries
    assert entry.setback is not None
    assert (entry.why_not, entry.claimable) == (WhyNot.FAILED, False)
    assert (entry.setback.failures, entry.setback.last.author) == (1, JO.holder)
    own = world.of(POOL).session.setback_of(F001)
    assert own == entry.setback, "its pool need not ask the remote"


def test_next_of_everybody_waits_until_the_time_is_over(world: MemoryWorld) -> None:
    fail(world)
    for who in (KIM, JO, POOL):
        with pytest.raises(NothingLeft):
            world.queue(who).claim_next(ClaimOptions())
    world.clock.advance(LEFT_ALONE)
    assert why(world) is None
    fail(world)
    world.clock.advance(2 * LEFT_ALONE - 1)
    assert why(world) is WhyNot.FAILED
    world.clock.advance(1)
    fail(world)
    world.clock.advance(10**6)
    assert why(world) is WhyNot.FAILED


def test_note_of_a_person_hands_it_out_again_and_of_a_session_not(world: MemoryWorld) -> None:
    fail(world)
    world.of(POOL).note(F001, "see the log")
    assert why(world) is WhyNot.FAILED
    world.of(KIM).note(F001, "the disk was full")
    assert why(world) is None


@pytest.mark.parametrize("fault", [Fault.UNANSWERED, Fault.LOST, Fault.LATE])
def test_failure_counts_once_whatever_becomes_of_its_push(world: MemoryWorld, fault: Fault) -> None:
    """S6."""
    answer, _ = world.queue(POOL).claim_next(PICKED)
    world.remote.pushes.append(fault)
    world.remote.late_by = 2
    world.of(POOL).give_back(grants(answer), note="exit 1", commit=None, failed=True)
    world.of(KIM).read()
    setback = world.of(KIM).session.setback_of(F001)
    assert setback is not None
    assert setback.failures == 1
