"""``fence`` of a token with which a resource was never granted."""

from __future__ import annotations

import pytest
from kernel.rules.values import F001, JO, KIM
from support.session import MemoryWorld

from gitlease.guard.whose import GrantHistory
from gitlease.kernel.ledger.deleted import restore
from gitlease.kernel.rules.errors import LeaseLost, Loss
from gitlease.kernel.rules.resources import parse_resource
from gitlease.landing.fenced_push import fence

pytestmark = pytest.mark.default

F002 = parse_resource("F002")


@pytest.fixture
def world() -> MemoryWorld:
    """Jo had F001 with token 1, and Kim has it with token 3; Jo has F002 with token 2."""
    world = MemoryWorld()
    world.of(JO).claim([F001])
    world.of(JO).claim([F002])
    world.of(JO).release([F001])
    world.of(KIM).claim([F001])
    return world


def refusal(world: MemoryWorld, token: int) -> LeaseLost:
    with pytest.raises(LeaseLost) as refused:
        fence(world.of(JO).session, F001, token)
    return refused.value


@pytest.mark.parametrize("token", [0, 2, 4, 10**12], ids=str)
def test_token_that_was_never_granted_is_no_loss(world: MemoryWorld, token: int) -> None:
    refused = refusal(world, token)
    assert refused.loss is None
    assert "never granted with this token" in refused.message
    assert [x.token for x in refused.conflicts] == [3]


def test_token_that_was_granted_before_is_lost(world: MemoryWorld) -> None:
    assert refusal(world, 1).loss is Loss.TAKEN_OVER
    world.of(KIM).release([F001])
    for token in (1, 3):
        assert refusal(world, token).loss is Loss.RELEASED_ELSEWHERE


def test_token_that_a_deletion_took_away_is_lost() -> None:
    """The history of a restored ledger does not have all grants."""
    world = MemoryWorld()
    world.of(KIM).claim([F002])
    world.of(JO).claim([F001])
    world.remote.force("global", "")
    restore(world.of(KIM).session)
    world.clock.advance(90_000)
    assert refusal(world, 2).loss is not None


def test_what_history_does_not_reach_is_unknown() -> None:
    """A token may be older than all events that are read."""
    world = MemoryWorld()
    for _ in range(3):
        world.of(JO).claim([F002])
        world.of(JO).release([F002])
    events = world.of(JO).log().events
    history = GrantHistory(lambda limit: events[:limit], limits=(1, 2))
    assert history.may_have(1, F001.key)
    whole = GrantHistory(lambda limit: events[:limit], limits=(1, 100))
    assert not whole.may_have(1, F001.key)
    assert whole.may_have(1, F002.key)
