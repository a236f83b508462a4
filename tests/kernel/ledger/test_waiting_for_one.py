"""Waiting for any one of several resources: whichever becomes free first is claimed."""

from __future__ import annotations

import pytest
from kernel.ledger.test_waiting import LEE, Scene
from kernel.rules.values import F001, JO, KIM

from gitlease.kernel.ledger import wait as waiting
from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.rules.errors import LeaseHeld, PolicyRefused, WaitTimeout
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.moves.operations import TakeTicket
from gitlease.kernel.rules.resources import parse_resource

pytestmark = pytest.mark.default
F002, F003 = map(parse_resource, ("F002", "F003"))
ONE = ClaimOptions(one=True)
DAY = 86_400


@pytest.fixture
def scene() -> Scene:
    """Kim has F001 and F002, and F001 ends first."""
    scene = Scene()
    scene.of(KIM).claim([F002], ClaimOptions(ttl=3_000))
    scene.of(JO).read()
    scene.asked()
    return scene


def taken(scene: Scene, who: Actor = JO, wait: int = DAY) -> str:
    (lease,) = scene.of(who).claim([F002, F001], ONE, wait=wait).leases
    return lease.resource


def test_the_first_that_is_released_is_had_and_no_line_is_left(scene: Scene) -> None:
    lines: list[int] = []
    scene.after(10, lambda: lines.append(len(scene.ledger().every_ticket())))
    scene.after(20, lambda: scene.of(KIM).release([F001]))
    assert taken(scene) == "F001"
    assert scene.past() < 20 + waiting.LOOK_ALONE
    assert lines == [2], "it stands in both lines"
    assert not scene.ledger().every_ticket(), "and leaves both with one step"
    assert scene.asked()[-1] == "push"


def test_the_first_that_lapses_wakes_at_its_instant(scene: Scene) -> None:
    assert taken(scene) == "F001"
    assert 0 < scene.past() - (900 + 60) < 1


def test_what_should_be_free_by_now_hides_no_later_end(scene: Scene) -> None:
    """Kim goes on with what would have lapsed first; the other one ends in its time."""
    for second in range(300, 2_900, 300):
        scene.after(second, lambda: scene.of(KIM).renew([F001]))
    scene.after(2_950, lambda: scene.of(KIM).extend(F001, 2 * DAY))
    assert taken(scene) == "F002"
    assert 0 < scene.past() - 3_060 < waiting.LOOK_LATER + 1


def test_several_waiters_get_one_each_in_their_order(scene: Scene) -> None:
    got: list[str] = []
    scene.after(15, lambda: scene.of(KIM).release([F002]))
    scene.after(20, lambda: got.append(taken(scene, LEE, wait=60)))
    scene.after(30, lambda: scene.of(KIM).release([F001]))
    assert taken(scene) == "F002"
    assert not got, "Lee has not begun to wait"
    scene.clock.sleep(10)
    assert got == ["F001"]


def test_one_s_own_lease_is_in_the_way_until_it_ends(scene: Scene) -> None:
    """Another terminal of the same person, who works without a session."""
    with pytest.raises(WaitTimeout) as late:
        taken(scene, KIM, wait=60)
    assert late.value.resource == "F001"
    scene.after(100, lambda: scene.of(KIM).release([F002]))
    assert taken(scene, KIM) == "F002"


def test_what_no_wait_frees_ends_it_only_when_nothing_else_is_left(scene: Scene) -> None:
    """A task that is finished meanwhile is no reason to give up the other."""
    scene.after(10, lambda: scene.of(KIM).complete(F002))
    scene.after(20, lambda: scene.of(KIM).release([F001]))
    assert taken(scene) == "F001"
    scene.of(JO).complete(F001)
    with pytest.raises(PolicyRefused) as refused:
        taken(scene)
    assert refused.value.message.startswith("none of F002, F001 is free: F002 is completed")


def ticket(scene: Scene) -> None:
    until = scene.clock.wall_ms + 10**6
    take = TakeTicket(id="dead", actor=KIM, resources=(F003,), ticket="t", until=until)
    scene.of(KIM).session.step("wait", [take])
    scene.clock.sleep(1)


def test_what_is_left_to_a_waiter_is_passed_by_for_the_next_free_one(scene: Scene) -> None:
    ticket(scene)
    (lease,) = scene.of(JO).claim([F003, parse_resource("F004")], ONE).leases
    assert lease.resource == "F004"


def test_a_dead_waiter_delays_only_for_its_window(scene: Scene) -> None:
    ticket(scene)
    with pytest.raises(LeaseHeld) as refused:
        scene.of(LEE).claim([F001, F003, F002], ONE)
    assert (refused.value.resource, len(refused.value.waiting)) == ("F003", 1)
    began = scene.past()
    (lease,) = scene.of(LEE).claim([F001, F003, F002], ONE, wait=300).leases
    assert lease.resource == "F003"
    assert scene.past() - began < 15
    assert not scene.ledger().every_ticket()


def test_it_looks_at_its_copy_seldom_while_others_come_first(scene: Scene) -> None:
    """What is free is left to a waiter: nothing is decided again and again until then."""
    ticket(scene)
    scene.of(LEE).claim([F001, F003, F002], ONE, wait=300)
    assert len(scene.clock.naps) < 100
