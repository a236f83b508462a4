"""Issue numbers of a host as names, by two people at one remote, and a third who comes new."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.remotes import Remote
from support.repos import git
from support.running import Desk
from support.terminals import all_written

pytestmark = pytest.mark.slow

GITHUB = ("config", "--ledger", "issues", "github")


@pytest.mark.default
def test_a_clone_that_knows_an_older_policy_is_held_to_the_new_one(jo: Desk, kim: Desk) -> None:
    assert kim.live() == []
    jo.document(*GITHUB)
    assert kim.document("claim", "GH-5")["leases"][0]["resource"] == "#5"
    assert jo.document("claim", "5", expect=1)["error"]["code"] == "held"
    assert jo.document("show", "GH-5")["leases"]
    assert kim.document("release", "GH-5")["status"] == "released"


@pytest.mark.nightly
def test_an_issue_that_is_held_stays_one_resource(jo: Desk, kim: Desk) -> None:
    jo.document(*GITHUB)
    kim.document("claim", "12")
    jo.document(*GITHUB[:-1], "none", expect=6)
    kim.document("release", "12")
    jo.document(*GITHUB[:-1], "none")
    assert kim.live() == []
    assert kim.document("claim", "12")["leases"][0]["resource"] == "12"


def test_an_older_gitlease_is_told_to_upgrade(jo: Desk, path_remote: Remote) -> None:
    for host, form in (("github", "3"), ("none", "2")):
        jo.document(*GITHUB[:-1], host)
        header = git(path_remote.bare, "show", "refs/gitlease/global:ledger.yaml")
        assert header.splitlines()[0] == f"format: {form}"
    assert jo.document("verify")["violations"] == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("url", "host"),
    [("git@gitlab.example.org:ada/shop", "gitlab"), ("ssh://git@codeberg.org/ada/shop", None)],
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
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    for number in (12, 7):
        assert f";https://github.com/ada/shop/issues/{number}\x1b\\#{number}" in plain
    assert "\x1b]" not in jo.ask("list").stdout


def test_a_first_contact_for_a_number_keeps_no_news_back(
    jo: Desk, kim: Desk, clones: Callable[..., list[Path]]
) -> None:
    jo.document("claim", "F001")
    assert kim.ask("config", "--ledger", "admins", "w2@example.com").returncode == 0
    kim.document("revoke", "F001", "--reason", "needed now")
    (new,) = clones(1)
    git(new, "config", "user.email", "w1@example.com")
    assert any("needed now" in x for x in Desk(new).document("show", "12")["warnings"])
