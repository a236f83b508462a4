"""queue, next, brief and show: tasks as people and programs find them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from doors.fake import Desk, make_desks, shown
from support.snapshots import check_words
from support.tasks import task

from gitlease.kernel.ledger.edges import EdgeRules
from gitlease.kernel.ledger.ports import TaskProblem
from gitlease.kernel.rules.edge import People, Progress
from gitlease.kernel.rules.errors import Unavailable

ADA, BOB = "ada@example.com", "bob@example.com"
RULES = EdgeRules(people=People({ADA: "@ada", BOB: "@bob"}))
TASK = [
    *("resource", "title", "status", "progress", "assigned", "assigned_in", "priority"),
    *("depends_on", "waits_for", "paths", "created", "file"),
]
CARRIED = [*TASK, "state", "taken_over_by", "lease"]
HEAD, TAIL = ["schema", "ok", "command"], ["warnings", "next"]


pytestmark = pytest.mark.usefixtures("wide")


@pytest.fixture
def desks() -> tuple[Desk, Desk]:
    """Seven tasks, of which F001, F002 and F003 are free."""
    return make_desks(
        task("F001", title="Rate limits", priority="high", depends_on=("F002", "F009")),
        task("F002", title="Größe", status="ready", created="2026-01-02"),
        task("F003", title="Search", paths=("src/search",), created="2026-01-01"),
        task("F004", "@bob", title="Login"),
        task("F005", title="Old", status="done", progress=Progress.DONE),
        task("F006", title="Odd", status="review", progress=Progress.OTHER),
        task("F007", "@ada", title="Mine", priority="low"),
        rules=RULES,
    )


def ids(document: dict[str, Any]) -> list[str]:
    return [found["resource"] for found in document["tasks"]]


# --- queue --------------------------------------------------------------------------------------


def test_all_shows_why_not(desks: tuple[Desk, Desk]) -> None:
    ada, bob = desks
    bob.ok("claim", "F002", "--session", "s1")
    bob.ok("claim", "src/")
    ada.ok("claim", "F001")
    check_words([line.rstrip() for line in shown(ada, "queue", "--all").splitlines()])


def test_mine_is_what_i_carry_with_how_its_lease_stands(desks: tuple[Desk, Desk]) -> None:
    ada, bob = desks
    ada.ok("claim", "F001", "--ttl", "10m")
    ada.ok("claim", "F003", "--session", "s1", "--ttl", "1h")
    ada.ok("claim", "src/other/", "--ttl", "1h")
    ada.clock.advance(1_000)
    bob.tasks.tasks["tasks/F007.md"] = replace(bob.tasks["F007"], assigned=())
    bob.ok("claim", "F007")
    carried = ada.ok("queue", "--mine", "--json").json["tasks"]
    assert {task["resource"]: task["state"] for task in carried} == {
        "F001": "lapsed",
        "F003": "live",
        "F007": "theirs",
        "src/other": "live",
    }
    table = shown(ada, "queue", "--mine")
    check_words(table)
    assert ada.ok("queue", "--mine", "--all").out == ada.ok("queue", "--mine").out


def test_what_i_carry_as_json_task_or_not(ada: Desk) -> None:
    ada.ok("claim", "src/other/")
    document = ada.ok("queue", "--mine", "--json").json
    assert all(list(found) == CARRIED for found in document["tasks"])
    own, path = document["tasks"]
    assert (own["resource"], own["state"], own["lease"]) == ("F007", "none", None)
    assert (path["resource"], path["state"]) == ("src/other", "live")
    assert (path["title"], path["file"], path["assigned"]) == (None, None, [])
    assert path["lease"]["holder"] == ADA


def test_task_files_that_cannot_be_used_are_warnings(ada: Desk) -> None:
    problem = TaskProblem("tasks/x.md", "tasks/x.md:3: the front matter has no end")
    ada.tasks.problems = (problem,)
    for verb in ("queue", "next", "brief"):
        assert ada.ok(verb, "--json").json["warnings"] == [problem.message]


def test_the_tasks_of_a_ref(ada: Desk) -> None:
    ada.tasks.refs["main"] = (task("M001", title="there"),)
    assert ids(ada.ok("queue", "--ref", "main", "--json").json) == ["M001"]
    assert ada.ok("next", "--ref", "main", "--json").json["task"]["resource"] == "M001"
    assert ada.ok("brief", "--ref", "main", "--json").json["next_tasks"][0]["title"] == "there"
    assert ada.ok("show", "M001", "--ref", "main", "--json").json["task"]["title"] == "there"
    assert ada.ok("show", "M001", "--json").json["task"] is None


@pytest.mark.parametrize("ref", ["nope", ""])
def test_an_unknown_ref(ada: Desk, ref: str) -> None:
    for argv in (("queue",), ("next",), ("brief",), ("show", "F001"), ("show", "src/")):
        ran = ada.run(*argv, "--ref", ref, "--json")
        assert (ran.code, ran.json["error"]["code"]) == (7, "not_found")


def test_a_remote_out_of_reach_hints_to_the_same_from_what_is_known(ada: Desk) -> None:
    ada.tasks.refs["main"] = (task("F001"),)
    ada.ok("claim", "F004", "--takeover", "--reason", "so that something is known")
    ada.store.remote.failing = Unavailable("the remote cannot be reached")
    for typed, cached in (
        ("queue --mine --ref main", "gitlease queue --cached --mine --ref main"),
        ("next", "gitlease next --cached"),
        ("brief", "gitlease brief --cached"),
        ("show F001 --scope x", "gitlease show F001 --cached --scope x"),
    ):
        ran = ada.run(*typed.split(), "--json")
        assert (ran.code, ran.json["error"]["next"]) == (5, [cached])
        asked = ada.store.remote.asked
        ada.ok(*cached.split()[1:])
        assert ada.store.remote.asked == asked


def test_titles_of_any_kind_stay_in_their_line() -> None:
    ada, _ = make_desks(task("F001", title="a\tb\nhint: obey\x1b[2J" + "x" * 200))
    for argv in (("queue",), ("next",), ("brief",), ("show", "F001"), ("next", "--claim")):
        ran = ada.ok(*argv)
        assert not [line for line in ran.out.splitlines() if line.startswith("hint")]
        assert ran.out.replace("\n", "").replace("\t", "").isprintable()


# --- next ---------------------------------------------------------------------------------------


def test_every_worker_gets_another_task_until_nothing_is_left(desks: tuple[Desk, Desk]) -> None:
    ada, _ = desks
    got = [ada.ok("next", "--claim", "--session", f"s{n}", "--json").json for n in range(4)]
    assert [found["lease"]["resource"] for found in got] == ["F003", "F002", "F007", "F001"]
    ran = ada.run("next", "--claim", "--session", "late", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "nothing_left")
    assert ran.json["error"]["next"] == ["gitlease queue --all --session late"]
    check_words(ran.err)


@pytest.mark.parametrize(
    "argv", [("--claim", "--ref", "main"), ("--claim", "--cached"), ("--ttl", "1h"), ("--commit",)]
)
def test_the_options_of_next(ada: Desk, argv: tuple[str, ...]) -> None:
    ran = ada.run("next", *argv)
    assert (ran.code, ran.out, ada.store.remote.asked) == (2, "", 0)


# --- brief --------------------------------------------------------------------------------------


def test_a_briefing_tells_of_other_sessions_and_no_way_to_end_them(ada: Desk) -> None:
    ada.ok("claim", "F001", "--session", "beside")
    ran = ada.ok("brief")
    check_words([line for line in ran.out.splitlines() if "beside" in line])
    assert "beside" not in ran.err


def test_a_briefing_stays_one_page_whatever_there_is() -> None:
    many = [task(f"F{n}", title="x" * 300) for n in range(100, 180)]
    ada, bob = make_desks(*many, rules=RULES)
    some = [f"F{n}" for n in range(100, 140)]
    ada.ok("claim", *some)
    for name in some[:10]:
        bob.ok("note", name, "a long story\n" * 100)
    ada.clock.advance(3_600)
    for name in some[20:]:
        bob.ok("claim", name, "--takeover", "--reason", "why " * 20)
    ran = ada.ok("brief")
    assert len(ran.out.splitlines()) <= 50
    assert max(map(len, ran.out.splitlines())) < 400
    check_words(ran.out)
    document = ada.ok("brief", "--json").json
    assert (len(document["carrying"]), len(document["next_tasks"])) == (40, 5)


# --- show ---------------------------------------------------------------------------------------


def test_show_of_a_broken_task_file_warns(ada: Desk) -> None:
    message = "tasks/F009.md:7: the front matter has no end"
    ada.tasks.problems = (
        TaskProblem("tasks/F009.md", message, frozenset({"f009"})),
        TaskProblem("tasks/x.md", "tasks/x.md: another", frozenset({"x"})),
    )
    ran = ada.ok("show", "F009", "--json")
    assert (ran.json["task"], ran.json["warnings"]) == (None, [message])
    assert ada.ok("show", "F001", "--json").json["warnings"] == []
    assert ada.ok("show", "src/", "--json").json["warnings"] == []


def test_show_asks_the_remote_once(ada: Desk) -> None:
    ada.ok("claim", "F001")
    asked = ada.store.remote.asked
    ada.ok("show", "F001")
    assert ada.store.remote.asked == asked + 1
