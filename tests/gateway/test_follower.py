"""What listeners are told: once, in order, from where they were, and what cannot be told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.clock import ManualClock
from support.memory import MemoryClone, MemoryRemote, memory_ledger_store
from support.running import until
from support.session import ledger_session

from gitlease.gateway import follower
from gitlease.gateway.follower import FollowedEvent, Follower
from gitlease.gateway.gateway import SharedStore
from gitlease.kernel.ledger.claim import claim
from gitlease.kernel.ledger.heads import Pace
from gitlease.kernel.rules.errors import GitleaseError, Unavailable
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.resources import parse_resource

JO = Actor("jo@example.com")


class Ledger:
    """A ledger in memory that is changed past a gateway, and the gateway's follower."""

    def __init__(self) -> None:
        self.clock, self.remote = ManualClock(), MemoryRemote()
        own = memory_ledger_store(
            self.remote, clock=self.clock, clone=MemoryClone(), place="origin"
        )
        self.jo = ledger_session(own, clock=self.clock, actor=JO)
        theirs = memory_ledger_store(
            self.remote, clock=self.clock, clone=MemoryClone(), place="origin"
        )
        self.store = SharedStore(theirs, self.clock)
        self.follower = Follower(self.store, "global")

    def claims(self, *names: str) -> None:
        for name in names:
            claim(self.jo, [parse_resource(name)])

    def told(self, after: tuple[int, int]) -> list[str]:
        """What a listener is told at once that has seen this much."""
        found: list[FollowedEvent] = []
        self.clock.advance(5)  # so that the remote is asked
        self.follower.listen(found.append, after)()
        return [_word(x) for x in found]


Done = Callable[[], None]


class Turn:
    """A lock that tells how many have come to it."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock, self.waiting = lock, 0

    def __enter__(self) -> None:
        self.waiting += 1
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()


def eight(ledger: Ledger, ask: Callable[[], None], looks: list[Any], *claimed: str) -> Done:
    """Have one ask, and seven more while its look is under way; whoever is told ends it."""
    threads = [threading.Thread(target=ask) for _ in range(8)]
    threads[0].start()
    until(lambda: bool(looks), "it looks")
    turn = Turn(ledger.store._looks.turn)
    ledger.store._looks.turn = turn  # type: ignore[assignment]
    ledger.claims(*claimed)
    for one in threads[1:]:
        one.start()
    until(lambda: turn.waiting == 7, "they wait for it")

    def done() -> None:
        for one in threads:
            one.join(60)

    return done


def _word(told: FollowedEvent) -> str:
    return told.event.resource or "" if told.event else "gap"


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def test_it_goes_on_after_the_last_that_was_seen(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """History is read once for all that come back; what it does not reach is a gap."""
    ledger.claims("a", "b", "c", "d")
    read, asked = ledger.store.steps, list[str]()

    def steps(before, after, limit):  # type: ignore[no-untyped-def]
        asked.append(before.version)
        return read(before, after, limit)

    monkeypatch.setattr(ledger.store, "steps", steps)
    assert [ledger.told((0, 0)) for _ in range(3)] == [["a", "b", "c", "d"]] * 3
    assert asked == [""]
    assert ledger.told((3, 0)) == ["d"]
    assert ledger.told((4, 0)) == []
    monkeypatch.setattr(follower, "STEPS", 2)
    ledger.follower = Follower(ledger.store, "global")
    assert ledger.told((1, 0)) == ["gap", "c", "d"]
    assert ledger.told((2, 0)) == ["c", "d"]


def test_too_much_between_two_looks_is_a_gap(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "STEPS", 2)
    monkeypatch.setattr(follower, "PACE", Pace(soonest=3_600.0, longest=3_600.0, slower=1.0))
    ledger.follower = Follower(ledger.store, "global")
    ledger.claims("a")
    found: list[str] = []
    leave = ledger.follower.listen(lambda x: found.append(_word(x)))
    for names, told in ((("b", "c", "d"), "gap"), (("e",), "e")):
        ledger.claims(*names)
        ledger.store.adopt(ledger.store.fetch("global"))
        ledger.store.pushed.set()
        until(lambda told=told: told in found, f"{told} was told")  # type: ignore[misc]
    leave()
    assert found == ["gap", "e"]


def test_what_happens_past_the_gateway_is_told_by_the_next_look(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As far as after a look that took long, or failed.
    monkeypatch.setattr(follower, "PACE", replace(follower.PACE, longest=3_600.0))
    ledger.follower = Follower(ledger.store, "global")
    ledger.claims("a")
    found: list[str] = []
    leave = ledger.follower.listen(lambda x: found.append(_word(x)))
    for name in ("b", "c"):
        ledger.claims(name)
        until(lambda name=name: name in found, f"{name} was told")  # type: ignore[misc]
    leave()


def test_a_look_that_fails_fails_for_all_who_waited_for_it(ledger: Ledger) -> None:
    ledger.claims("a")
    looks, all_here, failed = list[str](), threading.Event(), list[str]()

    def fetch(layer: str, there: str = "", *, before_push: bool = False) -> None:
        looks.append(layer)
        assert all_here.wait(60)
        raise Unavailable("the remote is away")

    def ask() -> None:
        try:
            ledger.store.fetch("global")
        except GitleaseError as error:
            failed.append(error.message)

    ledger.store.inner.fetch = fetch  # type: ignore[method-assign, assignment]
    done = eight(ledger, ask, looks)
    all_here.set()
    done()
    assert (failed, len(looks)) == (["the remote is away"] * 8, 1)
    with pytest.raises(Unavailable):
        ledger.store.fetch("global")
    assert len(looks) == 2, "whoever comes later asks for itself"


def test_a_request_during_a_look_shares_the_next_one(ledger: Ledger) -> None:
    """S3: what a look that began before the request has seen is no answer to it."""
    ledger.claims("a")
    ledger.store.fetch("global")
    peeks, go_on, seen = list[int](), threading.Event(), list[int]()
    real = ledger.store.inner.peek

    def peek(layers):  # type: ignore[no-untyped-def]
        heads = real(layers)
        peeks.append(1)
        assert go_on.wait(60)
        return heads

    def ask() -> None:
        store = ledger.store.since_now()
        for _ in range(3):  # a request looks once, however often it reads
            head = store.fetch("global").ledger
            seen.append(len(list(head.every_lease())) if head else 0)

    ledger.store.inner.peek = peek  # type: ignore[method-assign]
    done = eight(ledger, ask, peeks, "b")
    go_on.set()
    done()
    assert sorted(seen)[3:] == [2] * 21
    assert len(peeks) == 2
