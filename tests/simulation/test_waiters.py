"""Many wait for one resource: all are served, in their order, and nobody pays much for it (L1, L2).

A hundred people have a clone each, and requests take their time. All of it is virtual and repeats.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean

import pytest
from simulation.stage import Actor, Stage
from support.memory import MemoryClone, MemoryRemote, memory_ledger_store
from support.session import LeaseService, ledger_session

from gitlease.kernel.ledger import heads
from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.rules import lease as domain
from gitlease.kernel.rules.resources import Resource, parse_resource
from gitlease.verbs import wire

F001, F002 = parse_resource("F001"), parse_resource("F002")
HOUR = 3_600


@dataclass
class Queue:
    """People who wait for something, hold it for a while and give it back."""

    seed: int = 7
    latency: float = 0.2
    stage: Stage = field(default_factory=Stage)
    remote: MemoryRemote = field(default_factory=MemoryRemote)
    granted: list[tuple[str, float]] = field(default_factory=list)
    freed: list[float] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.remote.during = self._takes_its_time

    def _takes_its_time(self, kind: str) -> None:
        actor = self.stage.current
        if actor is not None:
            self.asked[kind] += 1
            self.stage.sleep(self.latency * self.dice.uniform(0.5, 1.5))

    def service(self, name: str) -> LeaseService:
        store = memory_ledger_store(self.remote, clock=self.stage, clone=MemoryClone())
        who = domain.Actor(f"{name}@example.com")
        dice = random.Random(f"{self.seed} {name}")
        return LeaseService(ledger_session(store, clock=self.stage, actor=who, dice=dice))

    def holds(self, name: str, seconds: float, *what: Resource) -> None:
        """Somebody has it from the beginning."""

        def play() -> None:
            service = self.service(name)
            service.claim(what or (F001,), ClaimOptions(ttl=4 * HOUR))
            self.stage.sleep(seconds)
            service.release(what or (F001,))
            self.freed.append(self.stage.true)

        self.stage.enter(Actor(name, play))

    def waits(
        self,
        name: str,
        at: float,
        *what: Resource,
        hold: float = 20.0,
        dies_at: float | None = None,
    ) -> None:
        """Somebody comes along, waits, holds it for a while, and gives it back."""

        def play() -> None:
            service = self.service(name)
            service.claim(what or (F001,), ClaimOptions(ttl=300), wait=4 * HOUR)
            self.granted.append((name, self.stage.true))
            self.stage.sleep(hold)
            service.release(what or (F001,))
            self.freed.append(self.stage.true)

        self.stage.enter(Actor(name, play, dies_at), at=at)

    def looks(self, at: float, look: Callable[[], object]) -> None:
        """Somebody looks at a time, and asks nobody's leave."""
        self.stage.enter(Actor("looks", lambda: self._unseen(look)), at=at)

    def naps(self, name: str, *, at: float, until: float) -> None:
        """The machine of somebody is asleep for a while."""
        self.stage.asleep[name] = (at, until)

    def _unseen(self, look: Callable[[], object]) -> None:
        self.remote.during, during = (lambda _kind: None), self.remote.during
        look()
        self.remote.during = during

    def line(self) -> list[str]:
        """Who waits now, as the ledger says it, in order."""
        reading = self.service("reader").read(resource=F001)
        return [t["holder"].partition("@")[0] for t in wire.waiting(reading.waiting)]

    def gaps(self) -> list[float]:
        """For how long it was nobody's before each grant but the first."""
        freed = sorted(self.freed)
        return [at - max(x for x in freed if x <= at) for _, at in self.granted]

    def names(self) -> list[str]:
        return [name for name, _ in self.granted]


@pytest.fixture(autouse=True)
def alone_in_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody shares a clone here, so nothing is missed by not looking at its own state."""
    monkeypatch.setattr(heads, "GLANCE", float(HOUR))


@pytest.mark.slow
def test_a_hundred_waiters_are_all_served_in_their_order() -> None:
    queue, many = Queue(), 100
    queue.holds("first", 120.0)
    names = [f"w{n:02d}" for n in range(many)]
    for number, name in enumerate(names):
        queue.waits(name, 1.0 + 0.7 * number, hold=8.0)
    shown: list[list[str]] = []
    queue.looks(110.0, lambda: shown.append(queue.line()))
    queue.stage.run()
    (line,) = shown
    assert sorted(line) == names, "everybody is shown"
    assert queue.names() == line, "and served in the order that was shown"
    assert max(queue.gaps()) < 3.0, "the next one notices soon (L1)"
    assert mean(queue.gaps()) < 1.0
    assert queue.line() == [], "and nobody is left in the line"
    asked, ran = queue.asked, queue.stage.true
    assert asked["push"] < 3 * many + 10, "a ticket, a claim and a release each"
    assert asked["fetch"] < 3 * ran, "the first in line looks often, and each brings others news"
    waited = sum(at for _, at in queue.granted)
    assert asked["peek"] < waited / 20, "far back in the line one looks seldom"
    assert asked["peek"] < 2 * ran, "all together they do not look twice a second"


def test_who_was_passed_over_while_alive_takes_its_old_place_again() -> None:
    """A machine that was asleep for a while: those behind went on, and then it is first."""
    queue = Queue()
    queue.holds("first", 100.0)
    queue.waits("sleeper", 1.0)
    for number, name in enumerate(("b", "c", "d")):
        queue.waits(name, 10.0 * (number + 1), hold=60.0)
    queue.naps("sleeper", at=60.0, until=150.0)
    queue.stage.run()
    assert queue.names() == ["b", "sleeper", "c", "d"]


def test_those_who_want_several_things_do_not_wait_for_each_other_for_ever() -> None:
    queue = Queue()
    queue.holds("first", 60.0, F001, F002)
    for number in range(6):
        what = (F001, F002) if number % 2 else (F002, F001)
        queue.waits(f"both{number}", 1.0 + number, *what, hold=5.0)
        queue.waits(f"one{number}", 1.5 + number, what[0], hold=5.0)
    queue.stage.run()
    assert len(queue.granted) == 12
    both = [name for name in queue.names() if name.startswith("both")]
    assert both == sorted(both)


def eventful(seed: int) -> None:
    """Waiters of every kind: all that live long enough are served, and none waits far too long."""
    dice = random.Random(seed)
    queue = Queue(seed=seed, latency=dice.choice((0.05, 0.3, 1.0)))
    queue.holds("first", 60.0)
    living = []
    for number in range(40):
        name, at = f"w{number:02d}", dice.uniform(5.0, 120.0)
        hold = dice.choice((0.5, 5.0, 30.0))
        dies_at = dice.uniform(at, 1_000.0) if dice.random() < 0.3 else None
        queue.waits(name, at, hold=hold, dies_at=dies_at)
        if dies_at is None:
            living.append(name)
    queue.stage.run()
    assert set(living) <= set(queue.names()), f"seed {seed}: L2: somebody starved"


@pytest.mark.slow
def test_nobody_starves_in_an_eventful_line() -> None:
    eventful(1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_nobody_starves_in_many_eventful_lines(seed: int) -> None:
    eventful(seed)
