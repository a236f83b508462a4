"""set, with start for short: what a word means, what is said, and which options go with it."""

from __future__ import annotations

import pytest
from doors.fake import Desk, make_desks, words
from support.snapshots import check_words
from support.tasks import task

from gitlease.kernel.ledger.edges import EdgeRules
from gitlease.kernel.rules.edge import Progress

RULES = EdgeRules(
    statuses={
        Progress.TODO: ("To Do", "open"),
        Progress.IN_PROGRESS: ("In Progress", "doing"),
        Progress.DONE: ("Done", "closed"),
    }
)


@pytest.fixture
def desks() -> tuple[Desk, Desk]:
    """F001 is to do, F002 in review, F003 another's, F004 done."""
    return make_desks(
        task("F001", status="To Do"),
        task("F002", status="In Review", progress=Progress.OTHER),
        task("F003", "@codex", status="To Do"),
        task("F004", status="Done", progress=Progress.DONE),
        rules=RULES,
    )


def test_start_needs_a_task(ada: Desk) -> None:
    for argv in (("start", "F005"), ("start", "src/"), ("set", "F005", "todo")):
        ran = ada.run(*argv)
        assert (ran.code, ran.out) == (7, ""), argv
        check_words(ran.err)
    assert ada.run("set", "F005", "done").code == 7, "done of what is no task is `done`"
    check_words(ada.run("start", "a,b").err)
    # Refused as it was typed, before or after the words are read.
    for typed in ((), ("F001", "1h"), ("F001", "--session"), ("",), ("F001", "--takeover")):
        check_words(ada.run("start", *typed).err)
        assert ada.run("--json", "start", *typed).json["command"] == "set"


@pytest.mark.parametrize(
    ("said", "written"),
    [
        *(("to-do", "To Do"), ("TODO", "To Do"), ("OPEN", "open"), ("done", "Done")),
        *(("in_progress", "In Progress"), ("Doing", "doing"), ("in-review", "In Review")),
    ],
)
def test_the_words_of_a_status(ada: Desk, said: str, written: str) -> None:
    ada.ok("set", "F001", said)
    assert ada.tasks["F001"].status == written


def test_a_status_that_means_in_progress_claims(ada: Desk) -> None:
    ran = ada.ok("set", "F001", "doing", "--ttl", "1h", "--reason", "limits")
    check_words(ran.out)
    assert ada.ok("list", "--json").json["leases"][0]["reason"] == "limits"


def test_a_scope_can_be_finished_and_leaves_the_status(ada: Desk) -> None:
    ada.ok("claim", "F001", "--scope", "parser")
    assert ada.ok("set", "F001", "done", "--scope", "parser").out.startswith(
        "completed F001 (scope"
    )
    assert ada.tasks["F001"].status == "To Do"


def test_any_other_status_is_set_alone(ada: Desk) -> None:
    ada.ok("claim", "F001")
    ran = ada.ok("set", "F001", "in review", "--commit")
    check_words(ran.out)
    assert ran.err == ""
    assert ada.tasks["F001"].assigned == ("ada@example.com",)
    again = ada.ok("set", "F001", "In Review")
    check_words(again.out)
    document = ada.ok("set", "F001", "todo", "--json").json

    assert (document["status"], document["edge"], document["leases"]) == ("set", "none", [])
    assert [edge["changed"] for edge in document["edges"]] == [True]


def test_the_status_of_anothers_task_is_not_set(ada: Desk) -> None:
    ran = ada.run("set", "F003", "open", "--json")
    assert (ran.code, ran.json["error"]["holder"]) == (1, "@codex")
    assert ada.tasks["F003"].status == "To Do"


def test_a_finished_task_is_to_do_again_in_the_file_and_not_yet_in_the_ledger(ada: Desk) -> None:
    hint = "the ledger lists it as completed; to reopen it: gitlease claim F001 --reopen"
    ada.ok("done", "F001")
    assert ada.ok("set", "F001", "todo").err == f"hint: {hint}\n"
    assert ada.ok("set", "F004", "todo").err == "", "the ledger knows nothing of it"
    ada.clock.advance(31 * 86_400)
    assert ada.ok("set", "F001", "open").err == "", "it does not count any more"


@pytest.mark.parametrize(
    "option",
    [("--ttl", "1h"), ("--wait", "1m"), ("--reason", "x"), ("--takeover",), ("--reopen",)],
    ids=words,
)
@pytest.mark.parametrize("status", ["done", "In Review"])
def test_the_options_of_a_claim_go_with_a_status_that_claims(
    ada: Desk, status: str, option: tuple[str, ...]
) -> None:
    ran = ada.run("set", "F001", status, *option)
    assert (ran.code, ran.out, ada.store.remote.asked) == (2, "", 0)
    check_words(ran.err)
    assert ada.tasks["F001"].status == "To Do"


@pytest.mark.parametrize("word", ["", "_ _", "\x1b[2J", "x" * 500])
def test_odd_words_are_no_status(ada: Desk, word: str) -> None:
    ran = ada.run("set", "F001", "--", word)
    assert ran.code == 2
    assert ran.err.replace("\n", "").isprintable()
    assert len(ran.err.splitlines()[0]) < 150
