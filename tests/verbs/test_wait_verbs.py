"""``wait``, ``watch`` and the line in ``show``: what is printed, in which form, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from doors.fake import NOON, Desk, make_desks
from support.clock import ManualClock
from support.documents import held_to_schema
from support.snapshots import check_words

from gitlease.kernel.ledger import heads as polling
from gitlease.kernel.rules.errors import Unavailable

EVENT = [
    *("schema", "event", "resource", "scope", "layer", "holder", "session", "token", "at"),
]


@pytest.fixture(autouse=True)
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Desks share one clone, so each look at its own state is news enough."""
    monkeypatch.setattr(polling, "GLANCE", 1.0)


class Script(ManualClock):
    """Lets something happen at a time; see ``later``."""

    acts: list[tuple[int, Callable[[], object]]]

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        while self.acts and self.wall_ms >= self.acts[0][0]:
            self.acts.pop(0)[1]()


@pytest.fixture
def desks() -> tuple[Desk, Desk]:
    ada, bob = make_desks()
    clock = Script(wall_ms=NOON)
    clock.acts = []
    for desk in (ada, bob):
        desk.clock = desk.store.clock = clock
    return ada, bob


def later(desk: Desk, seconds: float, *argv: str) -> None:
    """A command line that is run while somebody else waits."""
    clock = desk.clock
    assert isinstance(clock, Script)
    clock.acts.append((NOON + round(seconds * 1_000), lambda: desk.ok(*argv)))


# --- wait -----------------------------------------------------------------------------------------


def test_wait_says_whom_it_waits_for_and_what_is_free(desks: tuple[Desk, Desk]) -> None:
    ada, bob = desks
    ada.ok("claim", "F001")
    later(ada, 20, "release", "F001")
    ran = bob.ok("wait", "F001", "--timeout", "5m")
    check_words(ran.out)
    check_words(ran.err.splitlines())
    check_words(ada.ok("list").out)


def test_the_look_for_a_layer_loses_no_notice(desks: tuple[Desk, Desk]) -> None:
    ada, bob = desks
    ada.ok("claim", "F001", "--layer", "dev")
    bob.ok("config", "admins", "bob@example.com", "--ledger", "--layer", "dev")
    bob.ok("revoke", "F001", "--layer", "dev", "--reason", "stuck")
    ran = ada.ok("wait", "F002", "--layer", "dev", "--json")
    check_words(ran.json["warnings"])
    assert ada.ok("wait", "F002", "--layer", "dev", "--json").json["warnings"] == []


def test_a_wait_that_runs_out(desks: tuple[Desk, Desk]) -> None:
    ada, bob = desks
    ada.ok("claim", "F001", "--reason", "rate limits")
    ran = bob.run("wait", "F001", "--timeout", "1m", "--json")
    error = ran.json["error"]
    assert (ran.code, error["code"], error["holder"]) == (1, "wait_timeout", "ada@example.com")
    assert error["next"] == ["gitlease wait F001 --timeout 15m"]
    check_words(error["message"])


def test_ones_own_lease_is_called_yours(desks: tuple[Desk, Desk]) -> None:
    ada, _ = desks
    ada.ok("claim", "F001", "F002")
    check_words(ada.ok("wait", "f001", "F003").out)
    ada.clock.advance(900)
    check_words(ada.run("renew", "F001").err)


# --- watch ----------------------------------------------------------------------------------------


def test_watch_gives_a_program_a_line_for_each_event(desks: tuple[Desk, Desk]) -> None:
    ada, bob = desks
    later(ada, 10, "claim", "F001", "--session", "s1")
    later(ada, 20, "release", "F001", "--session", "s1")
    ran = bob.ok("watch", "--json", "--timeout", "40s", terminal=True)
    claimed, released, available = (
        held_to_schema(json.loads(line)) for line in ran.out.splitlines()
    )
    assert list(claimed) == [*EVENT, "lease"]
    assert {key: claimed[key] for key in EVENT} == {
        "schema": 1,
        "event": "claimed",
        "resource": "F001",
        "scope": "*",
        "layer": "global",
        "holder": "ada@example.com",
        "session": "s1",
        "token": 1,
        "at": "2026-11-20T12:00:10Z",
    }
    assert (claimed["lease"]["token"], claimed["lease"]["mine"]) == (1, False)
    assert (released["event"], released["lease"]["state"]) == ("released", "released")
    assert list(available) == EVENT
    assert (available["event"], available["holder"], available["token"]) == (
        *("available", None, None),
    )


def test_watch_goes_on_when_the_remote_is_away_and_says_so_once(desks: tuple[Desk, Desk]) -> None:
    ada, bob = desks
    ada.ok("claim", "F001")
    clock = ada.clock
    assert isinstance(clock, Script)
    away = Unavailable("the remote cannot be reached: no route")
    clock.acts += [
        (NOON + 10_000, lambda: setattr(ada.store.remote, "failing", away)),
        (NOON + 90_000, lambda: setattr(ada.store.remote, "failing", None)),
        (NOON + 95_000, lambda: ada.ok("release", "F001")),
    ]
    ran = bob.ok("watch", "--timeout", "3m")
    assert [line.split()[1] for line in ran.out.splitlines()] == ["released", "available"]
    check_words(ran.err)


def test_watch_begins_with_a_look_at_the_remote(desks: tuple[Desk, Desk]) -> None:
    ada, _ = desks
    ada.store.remote.failing = Unavailable("the remote cannot be reached: no route")
    ran = ada.run("watch", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (5, "unavailable")
    assert len(ran.out.splitlines()) == 1


@pytest.mark.parametrize("argv", [("watch",), ("watch", "--json"), ("wait", "F001")])
def test_ctrl_c_ends_it(desks: tuple[Desk, Desk], argv: tuple[str, ...]) -> None:
    ada, bob = desks
    ada.ok("claim", "F001")
    clock = ada.clock
    assert isinstance(clock, Script)

    def interrupt() -> None:
        raise KeyboardInterrupt

    clock.acts.append((NOON + 5_000, interrupt))
    assert bob.run(*argv).code == 130


def test_what_a_record_says_cannot_play_tricks_on_the_terminal(desks: tuple[Desk, Desk]) -> None:
    ada, bob = desks
    later(ada, 10, "claim", "F001", "--reason", "x\u202e\u2066y")
    ran = bob.run("watch", "--timeout", "30s", terminal=True)
    assert "\u202e" not in ran.out


# --- the line -------------------------------------------------------------------------------------


def test_show_tells_who_waits_in_order(desks: tuple[Desk, Desk]) -> None:
    ada, bob = desks
    ada.ok("claim", "F001")
    shown: list[Any] = []
    clock = ada.clock
    assert isinstance(clock, Script)
    look = ("show", "F001", "--json")
    clock.acts.append((NOON + 70_000, lambda: shown.append(ada.ok(*look).json)))
    assert bob.run("claim", "F001", "--wait", "5m", "--session", "s2").code == 1
    assert shown[0]["waiting"] == [
        {
            "place": 1,
            "resource": "F001",
            "scope": "*",
            "holder": "bob@example.com",
            "session": "s2",
            "since": "2026-11-20T12:00:00Z",
            "until": "2026-11-20T12:05:00Z",
        }
    ]
    assert ada.ok(*look).json["waiting"] == []
