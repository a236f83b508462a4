"""What a command asks of a host where each connection takes half a second: it may only fall.

``benchmarks/pace.py`` times the same, and says what is aimed at.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from support.clock import ManualClock
from support.commands import typed
from support.keepers import KeptAgents
from support.paced import PacedHost, Tally
from support.repos import git
from support.task_trees import commit_all, put

from gitlease.kernel.git.run import SystemClock
from gitlease.kernel.ledger.claim import claim
from gitlease.kernel.ledger.wait import WaitQueue
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store.transport import GitRefs
from gitlease.wiring.workspace import open_workspace

CONNECTION = 0.5  # seconds that a fetch takes a waiter


class Ended(Exception):
    """The time of a story is over."""


class EndingClock(ManualClock):
    """A clock that calls ``on_end`` and ends a wait after so many seconds."""

    def __init__(self, seconds: float, on_end: Callable[[], object]) -> None:
        # By the clocks of this machine, as those of commands, so that it knows their ages.
        now = SystemClock().now()
        super().__init__(wall_ms=now.wall_ms, boot_ms=now.boot_ms, boot_id=now.boot_id)
        self._end, self._on_end = self.boot_ms + seconds * 1_000, on_end

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.boot_ms >= self._end:
            self._on_end()
            raise Ended


@pytest.fixture
def host(tmp_path: Path) -> PacedHost:
    return PacedHost(tmp_path / "host")


@pytest.fixture
def jo(host: PacedHost, tmp_path: Path) -> Path:
    """A clone that has claimed something."""
    clone = host.clone(tmp_path / "jo", "jo")
    run(clone, "claim", "first")
    return clone


@pytest.fixture
def kim(host: PacedHost, tmp_path: Path, jo: Path) -> Path:
    """A clone that knows what the first one has claimed."""
    clone = host.clone(tmp_path / "kim", "kim")
    run(clone, "list")
    return clone


def run(clone: Path, *words: str) -> None:
    done = typed(clone, *words)
    assert done.returncode == 0, done.stderr


def cost(host: PacedHost, who: str, act: Callable[[], object]) -> Tally:
    before = host.tally(who)
    act()
    return host.tally(who) - before


def test_a_claim_whose_copy_is_current_is_one_push(host: PacedHost, jo: Path) -> None:
    assert cost(host, "jo", lambda: run(jo, "claim", "F1")) == Tally(1, 1, 1, 0)


def has_seen(clone: Path, changes: int, *, age: float = 14.0) -> None:
    """Have a clone know that reads take 0.5 s, and how often others changed the ledger in 50 s.

    Its copy is as old as that.
    """
    (file,) = clone.glob(".git/gitlease/state/*/global/known.json")
    known = json.loads(file.read_text())
    known["pace"] = [[1_200], [500], changes, 40]
    known["received"] = [x - int(age * 1_000) for x in known["received"]]
    file.write_text(json.dumps(known))


def test_a_claim_after_another_change_is_a_lost_push_a_fetch_and_a_push(
    host: PacedHost, jo: Path, kim: Path
) -> None:
    run(kim, "claim", "K1")
    assert cost(host, "jo", lambda: run(jo, "claim", "F1")) == Tally(2, 1, 1, 1)


def test_in_a_busy_team_it_is_a_fetch_and_a_push(host: PacedHost, jo: Path, kim: Path) -> None:
    run(kim, "claim", "K1")
    has_seen(jo, 5)
    assert cost(host, "jo", lambda: run(jo, "claim", "F1")) == Tally(1, 1, 1, 1)


def test_it_is_as_well_where_this_clone_holds_tasks(host: PacedHost, jo: Path, kim: Path) -> None:
    put(jo, "tasks/T1.md", "---\nid: T1\nstatus: todo\nassigned: []\n---\n")
    commit_all(jo)
    git(jo, "push", "-q", "origin", "HEAD")
    run(jo, "claim", "T1")
    run(kim, "claim", "K1")
    has_seen(jo, 5)
    assert cost(host, "jo", lambda: run(jo, "claim", "F1", "--any")) == Tally(1, 1, 1, 1)


def cost_of_waiting(host: PacedHost, clone: Path, who: str, name: str, seconds: float) -> Tally:
    """What so many seconds of waiting for a name cost, from the claim that is refused."""
    before, found = host.tally(who), list[Tally]()
    real_fetch = GitRefs.fetch

    def fetch(*args: Any, **options: Any) -> str | None:
        clock.advance(CONNECTION)
        return real_fetch(*args, **options)

    clock = EndingClock(seconds, lambda: found.append(host.tally(who) - before))
    place = open_workspace(str(clone), session="waiter", clock=clock, environ={})
    # It stays in line, as one that goes on waiting.
    stays = mock.patch.object(WaitQueue, "leave", return_value=None)
    with pytest.raises(Ended), stays, mock.patch.object(GitRefs, "fetch", fetch):
        claim(place.ledger, [parse_resource(name)], wait=300)
    return found[0]


def test_waiting_costs_two_pushes_and_a_few_looks(host: PacedHost, jo: Path, kim: Path) -> None:
    run(jo, "claim", "F1", "--ttl", "1h")
    waiting = cost_of_waiting(host, kim, "kim", "F1", 14)
    # The claim that lost, and the ticket; a fetch after the former, and the looks.
    assert (waiting.pushes, waiting.packs) == (2, 1)
    assert 8 <= waiting.fetches <= 12


def test_in_a_busy_team_waiting_costs_the_push_of_a_ticket(
    host: PacedHost, jo: Path, kim: Path
) -> None:
    run(jo, "claim", "F1", "--ttl", "1h")
    has_seen(kim, 5)
    waiting = cost_of_waiting(host, kim, "kim", "F1", 14)
    assert (waiting.pushes, waiting.packs) == (1, 1)
    assert waiting.fetches <= 12


def test_a_release_while_somebody_waits_is_a_lost_push_a_fetch_and_a_push(
    host: PacedHost, jo: Path, kim: Path
) -> None:
    run(jo, "claim", "F1", "--ttl", "1h")
    cost_of_waiting(host, kim, "kim", "F1", 14)
    assert cost(host, "jo", lambda: run(jo, "release", "F1")) == Tally(2, 1, 1, 1)


def test_where_others_come_now_and_then_it_is_a_fetch_and_a_push(
    host: PacedHost, jo: Path, kim: Path
) -> None:
    run(jo, "claim", "F1", "--ttl", "1h")
    cost_of_waiting(host, kim, "kim", "F1", 14)
    has_seen(jo, 2)
    assert cost(host, "jo", lambda: run(jo, "release", "F1")) == Tally(1, 1, 1, 1)


@pytest.mark.parametrize(
    ("others", "most"),
    [
        pytest.param(False, 15, id="alone", marks=pytest.mark.slow),
        pytest.param(True, 30, id="in a team", marks=pytest.mark.nightly),
    ],
)
def test_twelve_agents_of_one_clone_keep_their_leases_for_an_hour(
    host: PacedHost, jo: Path, kim: Path, others: bool, most: int
) -> None:
    agents = KeptAgents(host, jo, "jo")
    began = agents.begin(12, ttl=900)
    assert (began.pushes, began.landed) == (12, 12)
    names = iter(range(1_000))

    def change() -> None:
        if others:
            run(kim, "claim", f"K{next(names)}")

    hour = agents.keep(3_600, meanwhile=change, every=240)
    assert hour.pushes <= most
    assert agents.lost == []
