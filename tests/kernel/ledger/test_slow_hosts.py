"""Limits of time where pushes are slow: a slow host is no contended one."""

from __future__ import annotations

import pytest
from support.paced_world import PacedWorld
from support.snapshots import check_words

from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.ledger.heartbeat import place_at_the_end
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.rules.errors import Unavailable
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.resources import parse_resource

JO, KIM = Actor("jo@example.com"), Actor("kim@example.com")


@pytest.mark.parametrize(("push", "seconds"), [(0.5, 60), (1.2, 60), (2.4, 120), (6.0, 300)])
def test_a_change_is_tried_for_longer_and_says_for_how_long(push: float, seconds: int) -> None:
    world = PacedWorld(read=push / 3, push=push)
    world.claim(JO, "first")
    world.claim(KIM, "K")
    pass_time, began = world.remote.during, world.clock.boot_ms
    numbers = iter(range(100_000))

    def overtake(kind: str) -> None:
        pass_time(kind)
        if kind == "push":
            world.remote.during = lambda _kind: None
            world.claim(KIM, f"K{next(numbers)}")
            world.remote.during = overtake

    world.remote.during = overtake
    with pytest.raises(Unavailable) as refused:
        world.claim(JO, "F1")
    assert seconds < (world.clock.boot_ms - began) / 1_000 < seconds + 5 * push + 10
    check_words(refused.value.message)


class PlaceAtTheEnd:
    """A place that notes with which limits it is opened again."""

    def __init__(self, ledger: LedgerSession) -> None:
        self.ledger, self.actor = ledger, ledger.actor
        self.limits: dict[str, float] = {}

    def again(self, **limits: float) -> PlaceAtTheEnd:
        self.limits = limits
        return self


@pytest.mark.parametrize(("push", "limit"), [(0.5, 2.4), (1.2, 2.4), (2.7, 5.4), (9.0, 18.0)])
def test_the_release_at_the_end_is_not_cut_off(push: float, limit: float) -> None:
    world = PacedWorld(read=0.1, push=push)
    session = world.of(JO)
    answer = session.claim([parse_resource("F1")], ClaimOptions(ttl=10))
    place = PlaceAtTheEnd(world.of(JO).session)
    place_at_the_end(place, [x.lease_id for x in answer.leases])
    assert place.limits["time_limit"] == limit
