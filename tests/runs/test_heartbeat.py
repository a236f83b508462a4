"""The threads of a heartbeat: they renew, watch, tell, pause and end, whatever a renewal does."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import cast

import pytest
from support.running import until

from gitlease.core import Grant, Hold, Instant, Loss, Lost, parse_resource
from gitlease.engine import Keeper, RenewalResult
from gitlease.runs import Heartbeat, heartbeat

LONG = 30.0
A = Hold(
    grant=Grant(parse_resource("A"), "*", None, "id-a", 1),
    since=Instant(wall_ms=0, boot_ms=0, boot_id="b"),
    duration_ms=900_000,
)
B = Hold(grant=Grant(parse_resource("B"), "*", None, "id-b", 2), since=A.since, duration_ms=900_000)


class Script:
    """A keeping whose answers a test gives: everything is due, and over, when the test says so."""

    def __init__(self) -> None:
        self.kept: dict[str, Hold] = {}
        self.due, self.over = False, set[str]()
        self.beats: list[tuple[str, ...]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.inside = threading.Event()
        self.lose: tuple[Lost, ...] = ()

    def add(self, holds: Sequence[Hold]) -> None:
        self.kept |= {hold.grant.lease_id: hold for hold in holds}

    def drop(self, lease_ids: Sequence[str]) -> None:
        for lease_id in lease_ids:
            self.kept.pop(lease_id, None)

    def due_in(self) -> float | None:
        return (0.0 if self.due else 5.0) if self.kept else None

    def batch(self) -> tuple[Hold, ...]:
        return tuple(self.kept.values()) if self.due else ()

    def renew(self, batch: Sequence[Hold]) -> RenewalResult:
        self.inside.set()
        assert self.gate.wait(LONG)
        self.beats.append(tuple(hold.grant.lease_id for hold in batch))
        self.due = False
        return RenewalResult(asked=tuple(batch), lost=self.lose)

    def wishes(self) -> None:
        """Nobody else of the clone is asked."""

    def settle(self, beat: RenewalResult) -> tuple[Lost, ...]:
        lost = tuple(x for x in beat.lost if x.hold.grant.lease_id in self.kept)
        self.drop([x.hold.grant.lease_id for x in lost])
        return lost

    def ends_in(self) -> float | None:
        return (0.0 if self.over & set(self.kept) else 5.0) if self.kept else None

    def overdue(self) -> tuple[Lost, ...]:
        over = [self.kept[x] for x in sorted(self.over & set(self.kept))]
        self.drop([hold.grant.lease_id for hold in over])
        return tuple(Lost(hold=hold, loss=Loss.EXPIRED) for hold in over)

    def left_ms(self, lease_id: str) -> int:
        return 7 if lease_id in self.kept else 0


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    monkeypatch.setattr(heartbeat, "LONGEST_NAP", 0.05)  # after which it is looked at again
    script = Script()
    yield script
    script.gate.set()
    script.kept.clear()


@pytest.fixture
def beat(script: Script) -> Iterator[Heartbeat]:
    name = f"test {id(script)}"
    made = Heartbeat(cast(Keeper, script), name=name)
    yield made
    script.gate.set()
    script.kept.clear()
    made.drop([], ignore)  # which wakes the threads
    until(
        lambda: not [t for t in threading.enumerate() if t.name.startswith(name)],
        "the end of the threads",
    )


def ignore(_lost: Lost) -> None:
    """What is lost does not matter here."""


def test_everything_is_renewed_together_when_it_is_due(script: Script, beat: Heartbeat) -> None:
    beat.keep([A], ignore)
    beat.keep([B], ignore)
    assert script.beats == []
    script.due = True
    beat.keep([], ignore)
    until(lambda: script.beats == [("id-a", "id-b")], "the heartbeat")


def test_the_deadline_is_watched_while_a_renewal_hangs(script: Script, beat: Heartbeat) -> None:
    told: list[Lost] = []
    script.gate.clear()
    script.due = True
    beat.keep([A], told.append)
    assert script.inside.wait(LONG)
    script.over.add("id-a")
    until(lambda: [x.loss for x in told] == [Loss.EXPIRED], "the loss")
    script.gate.set()


def test_who_looks_is_told_before_the_look_returns(script: Script, beat: Heartbeat) -> None:
    told: list[Lost] = []
    beat.keep([A, B], told.append)
    script.over.add("id-b")
    beat.look()
    assert [x.hold for x in told] == [B]
    assert beat.left_ms("id-a") == 7
    assert beat.left_ms("id-b") == 0


def test_a_loss_that_a_renewal_finds_is_told_once_to_all_who_rely_on_it(
    script: Script, beat: Heartbeat
) -> None:
    first: list[Lost] = []
    second: list[Lost] = []
    beat.keep([A, B], first.append)
    beat.keep([A], second.append)
    script.lose = (Lost(hold=A, loss=Loss.REVOKED, by="kim@example.com"),)
    script.due = True
    beat.keep([], ignore)
    until(lambda: first and second, "both to be told")
    beat.look()
    assert (first, second) == ([*script.lose], [*script.lose])
    assert set(script.kept) == {"id-b"}


def test_what_one_drops_another_may_still_rely_on(script: Script, beat: Heartbeat) -> None:
    first: list[Lost] = []
    second: list[Lost] = []
    beat.keep([A], first.append)
    beat.keep([A], second.append)
    beat.drop(["id-a"], first.append)
    assert set(script.kept) == {"id-a"}
    beat.drop(["id-a"], second.append)
    assert script.kept == {}
    beat.drop(["id-a", "unknown"], ignore)


def test_while_it_is_paused_nothing_is_renewed_and_nothing_is_on_its_way(
    script: Script, beat: Heartbeat
) -> None:
    script.gate.clear()
    script.due = True
    beat.keep([A], ignore)
    assert script.inside.wait(LONG)
    threading.Timer(0.05, script.gate.set).start()
    with beat.paused():
        assert len(script.beats) == 1, "the one on its way was waited for"
        script.due = True
        beat.keep([B], ignore)
        script.over.add("id-b")
        beat.look()
        assert len(script.beats) == 1
        assert beat.left_ms("id-b") == 0, "deadlines go on"
    until(lambda: len(script.beats) == 2, "the heartbeat that waited")


# --- what this clone comes to know ---------------------------------------------------------------


class Knowing:
    """What a clone knows of losses, and which grants it was asked about."""

    def __init__(self) -> None:
        self.lost = set[str]()
        self.asked: list[set[str]] = []

    def __call__(self, holds: Sequence[Hold]) -> Sequence[Lost]:
        self.asked.append({hold.grant.lease_id for hold in holds})
        over = [hold for hold in holds if hold.grant.lease_id in self.lost]
        return [Lost(hold=hold, loss=Loss.REVOKED) for hold in over]


@pytest.fixture
def knowing() -> Knowing:
    return Knowing()


@pytest.fixture
def seeing(script: Script, knowing: Knowing) -> Iterator[Heartbeat]:
    """A heartbeat that looks only at what it was told to."""
    name = f"seeing {id(script)}"
    made = Heartbeat(cast(Keeper, script), name=name, glance=knowing, sharp=False)
    yield made
    script.kept.clear()
    made.drop([], ignore)
    until(
        lambda: not [t for t in threading.enumerate() if t.name.startswith(name)],
        "the end of the threads",
    )


def test_a_loss_that_this_clone_knows_is_told_with_nothing_due(
    script: Script, knowing: Knowing, seeing: Heartbeat
) -> None:
    told: list[Lost] = []
    seeing.keep([A, B], told.append, sharp=True)
    until(lambda: knowing.asked, "the first look")
    assert told == []
    knowing.lost.add("id-a")
    until(lambda: [x.hold for x in told] == [A], "the loss")
    assert (script.beats, set(script.kept)) == ([], {"id-b"})
    seen = len(knowing.asked)
    until(lambda: len(knowing.asked) > seen, "the next look")
    assert knowing.asked[-1] == {"id-b"}, "what is lost is looked at no more"


def test_it_looks_only_for_who_wants_that_and_as_long_as_they_rely_on_it(
    script: Script, knowing: Knowing, seeing: Heartbeat
) -> None:
    blunt: list[Lost] = []
    sharp: list[Lost] = []
    knowing.lost |= {"id-a"}
    seeing.keep([A], blunt.append)
    seeing.keep([B], sharp.append, sharp=True)
    until(lambda: len(knowing.asked) > 1, "two looks")
    seeing.keep([A], sharp.append, sharp=True)
    seeing.drop(["id-b"], sharp.append)
    until(lambda: sharp and blunt, "both to be told")
    assert all(asked <= {"id-a", "id-b"} for asked in knowing.asked)
    assert {"id-a", "id-b"} not in knowing.asked[:2]
    assert script.beats == []


def test_a_loss_that_is_seen_while_it_is_paused_is_told(
    script: Script, knowing: Knowing, seeing: Heartbeat
) -> None:
    told: list[Lost] = []
    script.due = True
    with seeing.paused():
        knowing.lost.add("id-a")
        seeing.keep([A], told.append, sharp=True)
        until(lambda: told, "the loss")
        assert script.beats == []


def test_a_listener_that_fails_keeps_nobody_else_from_being_told(
    script: Script, beat: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    told: list[Lost] = []

    def fail(_lost: Lost) -> None:
        raise ZeroDivisionError

    beat.keep([A], fail)
    beat.keep([A, B], told.append)
    script.over |= {"id-a", "id-b"}
    beat.look()
    assert [x.hold for x in told] == [A, B]
    assert [args.exc_type for args in reported] == [ZeroDivisionError]


def test_the_threads_end_with_the_last_grant_and_start_with_the_next(
    script: Script, beat: Heartbeat
) -> None:
    name = f"test {id(script)}"

    def alive() -> int:
        return len([t for t in threading.enumerate() if t.name.startswith(name)])

    for _ in range(3):
        beat.keep([A], ignore)
        assert alive() == 2
        beat.drop(["id-a"], ignore)
        until(lambda: alive() == 0, "the end of the threads")
