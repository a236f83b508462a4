"""Issue numbers of a host as names, by two people at one remote, and a third who comes new."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.repos import commit_file, git
from support.running import Desk
from support.terminals import all_written

GITHUB = ("config", "--ledger", "issues", "github")


def test_one_issue_is_one_resource_for_all(
    jo: Desk, kim: Desk, clones: Callable[..., list[Path]]
) -> None:
    jo.document(*GITHUB)
    assert jo.document("claim", "12")["leases"][0]["resource"] == "#12"
    for spelling in ("#12", "12", "GH-12", "gh-12"):
        held = kim.document("claim", spelling, expect=1)["error"]
        assert (held["code"], held["resource"]) == ("held", "#12")
        shown = kim.document("show", spelling)
        assert [x["holder"] for x in shown["leases"]] == ["w1@example.com"]
    assert kim.document("claim", "GL-12")["leases"][0]["resource"] == "GL-12"
    (new,) = clones(1)
    third = Desk(new)
    assert third.document("release", "gh-12", expect=1)["error"]["holder"] == "w1@example.com"
    jo.document("note", "gh-12", "half done")
    jo.document("release", "GH-12")
    claimed = third.document("claim", "12")
    assert [x["text"] for x in claimed["notes"]] == ["half done"]
    third.document("done", "gh-12")
    assert kim.document("claim", "#12", expect=6)["error"]["code"] == "policy"
    assert kim.document("done", "77", expect=7)["error"]["resource"] == "#77"


def test_a_clone_that_knows_an_older_policy_is_held_to_the_new_one(jo: Desk, kim: Desk) -> None:
    assert kim.live() == []
    jo.document(*GITHUB)
    assert kim.document("claim", "GH-5")["leases"][0]["resource"] == "#5"
    assert jo.document("claim", "5", expect=1)["error"]["code"] == "held"
    assert kim.document("release", "GH-5")["status"] == "released"


def test_the_policy_waits_for_records_and_tasks_in_other_spellings(jo: Desk, kim: Desk) -> None:
    kim.document("claim", "GH-5")
    refused = jo.document(*GITHUB, expect=6)["error"]
    assert "GH-5" in refused["message"]
    kim.document("release", "GH-5")
    commit_file(jo.clone, "tasks/7.md", "---\nid: 7\nstatus: todo\n---\n")
    refused = jo.document(*GITHUB, expect=2)["error"]
    assert refused["message"].startswith("tasks/7.md:2: the id 7 reads as the number of an issue")
    assert kim.document(*GITHUB)["status"] == "policy_changed"


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://github.com/ada/shop.git", "github"),
        ("git@gitlab.example.org:ada/shop", "gitlab"),
        ("ssh://git@codeberg.org/ada/shop", None),
        ("C:/work/shop", None),
    ],
)
def test_init_offers_the_numbers_of_the_host(jo: Desk, url: str, host: str | None) -> None:
    ledger = git(jo.clone, "remote", "get-url", "origin")
    git(jo.clone, "remote", "add", "ledger", ledger)
    git(jo.clone, "config", "lease.remote", "ledger")
    git(jo.clone, "remote", "set-url", "origin", url)
    git(jo.clone, "config", f"url.{ledger}.pushInsteadOf", url)
    offered = [x for x in jo.document("init")["next"] if "issues" in x]
    assert offered == ([f"gitlease config issues {host} --ledger"] if host else [])
    if host is not None:
        assert jo.ask(*shlex.split(offered[0])[1:]).returncode == 0
        assert not [x for x in jo.document("init")["next"] if "issues" in x]


def test_an_issue_is_linked_on_a_terminal(jo: Desk) -> None:
    jo.document(*GITHUB)
    jo.document("claim", "12", "--reason", "as #7 says")
    ledger = git(jo.clone, "remote", "get-url", "origin")
    git(jo.clone, "remote", "add", "ledger", ledger)
    git(jo.clone, "config", "lease.remote", "ledger")
    git(jo.clone, "remote", "set-url", "origin", "git@github.com:ada/shop.git")
    above, below = pty.openpty()
    env = {"TERM": "xterm-256color", "COLUMNS": "150"}
    listed = jo.start("list", env=env, stdout=below, stderr=subprocess.DEVNULL)
    os.close(below)
    shown = all_written(above)
    assert listed.wait(60) == 0
    for number in (12, 7):
        assert f";https://github.com/ada/shop/issues/{number}\x1b\\#{number}" in shown
    assert "\x1b]" not in jo.ask("list").stdout
