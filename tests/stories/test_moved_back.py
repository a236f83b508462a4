"""A ledger that moves back to where it was, and moves that an old copy of main would ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.remotes import Remote, Servers
from support.repos import commit_file, git, real_clone
from support.running import Desk, desks_in
from support.served import serve

pytestmark = pytest.mark.slow

FILE = ".gitlease.yaml"
OLD, NEW = "refs/gitlease/global", "refs/other/global"
THERE, BACK = "lease: {ref_prefix: refs/other}\n", "lease: {ref_prefix: refs/gitlease}\n"


@pytest.fixture
def team(
    clones: Callable[..., list[Path]], path_remote: Remote
) -> Iterator[tuple[Desk, Desk, Desk]]:
    """Three people: Ada holds something and moved the ledger once, and Cy knows nothing of it."""
    with desks_in(clones(3)) as (ada, bob, cy):
        for desk in (bob, cy):
            desk.document("list")
        ada.document("claim", "deploy", "--ttl", "1h")
        change_main(ada, THERE)
        ada.document("init", "--move")
        yield ada, bob, cy


def change_main(desk: Desk, text: str) -> None:
    commit_file(desk.clone, FILE, text)
    git(desk.clone, "push", "-q", "origin", "HEAD:main")


def told(desk: Desk) -> list[str]:
    return [x for x in desk.document("status")["warnings"] if "takes effect" in x]


def test_ledger_moves_back_and_on_again(
    team: tuple[Desk, Desk, Desk], path_remote: Remote, tmp_path: Path
) -> None:
    ada, bob, cy = team
    token = bob.document("claim", "build", "--ttl", "1h")["lease"]["token"]
    for text in (BACK, THERE):
        assert told(ada) == []
        change_main(ada, text)
        assert told(ada)
        moved = ada.document("init", "--move")
        assert not [x for x in moved["warnings"] if "takes effect" in x]
        assert bob.document("renew", "build")["status"] == "renewed"
        assert told(bob) == []
    fresh = real_clone(path_remote.url, tmp_path / "dee", "dee@example.com")
    with desks_in([fresh]) as (dee,):
        assert dee.document("claim", "build", expect=1)["error"]["code"] == "held"
        assert dee.document("claim", "docs/")["lease"]["token"] > token
    assert {*cy.live()} == {*ada.live()} == {"deploy", "build", "path:docs"}
    assert ada.ask("verify").returncode == 0


def test_main_that_is_older_than_the_move_asks_for_none(team: tuple[Desk, Desk, Desk]) -> None:
    _, bob, cy = team
    assert bob.document("claim", "build")["status"] == "claimed"
    assert told(bob) == []
    bob.document("init", "--move", expect=2)
    assert cy.document("init", "--move")["ledger"]["place"] == "origin (refs/other/global)"
    assert told(bob) == []
    assert cy.document("claim", "build", expect=1)["error"]["code"] == "held"


def test_two_places_that_name_each_other_are_left_for_the_newer(
    team: tuple[Desk, Desk, Desk], path_remote: Remote, tmp_path: Path
) -> None:
    ada, bob, cy = team
    left = git(path_remote.bare, "rev-parse", OLD)
    change_main(ada, BACK)
    ada.document("init", "--move")
    git(path_remote.bare, "update-ref", OLD, left)  # as if the move had been killed in between
    with desks_in([real_clone(path_remote.url, tmp_path / "dee", "dee@example.com")]) as (dee,):
        assert dee.document("claim", "deploy", expect=1)["error"]["code"] == "held"
    for desk in (bob, cy):
        assert desk.document("claim", "deploy", expect=1)["error"]["code"] == "held"
    assert bob.ask("verify").returncode == 0


def test_shallow_clone_follows_to_another_remote(
    clones: Callable[..., list[Path]], path_remote: Remote, tmp_path: Path
) -> None:
    (path,) = clones(1)
    git(tmp_path, "init", "-q", "--bare", "elsewhere.git")
    url, shallow = f"file://{tmp_path}/elsewhere.git", tmp_path / "bob"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{path_remote.bare}", str(shallow))
    git(shallow, "config", "user.email", "bob@example.com")
    with desks_in([path, shallow]) as (ada, bob):
        bob.document("claim", "build")
        ada.document("list")
        change_main(ada, f"lease: {{remote: '{url}'}}\n")
        ada.document("init", "--move")
        assert bob.document("renew", "build")["status"] == "renewed"
        assert [*bob.live()] == ["build"]
        # It is left as shallow as it was.
        assert git(shallow, "rev-list", "--all", "--count") == "1"


def test_restore_names_the_options_that_it_does_not_go_with(
    team: tuple[Desk, Desk, Desk],
) -> None:
    ada, _, _ = team
    error = ada.document("init", "--restore", "--move", expect=2)["error"]
    assert error["message"] == "--restore cannot be combined with --move"


def test_server_hook_admits_a_move_back_and_no_other_past(tmp_path: Path, servers: Servers) -> None:
    with serve("path", tmp_path / "served", servers) as host:
        jo = Desk(host.person("jo").root, host.env("jo"))
        commit_file(jo.clone, "README", "x")
        git(jo.clone, "push", "-q", "origin", "HEAD:main", env=host.env("jo"))
        host.install()
        jo.document("claim", "deploy", "--ttl", "1h")
        for text in ("lease: {layer: team}\n", "lease: {layer: global}\n"):
            commit_file(jo.clone, FILE, text)
            git(jo.clone, "push", "-q", "origin", "HEAD:main", env=host.env("jo"))
            jo.document("init", "--move")
        assert jo.document("renew", "deploy")["status"] == "renewed"
        assert jo.ask("verify").returncode == 0
