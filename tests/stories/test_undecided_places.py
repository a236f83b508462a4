"""What is read before anybody knows where the ledger is: nothing is free at the wrong place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.remotes import Remote
from support.repos import commit_file, git, real_clone
from support.running import Desk, desks_in

pytestmark = pytest.mark.slow

FILE = ".gitlease.yaml"
LEDGER = "refs/gitlease/global"
READS = (["wait", "deploy", "--timeout", "1s"], ["show", "deploy"], ["list"], ["status"])


@pytest.fixture
def ada(clones: Callable[..., list[Path]], path_remote: Remote) -> Iterator[Desk]:
    """Somebody holds ``deploy`` at the usual place."""
    with desks_in(clones(1)) as (ada,):
        ada.document("claim", "deploy", "--ttl", "1h")
        yield ada


def test_nothing_is_free_where_the_ledger_is_not_moved_yet(
    ada: Desk, path_remote: Remote, tmp_path: Path
) -> None:
    commit_file(ada.clone, FILE, "lease: {ref_prefix: refs/heads/gitlease}\n")
    git(ada.clone, "push", "-q", "origin", "HEAD:main")
    clone = real_clone(path_remote.url, tmp_path / "cy", "cy@example.com")
    with desks_in([clone]) as (cy,):
        for words in (*READS, ["claim", "deploy"], ["init"]):
            error = cy.document(*words, expect=7)["error"]
            assert f"still at {LEDGER}" in error["message"], words
            hints = " ".join(error["hints"])
            assert "init --move" in hints
            assert "git config" not in hints
        git(ada.clone, "fetch", "-q")
        ada.document("init", "--move")
        assert cy.document("wait", "deploy", "--timeout", "1s", expect=1)


def test_clone_of_one_branch_asks_main_before_it_reads(
    ada: Desk, path_remote: Remote, tmp_path: Path
) -> None:
    nowhere = path_remote.bare.parent / "nowhere.git"  # asking it would fail otherwise
    git(ada.clone, "checkout", "-q", "-b", "old")
    commit_file(ada.clone, FILE, f"lease: {{remote: {nowhere.as_uri()}}}\n")
    git(ada.clone, "push", "-q", "origin", "old")
    options = ("--single-branch", "-b", "old")
    for number, words in enumerate(READS[:3]):
        clone = real_clone(path_remote.url, tmp_path / f"cy{number}", "cy@example.com", *options)
        with desks_in([clone]) as (cy,):
            if words[0] == "wait":
                cy.document(*words, expect=1)
            else:
                assert "w1@example.com" in str(cy.document(*words))


def test_wait_says_nothing_is_free_on_an_unrecorded_ledger(
    ada: Desk, path_remote: Remote, tmp_path: Path
) -> None:
    fork = path_remote.bare.parent / "fork.git"
    ada.document("init")
    git(ada.clone, "add", FILE)
    git(ada.clone, "commit", "-q", "-m", "record the ledger")
    git(ada.clone, "push", "-q", "origin", "HEAD:main")
    git(path_remote.bare.parent, "clone", "-q", "--bare", path_remote.url, "fork.git")
    git(fork, "update-ref", "-d", LEDGER)
    clone = real_clone(fork.as_uri(), tmp_path / "cy", "cy@example.com")
    with desks_in([clone]) as (cy,):
        said = cy.document("wait", "deploy", "--timeout", "1s", expect=7)["error"]["message"]
        assert "records the ledger" in said
        assert "records the ledger" in str(cy.document("show", "deploy")["warnings"])


def test_only_an_admin_replaces_a_deleted_ledger(
    clones: Callable[..., list[Path]], path_remote: Remote
) -> None:
    with desks_in(clones(2)) as (ada, eve):
        ada.document("claim", "deploy", "--ttl", "1h")
        ada.document("config", "--ledger", "admins", "w1@example.com")
        eve.document("list")
        git(eve.clone, "push", "-q", "origin", f":{LEDGER}")
        for words in (["init", "--new-ledger"], ["init"], ["init", "--new-ledger"]):
            error = eve.document(*words, expect=6)["error"]
            assert "only the admins of the deleted ledger" in error["message"]
        assert not git(path_remote.bare, "for-each-ref", LEDGER)
        said = ada.ask("init", "--restore").stdout
        assert "restored the ledger, as this clone has seen it last" in said
        said = ada.ask("init", "--restore", "--now").stdout
        assert "ended the wait of the restored ledger" in said
        assert eve.document("claim", "build")["status"] == "claimed"


def test_restore_names_only_what_was_given(clones: Callable[..., list[Path]]) -> None:
    with desks_in(clones(1)) as (ada,):
        message = ada.document("init", "--restore", "--move", expect=2)["error"]["message"]
    assert message == "--restore cannot be combined with --move"
