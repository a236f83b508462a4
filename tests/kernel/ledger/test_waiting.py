"""Waiting and watching over a store in memory: when it is looked, what wakes, and what is told."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from statistics import median

import pytest
from kernel.ledger.test_service import World
from kernel.rules.values import F001, JO, KIM
from support.clock import ManualClock
from support.memory import Fault
from support.session import LeaseService
from support.snapshots import check_words, raises

from gitlease.kernel.ledger import heads as polling
from gitlease.kernel.ledger import wait as waiting
from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.ledger.watch import Watcher, WatchEvent
from gitlease.kernel.rules.errors import (
    LeaseHeld,
    PolicyRefused,
    Rollback,
    Unavailable,
    WaitTimeout,
)
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.ledger import Ledger
from gitlease.kernel.rules.moves.operations import TakeTicket
from gitlease.kernel.rules.moves.tickets import WINDOW, line
from gitlease.kernel.rules.resources import parse_resource

F002 = parse_resource("F002")
LEE = Actor("lee@example.com")


@dataclass
class ScriptedClock(ManualClock):
    """A clock on which things happen at their times, while somebody sleeps."""

    script: list[tuple[int, Callable[[], object]]] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        while self.script and self.wall_ms >= self.script[0][0]:
            _, act = self.script.pop(0)
            act()


class Scene(World):
    """A world in which others act while somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.clock: ScriptedClock = ScriptedClock()
        self.of(KIM).claim([F001])
        self.of(JO).read()
        self.asked()
        self.start = self.clock.wall_ms

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        """Something happens so long from the beginning. Its requests take no time, uncounted."""

        def quietly() -> None:
            before, during = list(self.remote.requests), self.remote.during
            self.remote.during = lambda _kind: None
            act()
            self.remote.requests, self.remote.during = before, during

        self.clock.script.append((self.start + round(seconds * 1_000), quietly))
        self.clock.script.sort(key=lambda entry: entry[0])

    def past(self) -> float:
        return (self.clock.wall_ms - self.start) / 1_000

    def line(self) -> list[str]:
        """Who waits, by what stands on the remote."""
        return [t.holder for t in line(self.ledger().tickets(F001), self.clock.wall_ms)]

    def ledger(self) -> Ledger:
        return self.remote.ledger(self.remote.refs["global"])

    def fails(self) -> None:
        """The remote is away until it heals."""
        self.remote.fetches.extend([Fault.UNREACHABLE] * 1_000)
        self.remote.pushes.extend([Fault.UNREACHABLE] * 1_000)

    def meanwhile(self, act: Callable[[], object]) -> None:
        """Somebody whom the remote answers does something, while it does not answer others."""
        self.heals()
        act()
        self.fails()

    def heals(self) -> None:
        self.remote.fetches.clear()
        self.remote.pushes.clear()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def test_a_wait_is_refused_once_stands_in_line_and_claims_with_the_same_push(scene: Scene) -> None:
    scene.after(20, lambda: scene.of(KIM).release([F001]))
    assert scene.of(JO).claim([F001], wait=300).status == "claimed"
    asked = scene.asked()
    assert asked[:2] == ["fetch", "push"]
    assert asked[-2:] == ["fetch", "push"], "it moved: fetched once, and had at once"
    assert set(asked[2:-1]) == {"fetch"}, "the first in line looks by fetching"
    assert scene.past() < 20 + 20 * waiting.PART_OF_WAIT + 0.1
    assert scene.line() == []


def test_what_another_process_of_the_clone_learns_wakes_without_a_connection(scene: Scene) -> None:
    def release_and_look() -> None:
        scene.of(KIM).release([F001])
        scene.of(JO).read()

    scene.after(33, release_and_look)
    assert scene.of(JO).claim([F001], wait=300).status == "claimed"
    assert scene.past() - 33 <= polling.GLANCE + 0.1
    assert scene.asked()[-1] == "push"
    assert scene.past() - 33 < 33 * waiting.PART_OF_WAIT * 0.7, "sooner than the next look"


def test_a_lapse_wakes_at_its_instant_and_costs_one_push(scene: Scene) -> None:
    (lease,) = scene.of(KIM).read().leases
    scene.asked()
    assert scene.of(JO).claim([F001], wait=3_600).status == "taken_over"
    assert lease.free_at is not None
    assert 0 < scene.clock.wall_ms / 1_000 - lease.free_at.timestamp() < 1
    assert scene.asked()[-2:] == ["fetch", "push"]


# --- the end of a wait ------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), InterruptedError()])
def test_whoever_is_interrupted_leaves_the_line(scene: Scene, error: BaseException) -> None:
    lines: list[list[str]] = []
    scene.after(10, lambda: lines.append(scene.line()))
    scene.clock.script.append((scene.start + 20_000, raising(error)))
    with pytest.raises(type(error)):
        scene.of(JO).claim([F001], wait=300)
    assert lines == [[JO.holder]]
    assert scene.line() == []
    assert scene.asked()[-1] == "push"


def test_what_waiting_does_not_change_ends_it(scene: Scene) -> None:
    scene.after(10, lambda: scene.of(KIM).complete(F001))
    with raises(PolicyRefused):
        scene.of(JO).claim([F001], wait=300)
    assert scene.past() < 10 + waiting.LOOK_ALONE
    assert scene.line() == []
    with pytest.raises(PolicyRefused):
        scene.of(JO).wait([F001])


@pytest.mark.parametrize("wait", [None, 1])
def test_who_polls_does_not_starve_who_waits(scene: Scene, wait: int | None) -> None:
    """L2: what is free is left to who waits, as long as a waiter is given to come forward."""
    refused: list[LeaseHeld | WaitTimeout] = []

    def poll() -> None:
        try:
            scene.of(LEE).claim([F001], wait=wait)
        except (LeaseHeld, WaitTimeout) as error:
            refused.append(error)

    for second in range(10, 40, 3):
        scene.after(second, poll)
    scene.after(20.5, lambda: scene.of(KIM).release([F001]))
    assert scene.of(JO).claim([F001], wait=300).status == "claimed"
    assert {error.code for error in refused} == {"held" if wait is None else "wait_timeout"}


def test_a_dead_waiter_delays_others_once_and_for_seconds(scene: Scene) -> None:
    """L1: whoever comes again after a while gets what is free, and the dead one is passed."""
    take = TakeTicket(
        id="dead", actor=JO, resources=(F001,), ticket="t", until=scene.clock.wall_ms + 10**6
    )
    scene.of(JO).session.step("wait", [take])
    scene.of(KIM).release([F001])
    with pytest.raises(LeaseHeld) as refused:
        scene.of(LEE).claim([F001])
    assert len(refused.value.waiting) == 1
    scene.clock.advance(WINDOW - 1)
    with pytest.raises(LeaseHeld):
        scene.of(LEE).claim([F001])
    scene.clock.advance(1)
    assert scene.of(LEE).claim([F001]).status == "claimed"
    assert scene.line() == []


def test_a_waiter_for_a_task_stands_in_line_for_its_paths(scene: Scene) -> None:
    def poll() -> None:
        with pytest.raises(LeaseHeld):
            scene.of(LEE).claim([parse_resource("src/part")])

    scene.after(20.5, lambda: scene.of(KIM).release([F001]))
    scene.after(20.6, poll)
    answer = scene.of(JO).claim([F001], ClaimOptions(paths=("src/",)), wait=300)
    assert answer.status == "claimed"
    assert not scene.ledger().every_ticket()


def test_a_remote_that_goes_away_and_comes_back_does_not_end_a_wait(scene: Scene) -> None:
    scene.after(10, scene.fails)
    scene.after(40, lambda: scene.meanwhile(lambda: scene.of(KIM).release([F001])))
    scene.after(100, scene.heals)
    assert scene.of(JO).claim([F001], wait=300).status == "claimed"
    assert 100 < scene.past() < 100 + waiting.LOOK_TROUBLED + 1
    assert scene.line() == []


def test_a_remote_that_never_comes_back_is_said_to_be_unavailable(scene: Scene) -> None:
    scene.after(10, scene.fails)
    with pytest.raises(Unavailable):
        scene.of(JO).claim([F001], wait=60)
    assert "push" not in scene.asked()[2:], "to leave the line would be tried for nothing"
    scene.heals()
    assert scene.line() == [], "and the ticket has run out by itself"
    scene.clock.naps.clear()
    scene.fails()
    with pytest.raises(Unavailable):
        scene.of(JO).claim([F001], wait=300)
    assert scene.clock.naps == [], "one that is away from the start is not waited for"


def test_without_a_ticket_it_is_waited_all_the_same(scene: Scene) -> None:
    scene.remote.pushes.extend([Fault.REFUSED] * 2 * 3)
    scene.after(50, lambda: scene.of(KIM).release([F001]))
    assert scene.of(JO).claim([F001], wait=300).status == "claimed"
    assert scene.past() - 50 <= 10


def test_a_claim_whose_fate_is_unknown_is_settled_by_the_next_look(scene: Scene) -> None:
    def release() -> None:
        scene.of(KIM).release([F001])
        scene.remote.pushes.append(Fault.UNANSWERED)
        scene.remote.fetches.extend([Fault.NONE, Fault.NONE, *[Fault.UNREACHABLE] * 3])

    scene.after(20, release)
    answer = scene.of(JO).claim([F001], wait=300)
    (lease,) = answer.leases
    assert lease.holder == JO.holder
    assert scene.holders() == [f"F001 {JO.holder}"]
    assert scene.line() == []


def test_a_rollback_ends_it(scene: Scene) -> None:
    old = scene.remote.refs["global"]
    scene.after(10, lambda: scene.remote.force("global", old))
    with pytest.raises(Rollback):
        scene.of(JO).claim([F001], wait=300)


def test_a_long_wait_renews_its_ticket_and_keeps_its_place(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "GLANCE", 60.0)
    day = 86_400
    scene.of(KIM).set_policy({"ttl_max": "1d"})
    scene.of(KIM).extend(F001, day)
    lines: list[list[str]] = []
    scene.after(1_000, lambda: scene.of(LEE).read())
    for days in (0.3, 0.5, 0.8):
        scene.after(days * day, lambda: lines.append(scene.line()))
    monkeypatch.setattr(waiting, "LOOK_LATER", 3_600.0)
    answer = scene.of(JO).claim([F001], wait=2 * day)
    assert answer.status == "taken_over"
    assert lines == [[JO.holder]] * 3


def test_wait_returns_when_it_is_free_and_leaves_nothing_behind(scene: Scene) -> None:
    scene.after(20, lambda: scene.of(KIM).release([F001]))
    assert scene.of(JO).wait([F001], seconds=300).status == "free"
    assert 20 <= scene.past() <= 30
    assert scene.holders() == []
    assert "push" not in scene.asked()


def test_a_wait_needs_no_ttl_within_the_limits(scene: Scene) -> None:
    jo = scene.of(JO)
    jo.session.terms = replace(jo.session.terms, default_ttl=9 * 86_400, ttl_is_default=False)
    with pytest.raises(PolicyRefused):
        jo.claim([F002])
    assert jo.wait([F002]).status == "free"


# --- watching ---------------------------------------------------------------------------------


def watch(
    scene: Scene,
    seconds: int,
    *what: str,
    scope: str = "*",
    troubles: list[str] | None = None,
) -> list[tuple[str, float, WatchEvent]]:
    """What is told, and when."""
    parts = [(parse_resource(word), scope) for word in what]
    told = [] if troubles is None else troubles
    watcher = Watcher(
        scene.of(LEE).session, parts, on_trouble=lambda error: told.append(error.message)
    )
    return [(f"{e.kind} {e.resource}", scene.past(), e) for e in watcher.events(seconds=seconds)]


def names(found: list[tuple[str, float, WatchEvent]]) -> list[str]:
    return [name for name, _, _ in found]


def test_a_watch_tells_every_kind_of_event(scene: Scene) -> None:
    def kim() -> LeaseService:
        return scene.of(KIM)

    def jo() -> LeaseService:
        return scene.of(JO)

    scene.after(20, lambda: kim().renew([F001]))
    scene.after(40, lambda: kim().release([F001]))
    scene.after(60, lambda: jo().claim([F001], ClaimOptions(ttl=30)))
    scene.after(200, lambda: kim().claim([F001]))
    scene.after(220, lambda: kim().set_policy({"admins": f"{JO.holder} {KIM.holder}"}))
    scene.after(240, lambda: jo().revoke(F001, reason="stuck"))
    scene.after(260, lambda: jo().claim([F001]))
    scene.after(280, lambda: jo().complete(F001))
    assert names(watch(scene, 320)) == [
        *("renewed F001", "released F001", "available F001", "claimed F001", "lapsed F001"),
        *("available F001", "taken_over F001", "revoked F001", "available F001"),
        *("claimed F001", "completed F001"),
    ]


def test_what_comes_and_goes_between_two_looks_is_told_with_its_times(scene: Scene) -> None:
    def again() -> None:
        scene.of(KIM).release([F001])
        scene.of(JO).claim([F001])
        scene.of(JO).release([F001])
        scene.of(KIM).claim([F001])

    scene.after(20, again)
    scene.after(21, again)
    found = watch(scene, 60)
    once = ("released", "available", "claimed")
    assert [name.partition(" ")[0] for name in names(found)] == [*once] * 4
    times = [round(event.at.timestamp() - scene.start / 1_000) for _, _, event in found]
    assert times == [20] * 6 + [21] * 6
    holders = [event.holder for _, _, event in found if event.kind == "claimed"]
    assert holders == [JO.holder, KIM.holder] * 2


def test_a_lapse_is_told_at_its_time_though_nobody_writes(scene: Scene) -> None:
    (lease,) = scene.of(KIM).read().leases
    found = watch(scene, 1_200)
    assert names(found) == ["lapsed F001", "available F001"]
    assert lease.free_at is not None
    for _, past, event in found:
        assert event.at == lease.free_at
        assert 0 <= past - (lease.free_at.timestamp() - scene.start / 1_000) < 0.5


def test_a_lapse_is_never_told_from_old_knowledge(scene: Scene) -> None:
    scene.of(KIM).claim([F002], ClaimOptions(ttl=30))
    scene.after(28, scene.fails)
    scene.after(29, lambda: scene.meanwhile(lambda: scene.of(KIM).renew([F002])))
    scene.after(125, scene.heals)
    troubles: list[str] = []
    found = watch(scene, 115, "F002", troubles=troubles)
    assert found == []
    check_words(troubles)


def test_a_watch_is_polite(scene: Scene) -> None:
    assert watch(scene, 600) == []
    asked = scene.asked()
    assert asked[0] == "fetch"
    assert set(asked[1:]) == {"peek"}
    assert len(asked) < 10 + 540 / 20
    for seconds in range(610, 1_210, 30):
        scene.after(seconds, lambda: scene.of(KIM).renew([F001]))
    found = watch(scene, 600)
    assert len(found) == 20
    assert scene.asked().count("fetch") <= 21


@pytest.mark.slow
def test_the_median_handover_of_the_first_minute_takes_two_seconds_at_most() -> None:
    """What is waited for ends at any order of magnitude of a minute equally likely."""
    rng, took = random.Random(7), list[float]()
    for seed in range(40):
        scene, end = Scene(), 0.1 * 600 ** rng.random()
        scene.dice = seed
        scene.after(end, partial(scene.of(KIM).release, [F001]))
        scene.of(JO).claim([F001], wait=300)
        took.append(scene.past() - end)
    assert median(took) <= 2
    assert max(took) <= 60 * waiting.PART_OF_WAIT + 0.3


# --- how often a wait looks -------------------------------------------------------------------

CONNECTION, PUSH = 0.5, 1.2  # seconds that a host takes for a read, and for an accepted push


def at_a_hosts_pace(scene: Scene, connection: float = CONNECTION, push: float = PUSH) -> None:
    """Every request takes its time from now on."""

    def takes(kind: str) -> None:
        scene.clock.advance(push if kind == "push" else connection)

    scene.remote.during = takes


def looks_of_a_wait(scene: Scene, seconds: int) -> list[tuple[str, float]]:
    """The kind and the time of each request of a wait that ends without a lease."""
    looks: list[tuple[str, float]] = []
    during = scene.remote.during

    def note(kind: str) -> None:
        looks.append((kind, scene.past()))
        during(kind)

    scene.remote.during = note
    with pytest.raises(WaitTimeout):
        scene.of(JO).claim([F001], wait=seconds)
    return looks


def stands_in_line(scene: Scene, who: Actor) -> None:
    until = scene.clock.wall_ms + 10**7
    take = TakeTicket(id="t", actor=who, resources=(F001,), ticket="t", until=until)
    scene.of(who).session.step("wait", [take])
    scene.clock.advance(1)  # two tickets of one instant are in no certain order


def test_a_release_is_claimed_within_a_second_two_connections_and_a_push() -> None:
    """At whichever instant of the pause between two looks it comes."""
    for number in range(40):
        scene = Scene()
        scene.dice = number
        at_a_hosts_pace(scene)
        released = 4 + 0.2 * number
        scene.after(released, partial(scene.of(KIM).release, [F001]))
        assert scene.of(JO).claim([F001], wait=300).status == "claimed"
        assert scene.past() - released <= 1.0 + 2 * CONNECTION + PUSH
        assert scene.asked()[-2:] == ["fetch", "push"]


@pytest.mark.parametrize(
    ("seconds", "connection", "most"),
    [(14, CONNECTION, 11), (60, CONNECTION, 30), (300, CONNECTION, 60), (300, 0.0, 66)],
)
def test_a_wait_asks_less_often_the_longer_it_lasts(
    seconds: int, connection: float, most: int
) -> None:
    for seed in range(5):
        scene = Scene()
        scene.dice = seed
        at_a_hosts_pace(scene, connection, push=2 * connection)
        assert len(looks_of_a_wait(scene, seconds)) <= most + 4  # the claim, its ticket, the end


def test_a_slow_remote_is_asked_half_of_the_time_at_most(scene: Scene) -> None:
    at_a_hosts_pace(scene, connection=5.0)
    asked = [at for kind, at in looks_of_a_wait(scene, 60) if kind == "fetch"]
    pauses = [later - sooner - 5.0 for sooner, later in pairwise(asked)]
    assert min(pauses[1:-1]) >= 5.0 * 0.7


def test_an_answer_that_another_process_of_the_clone_gets_saves_a_look(scene: Scene) -> None:
    for tenths in range(100, 600, 6):
        scene.after(tenths / 10, lambda: scene.of(JO).read())
    looks = [at for _, at in looks_of_a_wait(scene, 60)]
    assert not [at for at in looks if 11 < at < 60]
    assert max(y - x for x, y in pairwise(looks) if y < 10) <= waiting.PAUSE + 0.1


def test_who_is_second_in_line_asks_for_the_version_alone_every_few_seconds(scene: Scene) -> None:
    stands_in_line(scene, LEE)
    looks = [at for kind, at in looks_of_a_wait(scene, 300) if kind == "peek"]
    assert len(looks) <= 300 / (waiting.LOOK * 0.7)
    assert scene.asked().count("fetch") <= 3


def test_others_in_line_can_count_on_the_first(scene: Scene) -> None:
    scene.after(10, lambda: stands_in_line(scene, LEE))
    asked = [at for _, at in looks_of_a_wait(scene, 600)]
    assert max(y - x for x, y in pairwise(asked)) <= waiting.LOOK


def test_who_waits_without_a_claim_looks_a_dozen_times_in_a_minute() -> None:
    looks = []
    for seed in range(10):
        scene = Scene()
        scene.dice = seed
        with pytest.raises(WaitTimeout):
            scene.of(JO).wait([F001], seconds=60)
        looks.append(scene.asked().count("peek"))
    assert max(looks) <= 13
    assert median(looks) <= 12


def test_a_message_that_a_failed_attempt_brought_is_reported_when_the_wait_ends(
    scene: Scene,
) -> None:
    build = parse_resource("build")
    scene.of(JO).claim([build], ClaimOptions(any_name=True))

    def release() -> None:
        scene.of(KIM).note(build, "main is red", to_holder=True)
        scene.of(KIM).release([F001])
        scene.remote.pushes.append(Fault.UNREACHABLE)

    scene.after(20, release)
    answer = scene.of(JO).claim([F001], wait=300)
    assert answer.warnings.count('note on build by kim@example.com: "main is red"') == 1


def test_a_message_that_a_failed_attempt_brought_is_reported_if_the_remote_stays_away(
    scene: Scene,
) -> None:
    build = parse_resource("build")
    scene.of(JO).claim([build], ClaimOptions(any_name=True))

    def release() -> None:
        scene.of(KIM).note(build, "main is red", to_holder=True)
        scene.of(KIM).release([F001])
        scene.remote.pushes.extend([Fault.UNREACHABLE] * 1_000)
        scene.remote.fetches.extend([Fault.NONE, *[Fault.UNREACHABLE] * 1_000])

    scene.after(20, release)
    with pytest.raises(Unavailable) as away:
        scene.of(JO).claim([F001], wait=60)
    assert away.value.warnings.count('note on build by kim@example.com: "main is red"') == 1
