"""A ledger that was deleted after it moved, or that a clone never saw: none replaces it at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.remotes import Remote
from support.repos import commit_file, git, real_clone
from support.running import Desk, desks_in

pytestmark = pytest.mark.slow

FILE = ".gitlease.yaml"
LEDGER, MOVED = "refs/gitlease/global", "refs/other/global"


def test_ledger_that_is_deleted_where_it_moved_to_is_its_admins(
    clones: Callable[..., list[Path]], path_remote: Remote
) -> None:
    """S2: whoever followed the move knows its admins and its leases there as well."""
    with desks_in(clones(2)) as (ada, bob):
        ada.document("config", "--ledger", "admins", "w1@example.com")
        token = bob.document("claim", "deploy", "--ttl", "1h")["lease"]["token"]
        commit_file(ada.clone, FILE, "lease: {ref_prefix: refs/other}\n")
        git(ada.clone, "push", "-q", "origin", "HEAD:main")
        ada.document("init", "--move")
        bob.document("renew", "deploy")
        git(bob.clone, "pull", "-q", "--rebase")  # from now on its settings name the new place
        git(path_remote.bare, "update-ref", "-d", MOVED)
        for words in (["--restore"], ["--new-ledger"], ["--restore", "--now"]):
            error = bob.document("init", *words, expect=6)["error"]
            assert "admins" in error["message"], words
        assert not git(path_remote.bare, "for-each-ref", MOVED)
        told = ada.document("init", "--restore")["warnings"]
        assert any("nothing new is granted until" in text for text in told)
        assert bob.document("renew", "deploy")["lease"]["token"] == token
        bob.document("claim", "build", expect=6)


def records_a_ledger(desk: Desk) -> None:
    """Make a ledger, and record its id on the default branch."""
    desk.document("init")
    git(desk.clone, "add", FILE)
    git(desk.clone, "commit", "-qm", "settings")
    git(desk.clone, "push", "-q", "origin", "HEAD:main")


def test_new_ledger_of_whoever_never_saw_the_recorded_one_waits(
    clones: Callable[..., list[Path]], path_remote: Remote, tmp_path: Path
) -> None:
    """S2: a fork without a ledger, and a ledger that was deleted, look alike in a new clone."""
    with desks_in(clones(1)) as (ada,):
        records_a_ledger(ada)
        ada.document("claim", "deploy", "--ttl", "1h")
        fork = tmp_path / "fork.git"
        git(tmp_path, "clone", "-q", "--bare", str(path_remote.bare), str(fork))
        git(path_remote.bare, "update-ref", "-d", LEDGER)
    new = real_clone(path_remote.url, tmp_path / "eve", "eve@example.com")
    with desks_in([new]) as (eve,):
        error = eve.document("claim", "deploy", expect=7)["error"]
        assert any("init --restore" in text for text in error["hints"])
        told = eve.document("init", "--new-ledger")["warnings"]
        assert any("nothing new is granted until" in text for text in told)
        for _ in range(3):
            assert eve.document("claim", "deploy", expect=6)["error"]["code"] == "policy"
        eve.document("init", "--restore", "--now")
        assert eve.document("claim", "build")["status"] == "claimed"


def test_fork_beside_the_recorded_ledger_waits_for_nothing(
    clones: Callable[..., list[Path]], path_remote: Remote, tmp_path: Path
) -> None:
    with desks_in(clones(1)) as (ada,):
        records_a_ledger(ada)
    fork = tmp_path / "fork.git"
    git(tmp_path, "clone", "-q", "--bare", path_remote.url, str(fork))
    new = real_clone(str(fork), tmp_path / "bob", "bob@example.com")
    git(new, "remote", "add", "upstream", path_remote.url)
    with desks_in([new]) as (bob,):
        bob.document("init", "--new-ledger")
        assert bob.document("claim", "deploy")["status"] == "claimed"
