"""The threads of a heartbeat: they renew, watch, tell, pause and end, whatever a renewal does."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import cast

import pytest
from support.running import LONG, until

from gitlease.kernel.ledger import heartbeat
from gitlease.kernel.ledger.heartbeat import Heartbeat
from gitlease.kernel.ledger.keeping import Keeper, RenewalResult
from gitlease.kernel.rules.errors import Loss
from gitlease.kernel.rules.instant import Instant
from gitlease.kernel.rules.loss import Hold, Lost
from gitlease.kernel.rules.moves.operations import Grant
from gitlease.kernel.rules.resources import parse_resource

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
        self.gate, self.inside = threading.Event(), threading.Event()
        self.gate.set()
        self.known: tuple[Lost, ...] = ()  # losses that this clone knows of

    def add(self, holds: Sequence[Hold]) -> None:
        self.kept |= {hold.grant.lease_id: hold for hold in holds}

    def drop(self, lease_ids: Sequence[str]) -> None:
        self.kept = {x: hold for x, hold in self.kept.items() if x not in lease_ids}

    def due_in(self) -> float | None:
        return (0.0 if self.due else 5.0) if self.kept else None

    def batch(self) -> tuple[Hold, ...]:
        return tuple(self.kept.values()) if self.due else ()

    def renew(self, batch: Sequence[Hold]) -> RenewalResult:
        self.inside.set()
        assert self.gate.wait(LONG)
        self.beats.append(tuple(hold.grant.lease_id for hold in batch))
        self.due = False
        return RenewalResult(asked=tuple(batch))

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
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    monkeypatch.setattr(heartbeat, "LONGEST_NAP", 0.05)  # after which it is looked at again
    return Script()


@pytest.fixture
def beat(script: Script) -> Iterator[Heartbeat]:
    name = f"test {id(script)}"
    made = Heartbeat(cast(Keeper, script), name=name, glance=lambda _holds: script.known)
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


def test_the_deadline_is_watched_while_a_renewal_hangs(script: Script, beat: Heartbeat) -> None:
    told: list[Lost] = []
    script.gate.clear()
    script.due = True
    beat.keep([A], told.append)
    assert script.inside.wait(LONG)
    script.over.add("id-a")
    until(lambda: [x.loss for x in told] == [Loss.EXPIRED], "the loss")
    script.gate.set()


def test_a_loss_that_this_clone_knows_is_told_once_to_all_who_rely_on_it(
    script: Script, beat: Heartbeat
) -> None:
    first: list[Lost] = []
    second: list[Lost] = []
    beat.keep([A, B], first.append)
    beat.keep([A], second.append)
    script.known = (Lost(hold=A, loss=Loss.REVOKED, by="kim@example.com"),)
    until(lambda: first and second, "both to be told")
    beat.look()
    assert (first, second) == ([*script.known], [*script.known])
    assert (script.beats, set(script.kept)) == ([], {"id-b"})
    beat.drop(["id-b"], second.append)
    assert set(script.kept) == {"id-b"}, "another relies on it"
    beat.drop(["id-b", "unknown"], first.append)
    assert script.kept == {}


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
