"""A clone whose remote was removed: the team's ledger is out of reach, and none takes its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.repos import commit_file, git
from support.running import Desk, desks_in

pytestmark = pytest.mark.slow

FILE = ".gitlease.yaml"
RECORD = "lease: {ledger: 0123456789abcdef0123}\n"
LACKS = "has no remote"


@pytest.fixture
def desk(clones: Callable[..., list[Path]]) -> Iterator[Desk]:
    with desks_in(clones(1)) as (desk,):
        yield desk


def refused(desk: Desk, *words: str) -> dict[str, object]:
    error: dict[str, object] = desk.document(*words, expect=7)["error"]
    assert LACKS in str(error["message"])
    assert "restore" not in str(error)
    return error


def test_refusal_does_not_speak_of_the_local_ledger(desk: Desk) -> None:
    desk.document("claim", "deploy")
    git(desk.clone, "remote", "remove", "origin")
    for words in (
        ("claim", "deploy"),
        ("renew", "deploy"),
        ("release", "--all"),
        ("renew", "--all"),
    ):
        warnings = desk.document(*words, expect=7).get("warnings", [])
        assert not any("local ledger" in text for text in warnings), words
    warnings = desk.document("claim", "deploy", "--local")["warnings"]
    assert any("local ledger" in text for text in warnings)


def test_used_ledger_is_not_brought_back_without_its_remote(desk: Desk) -> None:
    desk.document("claim", "deploy")
    git(desk.clone, "remote", "remove", "origin")
    for option in ("restore", "new-ledger", "accept-rollback", "undo-rollback"):
        refused(desk, "init", f"--{option}")
    refused(desk, "init", "--restore", "--now")
    refused(desk, "claim", "build")
    answer = desk.document("claim", "build", "--local")
    assert answer["ok"]


@pytest.mark.parametrize("verb", ["show", "wait", "renew", "release"])
def test_nothing_is_free_without_the_remote(desk: Desk, verb: str) -> None:
    desk.document("claim", "deploy")
    git(desk.clone, "remote", "remove", "origin")
    refused(desk, verb, "deploy")


@pytest.mark.parametrize("verb", ["list", "status", "check"])
def test_nothing_is_told_of_leases_without_the_remote(desk: Desk, verb: str) -> None:
    desk.document("claim", "deploy")
    git(desk.clone, "remote", "remove", "origin")
    refused(desk, verb)


def test_other_branch_records_the_ledger(desk: Desk) -> None:
    git(desk.clone, "checkout", "-q", "-b", "team")
    commit_file(desk.clone, FILE, RECORD)
    git(desk.clone, "checkout", "-q", "main")
    git(desk.clone, "remote", "remove", "origin")
    refused(desk, "claim", "deploy")


def test_removed_record_counts(desk: Desk) -> None:
    commit_file(desk.clone, FILE, RECORD)
    git(desk.clone, "rm", "-q", FILE)
    git(desk.clone, "commit", "-q", "-m", "remove it")
    git(desk.clone, "remote", "remove", "origin")
    refused(desk, "claim", "deploy")


def test_record_of_a_deleted_branch_counts(desk: Desk) -> None:
    git(desk.clone, "checkout", "-q", "-b", "team")
    commit_file(desk.clone, FILE, RECORD)
    git(desk.clone, "checkout", "-q", "main")
    git(desk.clone, "branch", "-q", "-D", "team")
    git(desk.clone, "remote", "remove", "origin")
    refused(desk, "claim", "deploy")


def test_local_ledger_is_left_once_another_is_recorded(desk: Desk) -> None:
    git(desk.clone, "remote", "remove", "origin")
    desk.document("claim", "deploy")
    commit_file(desk.clone, FILE, RECORD)
    refused(desk, "claim", "deploy")
    refused(desk, "renew", "deploy")


def test_clone_that_never_had_a_remotes_ledger_keeps_its_own(desk: Desk) -> None:
    git(desk.clone, "remote", "remove", "origin")
    desk.document("claim", "deploy")
    desk.document("renew", "deploy")
    assert [x["resource"] for x in desk.document("list")["leases"]] == ["deploy"]


def test_doctor_says_that_the_ledger_is_out_of_reach(desk: Desk) -> None:
    desk.document("claim", "deploy")
    git(desk.clone, "remote", "remove", "origin")
    out = str(desk.document("doctor", expect=1))
    assert LACKS in out
    assert "leases stay in this clone" not in out
