"""``release --keep`` and ``session`` as people type them and programs read them."""

from __future__ import annotations

from typing import Any

import pytest
from doors.fake import Desk, make_desks, shown, words
from support.snapshots import check_words
from support.tasks import task

from gitlease.kernel.ledger import sessions
from gitlease.kernel.ledger.answers import Answer
from gitlease.kernel.ledger.edges import EdgeRules
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.rules.edge import People
from gitlease.kernel.rules.errors import Unavailable

ADA = "ada@example.com"
RULES = EdgeRules(people=People({ADA: "@ada"}))


pytestmark = pytest.mark.usefixtures("wide")


@pytest.fixture
def desks() -> tuple[Desk, Desk]:
    return make_desks(
        task("F001", title="Rate limits", priority="high"),
        task("F002", title="Login"),
        task("F003", title="Search", priority="low"),
        rules=RULES,
    )


def lease_of(desk: Desk, name: str) -> Any:
    (lease,) = desk.ok("show", name, "--json").json["leases"]
    return lease


# --- release --keep -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "code", "error"),
    [
        (("release", "F002", "--keep"), 3, "lost"),
        (("release", "F003", "--keep"), 1, "held"),
        (("release", "src/", "--keep"), 2, "usage"),
        (("release", "--keep"), 2, "usage"),
        (("release", "--all", "--keep"), 2, "usage"),
        (("release", "F001", "--keep", "--commit"), 2, "usage"),
        (("release", "F001", "--keep", "--keep-status"), 2, "usage"),
        (("release", "F001", "F003", "--keep"), 1, "held"),
        (("park", "F001", "--for", "2h"), 2, "usage"),
        (("config", "--ledger", "park_max", "1h"), 2, "usage"),
    ],
    ids=words,
)
def test_what_is_kept_for_nobody(
    desks: tuple[Desk, Desk], argv: tuple[str, ...], code: int, error: str
) -> None:
    ada, bob = desks
    ada.ok("claim", "F001", "src/")
    bob.ok("claim", "F003")
    ran = ada.run(*argv, "--json")
    assert (ran.code, ran.json["error"]["code"]) == (code, error)
    check_words(ran.json["error"]["message"])
    assert lease_of(ada, "F001")["state"] == "active"


def test_a_kept_task_is_shown_as_waiting_and_resumed_as_suggested(
    desks: tuple[Desk, Desk],
) -> None:
    ada, bob = desks
    ada.ok("claim", "F001", "--session", "build-7")
    ran = ada.ok("release", "F001", "--keep", "--note", "which colour?", "--session", "build-7")
    check_words(ran.out)
    for argv in (("queue",), ("queue", "--mine"), ("brief",), ("next",)):
        check_words(ada.ok(*argv).out)
    check_words(bob.run("claim", "F001").err.splitlines()[0])
    (again,) = (x for x in ran.err.splitlines() if "claim" in x)
    assert again.split()[1:4] == ["gitlease", "claim", "F001"]
    ada.ok("claim", "F001")
    assert ada.ok("queue", "--json").json["left_alone"] == []


def test_park_goes_on_as_the_release_that_it_names(desks: tuple[Desk, Desk]) -> None:
    ada, _ = desks
    ada.ok("claim", "F001", "F002")
    ran = ada.ok("park", "F001", "F002", "--reason", "back tomorrow", "--note", "tests red")
    check_words(ran.out)
    check_words(ran.err.splitlines()[0])
    (note,) = ada.ok("show", "F001", "--json").json["notes"]
    assert note["text"] == "back tomorrow\ntests red"
    assert ada.ok("show", "F001", "--json").json["setback"]["waits"]


# --- session end --------------------------------------------------------------------------------


def test_the_end_of_a_session_gives_back_what_it_holds(ada: Desk) -> None:
    ada.ok("claim", "F001", "F002", "--session", "build-7")
    ada.ok("claim", "F003")
    ran = ada.ok("session", "end", "--session", "build-7", "--release", "--note", "half done")
    check_words(ran.out)
    again = ada.ok("session", "end", "build-7")
    check_words(again.out)
    leases = ada.ok("list", "--json").json["leases"]
    assert [x["resource"] for x in leases if x["state"] == "active"] == ["F003"]
    (note,) = ada.ok("show", "F001", "--json").json["notes"]
    assert note["text"] == "half done"


def test_the_end_of_a_session_keeps_its_tasks(ada: Desk) -> None:
    ada.ok("claim", "F001", "port-80", "--any", "--session", "build-7")
    ada.ok("claim", "F002", "--session", "build-7", "--layer", "team")
    ran = ada.ok("session", "end", "build-7")
    check_words(ran.out)
    assert ada.tasks["F001"].assigned == ("@ada",)
    (left,) = ada.ok("list", "--all", "--json").json["leases"]
    assert (left["resource"], left["state"], left["session"]) == ("F001", "expired", None)
    check_words(ada.ok("session", "end", "build-7").out)
    nothing = ada.ok("session", "end", "build-7", "--json").json
    assert (nothing["status"], nothing["leases"], nothing["edge"]) == ("run_out", [], "none")


def test_what_ended_before_a_session_that_cannot_is_told(
    ada: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, session in (("F001", "build-7"), ("F002", "night"), ("F003", "other")):
        ada.ok("claim", name, "--session", session)
    one = sessions.end_session

    def fails(layers: list[LedgerSession], name: str, **how: Any) -> Answer:
        if name == "night":
            raise Unavailable("origin does not answer")
        return one(layers, name, **how)

    monkeypatch.setattr(sessions, "end_session", fails)
    ran = ada.run("session", "end", "--all")
    check_words(ran.out)
    assert ran.code == 5
    check_words(ran.err.splitlines()[0])
    again = ada.run("session", "end", "--all", "--json")
    assert again.code == 5
    check_words(again.json["error"]["message"])


@pytest.mark.parametrize(
    "argv",
    [
        ("stop",),
        ("end",),
        ("end", ""),
        ("end", "a\x1bb"),
        ("end", "a", "--park"),
        ("end", "a", "--commit"),
        ("end", "a", "--all"),
        ("list", "a"),
        ("list", "--no-commit"),
    ],
    ids=words,
)
def test_what_is_no_way_to_say_it(argv: tuple[str, ...]) -> None:
    ada, _ = make_desks()
    assert ada.run("session", *argv).code == 2
    assert ada.store.remote.asked == 0


# --- session list -------------------------------------------------------------------------------


def test_the_list_of_sessions(desks: tuple[Desk, Desk]) -> None:
    ada, bob = desks
    ada.ok("claim", "F001", "--session", "build-7")
    bob.ok("claim", "F002", "--session", "bobs")
    ada.clock.advance(300)
    ada.ok("claim", "src/", "F003", "--session", "build-8", "--scope", "x")
    document = ada.ok("session", "list", "--session", "build-8", "--json").json

    sessions = document["sessions"]
    assert sessions[:1] == [
        {
            "session": "build-7",
            "current": False,
            "leases": 1,
            "resources": ["F001"],
            "since": "2026-11-20T12:00:00Z",
            "age": 300,
            "expires_at": "2026-11-20T12:15:00Z",
        },
    ]
    (current,) = (x for x in sessions if x["current"])
    assert (current["session"], current["resources"]) == ("build-8", ["F003", "path:src"])
    check_words(shown(ada, "session", "list").splitlines()[2])
