"""A step reads before it pushes where a push on this clone's copy would probably be lost."""

from __future__ import annotations

import pytest
from support.paced_world import PacedWorld

from gitlease.kernel.rules.errors import LeaseHeld, Unavailable
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.resources import parse_resource

JO, KIM = Actor("jo@example.com"), Actor("kim@example.com")
READ_AND_PUSH = ["fetch", "push"]


def in_a_team(world: PacedWorld) -> PacedWorld:
    """Let others change the ledger every 20 seconds, and Jo see it each time; then once more."""
    world.claim(JO, "first")
    for number in range(6):
        world.claim(KIM, f"K{number}")
        world.clock.advance(20)
        if number < 5:
            world.of(JO).read()
    world.clock.advance(20)
    world.asked()
    return world


@pytest.fixture
def team() -> PacedWorld:
    return in_a_team(PacedWorld())


def test_a_claim_in_a_busy_team_reads_first(team: PacedWorld) -> None:
    team.claim(JO, "F1")
    assert team.asked() == READ_AND_PUSH


def test_alone_nothing_is_read_first() -> None:
    world = PacedWorld()
    for number in range(4):
        world.claim(JO, f"F{number}")
        world.clock.advance(600)
    world.asked()
    world.claim(JO, "F9")
    assert world.asked() == ["push"]


def test_right_after_a_read_nothing_is_read_again(team: PacedWorld) -> None:
    team.of(JO).read()
    team.asked()
    team.claim(JO, "F1")
    assert team.asked() == ["push"]


def test_a_remote_that_answers_at_once_is_not_read_first() -> None:
    world = in_a_team(PacedWorld(read=0.02, push=0.03))
    world.claim(JO, "F1")
    assert world.asked() == ["push", "fetch", "push"]


def test_a_refusal_from_what_was_read_first_is_final(team: PacedWorld) -> None:
    with pytest.raises(LeaseHeld):
        team.claim(JO, "K5")
    assert team.asked() == ["fetch"]


def test_a_release_reads_first_sooner_than_a_claim(team: PacedWorld) -> None:
    team.of(JO).read()
    team.claim(JO, "F1")
    team.clock.advance(10)
    team.claim(KIM, "K9")
    team.asked()
    team.of(JO).release([parse_resource("F1")])
    assert team.asked() == READ_AND_PUSH


def test_at_the_age_at_which_a_release_reads_a_claim_does_not(team: PacedWorld) -> None:
    team.of(JO).read()
    team.claim(JO, "F1")
    team.clock.advance(10)
    team.asked()
    team.claim(JO, "F2")
    assert team.asked() == ["push"]


def test_a_read_that_fails_leaves_nothing_pending(team: PacedWorld) -> None:
    from support.memory import Fault

    team.remote.fetches.append(Fault.UNREACHABLE)
    with pytest.raises(Unavailable):
        team.claim(JO, "F1")
    assert team.asked() == ["fetch"]
    assert team.clones[JO.holder].state("global").pending(living=True) == []
