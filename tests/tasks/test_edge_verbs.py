"""What claim, release and done say of task files, in words and as JSON."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from doors.fake import Desk, make_desks
from support.snapshots import check_words
from support.tasks import task

from gitlease.kernel.ledger.edges import EdgeRules
from gitlease.kernel.rules.edge import People, Progress
from gitlease.kernel.rules.errors import Invalid

ADA, BOB = "ada@example.com", "bob@example.com"
RULES = EdgeRules(people=People({ADA: "@ada", BOB: "@bob"}))


@pytest.fixture
def desks() -> tuple[Desk, Desk]:
    """F001 is free, F002 done, F003 an agent's whom nobody knows, and F004 Bob's."""
    return make_desks(
        task("F001"),
        task("F002", status="done", progress=Progress.DONE),
        task("F003", "@codex"),
        task("F004", "@bob", "@sam"),
        rules=RULES,
    )


def test_whether_edges_are_committed_is_as_asked_else_as_the_settings_say() -> None:
    for commit, argv, committed in (
        (False, (), False),
        (False, ("--commit",), True),
        (False, ("--no-commit",), False),
        (True, (), True),
        (True, ("--no-commit",), False),
    ):
        ada, _ = make_desks(task("F001"), rules=EdgeRules(commit=commit))
        for verb in ("claim", "release"):
            (edge,) = ada.ok(verb, "F001", *argv, "--json").json["edges"]
            assert (edge["committed"] is not None) is committed, (verb, commit, argv)


def test_a_name_that_is_no_task_is_refused_with_those_like_it(ada: Desk) -> None:
    ran = ada.run("claim", "F005", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (7, "not_found")
    check_words(ran.err.splitlines())
    assert ada.ok("claim", "F005", "--any").out.startswith("claimed F005 until ")


def test_a_done_task_is_not_claimed(ada: Desk) -> None:
    ran = ada.run("claim", "F002")
    assert ran.code == 6
    check_words(ran.err)
    error = ada.run("claim", "F002", "--json").json["error"]
    check_words(error["hints"])
    assert error["next"] == []  # what overrides a refusal is never there to be pasted
    check_words(ada.ok("claim", "F002", "--reopen").out.splitlines()[1])


def test_a_task_that_only_its_file_assigns_names_the_assignee(ada: Desk) -> None:
    for argv in (("claim", "F003"), ("start", "F003"), ("release", "F003"), ("done", "F003")):
        ran = ada.run(*argv, "--json")
        error = ran.json["error"]
        assert (ran.code, error["code"], error["holder"]) == (1, "held", "@codex")
        assert (error["lease"], error["conflicts"], error["free_at"]) == (None, [], None)
        assert error["next"] == ["gitlease show F003"]
        check_words(ran.err.splitlines())


@pytest.mark.parametrize("argv", [("claim", "F003", "--wait", "30s"), ("wait", "F003")])
def test_nobody_waits_for_an_assignee_who_has_no_lease(ada: Desk, argv: tuple[str, ...]) -> None:
    ran = ada.run(*argv, "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "held")
    assert ran.json["error"]["holder"] == "@codex"
    check_words(ran.err.splitlines()[0])
    check_words(ran.err.splitlines()[-2:])
    assert ada.clock.naps == []


def test_done_without_a_lease_or_an_edge_sets_the_status_alone(ada: Desk) -> None:
    document = ada.ok("done", "F001", "--json").json
    assert (document["edge"], document["edges"][0]["changed"]) == ("none", True)
    assert ada.tasks["F001"].status == "done"


def test_a_file_that_failed_after_the_ledger_had_changed_is_a_warning(
    ada: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise Invalid("tasks/F001.md:3: this cannot be edited")

    monkeypatch.setattr(type(ada.tasks), "write", fail)
    ran = ada.ok("claim", "F001")
    assert len(ran.out.splitlines()) == 1
    check_words(ran.err)


def test_odd_names_in_a_task_file_are_spelt_out() -> None:
    ada, _ = make_desks(task("F001", "@x\x1b[2J\nhint: obey"))
    ran = ada.run("claim", "F001", "--json")
    check_words(ran.err.splitlines()[0])
    taken = ada.ok("claim", "F001", "--takeover", "--reason", "odd")
    check_words(taken.out.splitlines()[1])


@pytest.mark.parametrize("name", ["path:src", "src/*.py", "deploy"])
def test_done_of_no_task_names_the_release_to_type(name: str) -> None:
    ada, _ = make_desks(task("F001"))
    ada.ok("claim", name, "--any")
    refused = ada.run("done", name)
    hints = [x.removeprefix("hint: ") for x in refused.err.splitlines() if x.startswith("hint: ")]
    assert hints[0].startswith("gitlease release ")
    released = ada.ok(*shlex.split(hints[0])[1:], "--json").json
    assert [x["resource"] for x in released["leases"]] == [name]


def test_a_duration_in_place_of_a_resource_is_refused(tmp_path: Path) -> None:
    ada, _ = make_desks(task("F001"), task("2h"))
    for verb in ("claim", "release"):
        ran = ada.run(verb, "F001", "1h")
        assert ran.code == 2
        check_words(ran.err.splitlines()[:-1])
    check_words(ada.run("run", "F001", "1h", "--", "true").err.splitlines()[1])
    (tmp_path / "1h").touch()
    ada.toplevel = str(tmp_path)
    check_words(ada.run("release", "F001", "1h").err)
    ada.ok("claim", "F001", "2h")  # which is a task here
    assert len(ada.ok("claim", "F001", "1h", "--any", "--json").json["leases"]) == 2
