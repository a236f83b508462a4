"""Where the ledger is: decided by the fetched default branch, never by one that is checked out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.remotes import Remote
from support.repos import commit_file, git, real_clone
from support.running import Desk, desks_in

pytestmark = pytest.mark.slow

FILE = ".gitlease.yaml"
OTHER = "lease: {ref_prefix: refs/heads/gitlease}\n"
LEDGER = "refs/gitlease/global"


@pytest.fixture
def ada_and_bob(
    clones: Callable[..., list[Path]], path_remote: Remote
) -> Iterator[tuple[Desk, Desk]]:
    """Two people of a team whose ledger is at the usual place."""
    with desks_in(clones(2)) as (ada, bob):
        ada.document("claim", "deploy", "--ttl", "1h")
        bob.document("list")
        yield ada, bob


def ledgers(bare: Path) -> list[str]:
    refs = git(bare, "for-each-ref", "--format=%(refname)").splitlines()
    return [ref for ref in refs if "gitlease" in ref]


def kept(desk: Desk) -> dict[str, object]:
    found: dict[str, object] = json.loads(
        (desk.clone / ".git/gitlease/place.json").read_text(encoding="utf-8")
    )
    return found


@pytest.mark.parametrize(
    "line", ["ref_prefix: refs/heads/gitlease", "layer: other", "remote: ../mirror.git"]
)
def test_checked_out_branch_grants_nothing_beside_the_teams_ledger(
    ada_and_bob: tuple[Desk, Desk], path_remote: Remote, line: str
) -> None:
    _, bob = ada_and_bob
    git(path_remote.bare.parent, "clone", "-q", "--mirror", path_remote.url, "mirror.git")
    git(bob.clone, "checkout", "-q", "-b", "old")
    commit_file(bob.clone, FILE, f"lease: {{{line}}}\n")
    refused = bob.document("claim", "deploy", expect=1)
    assert refused["error"]["holder"] == "w1@example.com"
    said = bob.document("list")["warnings"]
    (reported,) = [
        x for x in said if "takes effect once it is on the default branch of origin" in x
    ]
    assert FILE in reported
    assert ledgers(path_remote.bare) == [LEDGER]


@pytest.mark.default
def test_checked_out_branch_that_records_another_ledger_is_reported(
    ada_and_bob: tuple[Desk, Desk],
) -> None:
    ada, bob = ada_and_bob
    ada.document("init")
    git(ada.clone, "add", FILE)
    git(ada.clone, "commit", "-q", "-m", "record the ledger")
    git(ada.clone, "push", "-q", "origin", "HEAD:main")
    git(bob.clone, "fetch", "-q")
    git(bob.clone, "checkout", "-q", "-b", "odd", "origin/main")
    assert not bob.document("list").get("warnings")
    commit_file(bob.clone, FILE, f"lease: {{ledger: {'f' * 20}}}\n")
    (said,) = bob.document("list")["warnings"]
    assert said.startswith(f"lease.ledger {'f' * 20} in {FILE}:1 is not used: ")
    assert bob.document("claim", "deploy", expect=1)["error"]["holder"] == "w1@example.com"


def test_read_only_status_on_such_a_branch_stops_no_renewal(
    ada_and_bob: tuple[Desk, Desk], path_remote: Remote
) -> None:
    ada, _ = ada_and_bob
    git(ada.clone, "checkout", "-q", "-b", "old")
    commit_file(ada.clone, FILE, OTHER)
    ada.document("status")
    ada.document("list")
    assert ada.document("renew", "deploy")["lease"]["renewals"] == 1
    git(ada.clone, "checkout", "-q", "-")
    assert ada.document("renew", "deploy")["lease"]["renewals"] == 2
    assert ada.document("claim", "build")["status"] == "claimed"
    assert ledgers(path_remote.bare) == [LEDGER]


def test_back_on_main_nobody_is_locked_out(ada_and_bob: tuple[Desk, Desk]) -> None:
    ada, bob = ada_and_bob
    git(bob.clone, "checkout", "-q", "-b", "old")
    commit_file(bob.clone, FILE, OTHER)
    bob.document("claim", "build")
    ada.document("claim", "test")
    git(bob.clone, "checkout", "-q", "-")
    assert bob.document("renew", "build")["lease"]["renewals"] == 1
    assert bob.document("claim", "test", expect=1)["error"]["code"] == "held"


def test_fetched_main_decides_before_it_is_merged(
    clones: Callable[..., list[Path]], path_remote: Remote
) -> None:
    with desks_in(clones(2)) as (ada, bob):
        commit_file(ada.clone, FILE, OTHER)
        git(ada.clone, "push", "-q", "origin", "HEAD:main")
        ada.document("claim", "deploy")
        git(bob.clone, "fetch", "-q")
        assert bob.document("claim", "deploy", expect=1)["error"]["code"] == "held"
        assert ledgers(path_remote.bare) == ["refs/heads/gitlease/global"]
        shown = {x["key"]: x for x in bob.document("config")["settings"]}["lease.ref_prefix"]
        assert shown["source"].startswith(f"{FILE}:1 on the default branch of origin")


@pytest.mark.default
def test_fresh_clone_on_an_old_branch_creates_no_second_ledger(
    ada_and_bob: tuple[Desk, Desk], path_remote: Remote, tmp_path: Path
) -> None:
    ada, _ = ada_and_bob
    git(ada.clone, "checkout", "-q", "-b", "old")
    commit_file(ada.clone, FILE, OTHER)
    git(ada.clone, "push", "-q", "origin", "old")
    clone = real_clone(path_remote.url, tmp_path / "cy", "cy@example.com", "-b", "old")
    with desks_in([clone]) as (cy,):
        assert cy.document("claim", "deploy", expect=1)["error"]["code"] == "held"
        for _ in range(3):
            error = cy.document("claim", "build", expect=7)["error"]
        assert "lease.ref_prefix" in error["message"]
        assert any("git config lease.refPrefix" in x for x in error["hints"])
        cy.document("init", expect=7)
        assert ledgers(path_remote.bare) == [LEDGER]
        git(clone, "config", "lease.refPrefix", "refs/gitlease")
        assert cy.document("claim", "build")["status"] == "claimed"


def test_clone_of_an_old_branch_alone_creates_no_second_ledger(
    ada_and_bob: tuple[Desk, Desk], path_remote: Remote, tmp_path: Path
) -> None:
    ada, _ = ada_and_bob
    git(ada.clone, "checkout", "-q", "-b", "old")
    commit_file(ada.clone, FILE, OTHER)
    git(ada.clone, "push", "-q", "origin", "old")
    options = ("--single-branch", "-b", "old")
    clone = real_clone(path_remote.url, tmp_path / "cy", "cy@example.com", *options)
    with desks_in([clone]) as (cy,):
        for _ in range(3):
            cy.document("claim", "build", expect=7)
        assert ledgers(path_remote.bare) == [LEDGER]


def test_old_fork_as_origin_is_no_place_to_grant(
    clones: Callable[..., list[Path]], path_remote: Remote, tmp_path: Path
) -> None:
    """Main of an old fork does not say where the team's ledger is, but the work tree does."""
    with desks_in(clones(1)) as (ada,):
        git(tmp_path, "clone", "-q", "--bare", path_remote.url, "fork.git")
        commit_file(ada.clone, FILE, "lease: {remote: upstream}\n")
        git(ada.clone, "remote", "add", "upstream", path_remote.url)
        git(ada.clone, "push", "-q", "origin", "HEAD:main")
        ada.document("claim", "deploy")
    clone = real_clone(tmp_path / "fork.git", tmp_path / "cy", "cy@example.com")
    git(clone, "remote", "add", "upstream", path_remote.url)
    git(clone, "fetch", "-q", "upstream")
    git(clone, "checkout", "-q", "-b", "topic", "upstream/main")
    with desks_in([clone]) as (cy,):
        error = cy.document("claim", "deploy", expect=7)["error"]
        assert "lease.remote upstream" in error["message"]
        assert any("git config lease.remote" in x for x in error["hints"])
        assert ledgers(tmp_path / "fork.git") == []
        git(clone, "config", "lease.remote", "upstream")
        assert cy.document("claim", "deploy", expect=1)["error"]["code"] == "held"


def test_clone_that_knows_no_main_stays_where_it_was(
    ada_and_bob: tuple[Desk, Desk], path_remote: Remote
) -> None:
    ada, _ = ada_and_bob
    assert kept(ada)["values"] == {
        "lease.remote": None,
        "lease.ref_prefix": "refs/gitlease",
        "lease.layer": "global",
    }
    git(ada.clone, "update-ref", "-d", "refs/remotes/origin/main")
    git(ada.clone, "symbolic-ref", "-d", "refs/remotes/origin/HEAD")
    commit_file(ada.clone, FILE, OTHER)
    assert ada.document("renew", "deploy")["lease"]["renewals"] == 1
    assert ada.document("claim", "build")["status"] == "claimed"
    assert ledgers(path_remote.bare) == [LEDGER]


def test_clone_of_an_older_gitlease_keeps_its_state(
    ada_and_bob: tuple[Desk, Desk], path_remote: Remote
) -> None:
    ada, _ = ada_and_bob
    (ada.clone / ".git/gitlease/place.json").unlink()
    before = (ada.clone / ".git/gitlease/state/default/global/known.json").read_bytes()
    git(ada.clone, "update-ref", "-d", "refs/remotes/origin/main")
    git(ada.clone, "symbolic-ref", "-d", "refs/remotes/origin/HEAD")
    assert [x["resource"] for x in ada.document("list", "--cached")["leases"]] == ["deploy"]
    assert (ada.clone / ".git/gitlease/state/default/global/known.json").read_bytes() == before
    assert ada.document("renew", "deploy")["lease"]["renewals"] == 1
    assert sorted(x.name for x in (ada.clone / ".git/gitlease/state").iterdir()) == ["default"]


def test_first_ledger_is_not_made_beside_another(
    ada_and_bob: tuple[Desk, Desk], path_remote: Remote, tmp_path: Path
) -> None:
    """Main names another place, at which nobody is yet: the team is still at the old one."""
    ada, _ = ada_and_bob
    commit_file(ada.clone, FILE, OTHER)
    git(ada.clone, "push", "-q", "origin", "HEAD:main")
    clone = real_clone(path_remote.url, tmp_path / "cy", "cy@example.com")
    with desks_in([clone]) as (cy,):
        for words in (["claim", "deploy"], ["init"]):
            error = cy.document(*words, expect=7)["error"]
            assert LEDGER in error["message"]
    assert ledgers(path_remote.bare) == [LEDGER]


def test_ref_that_is_only_called_like_a_ledger_is_none(
    clones: Callable[..., list[Path]], path_remote: Remote
) -> None:
    with desks_in(clones(1)) as (ada,):
        git(ada.clone, "push", "-q", "origin", "HEAD:refs/heads/gitlease/topic")
        assert ada.document("claim", "deploy")["status"] == "claimed"


# --- what is known is known of a URL --------------------------------------------------------------


def test_restored_backup_at_another_url_is_a_rollback_there_only(
    ada_and_bob: tuple[Desk, Desk], path_remote: Remote, tmp_path: Path
) -> None:
    ada, _ = ada_and_bob
    backup = tmp_path / "backup.git"
    shutil.copytree(path_remote.bare, backup)
    ada.document("claim", "build", "--ttl", "1h")
    git(ada.clone, "remote", "set-url", "origin", str(backup))
    for words in (["list"], ["claim", "test"], ["claim", "deploy"]):
        error = ada.document(*words, expect=7)["error"]
        assert error["code"] == "rollback"
        assert path_remote.url in error["message"]
    before = git(backup, "rev-parse", LEDGER)
    error = ada.document("init", "--undo-rollback", expect=6)["error"]
    assert "never seen at this URL" in error["message"]
    assert git(backup, "rev-parse", LEDGER) == before
    git(ada.clone, "remote", "set-url", "origin", path_remote.url)
    assert ada.document("renew", "build")["lease"]["renewals"] == 1


def test_accepted_backup_gives_no_token_twice(
    ada_and_bob: tuple[Desk, Desk], path_remote: Remote, tmp_path: Path
) -> None:
    ada, _ = ada_and_bob
    backup = tmp_path / "backup.git"
    shutil.copytree(path_remote.bare, backup)
    token = ada.document("claim", "build", "--ttl", "1h")["lease"]["token"]
    git(ada.clone, "remote", "set-url", "origin", str(backup))
    ada.document("init", "--accept-rollback")
    assert ada.document("claim", "test")["lease"]["token"] > token
    assert ada.document("list")["ok"]


def test_another_url_of_the_same_ledger_goes_on(
    ada_and_bob: tuple[Desk, Desk], path_remote: Remote, tmp_path: Path
) -> None:
    ada, bob = ada_and_bob
    bob.document("claim", "build")
    git(ada.clone, "remote", "set-url", "origin", f"file://{path_remote.bare}")
    assert ada.document("renew", "deploy")["lease"]["renewals"] == 1
    assert ada.document("claim", "test")["status"] == "claimed"
    assert ada.document("claim", "build", expect=1)["error"]["code"] == "held"
