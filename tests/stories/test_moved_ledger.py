"""A ledger that moves: nobody is split off, and no lease is lost on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.remotes import Remote, Servers
from support.repos import commit_file, git, real_clone, run_git
from support.running import Desk, desks_in
from support.served import serve

pytestmark = pytest.mark.slow

FILE = ".gitlease.yaml"
OLD, NEW = "refs/gitlease/global", "refs/heads/gitlease/global"
MOVED = "lease: {ref_prefix: refs/heads/gitlease}\n"


@pytest.fixture
def team(
    clones: Callable[..., list[Path]], path_remote: Remote
) -> Iterator[tuple[Desk, Desk, Desk]]:
    """Three people: Ada holds something, and all have used the ledger."""
    with desks_in(clones(3)) as (ada, bob, cy):
        ada.document("claim", "deploy", "--ttl", "1h")
        for desk in (bob, cy):
            desk.document("list")
        yield ada, bob, cy


def change_main(desk: Desk, text: str = MOVED) -> None:
    commit_file(desk.clone, FILE, text)
    git(desk.clone, "push", "-q", "origin", "HEAD:main")


def ledgers(bare: Path) -> dict[str, str]:
    lines = git(bare, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return dict(line.split(" ") for line in lines if "gitlease" in line)


def test_everybody_stays_until_the_ledger_itself_has_moved(
    team: tuple[Desk, Desk, Desk], path_remote: Remote
) -> None:
    ada, bob, _ = team
    change_main(ada)
    git(bob.clone, "fetch", "-q")
    for desk in (ada, bob):  # one has merged it, and the other only fetched it
        (told,) = [x for x in desk.document("list")["warnings"] if "once the ledger is moved" in x]
        assert "lease.ref_prefix refs/heads/gitlease" in told
    assert bob.document("claim", "deploy", expect=1)["error"]["code"] == "held"
    assert bob.document("claim", "build")["status"] == "claimed"
    assert ada.document("renew", "deploy")["lease"]["renewals"] == 1
    assert [*ledgers(path_remote.bare)] == [OLD]


def test_move_takes_the_id_the_tokens_and_the_live_leases_along(
    team: tuple[Desk, Desk, Desk], path_remote: Remote, tmp_path: Path
) -> None:
    ada, bob, cy = team
    token = cy.document("claim", "test", "--ttl", "1h")["lease"]["token"]
    before = bob.document("init")["ledger"]
    change_main(ada)
    git(bob.clone, "fetch", "-q")
    moved = bob.document("init", "--move")["ledger"]
    assert moved["id"] == before["id"]
    assert moved["revision"] > before["revision"]
    assert {*ledgers(path_remote.bare)} == {OLD, NEW}
    # Whoever fetched main, whoever did not, and whoever never saw the former place.
    assert ada.document("renew", "deploy")["lease"]["renewals"] == 1
    assert cy.document("renew", "test")["lease"]["renewals"] == 1
    old = git(path_remote.bare, "rev-parse", OLD)
    fresh = real_clone(path_remote.url, tmp_path / "dee", "dee@example.com")
    with desks_in([fresh]) as (dee,):
        assert dee.document("claim", "deploy", expect=1)["error"]["code"] == "held"
        assert dee.document("claim", "docs/")["lease"]["token"] > token
    for desk in (ada, bob, cy):
        assert {"deploy", "test", "path:docs"} == {*desk.live()}
        assert desk.document("claim", "docs/", expect=1)["error"]["code"] == "held"
    assert git(path_remote.bare, "rev-parse", OLD) == old, "nothing is written there any more"
    assert bob.ask("verify").returncode == 0


def test_move_is_for_admins_once_there_are_any(team: tuple[Desk, Desk, Desk]) -> None:
    ada, bob, _ = team
    bob.document("init", "--move", expect=2)  # main names no other place
    ada.document("config", "--ledger", "admins", "w1@example.com")
    change_main(ada)
    git(bob.clone, "fetch", "-q")
    for _ in range(3):
        error = bob.document("init", "--move", expect=6)["error"]
        assert "admins" in error["message"]
    assert bob.document("claim", "build")["status"] == "claimed"
    ada.document("init", "--move")
    assert bob.document("renew", "build")["lease"]["renewals"] == 1


def test_other_layers_go_along(team: tuple[Desk, Desk, Desk], path_remote: Remote) -> None:
    ada, bob, cy = team
    cy.document("claim", "deploy", "--layer", "own")
    change_main(ada)
    ada.document("init", "--move")
    assert "refs/heads/gitlease/own" in ledgers(path_remote.bare)
    assert cy.document("renew", "deploy", "--layer", "own")["lease"]["renewals"] == 1
    git(bob.clone, "fetch", "-q")
    refused = bob.document("claim", "deploy", "--layer", "own", expect=1)
    assert refused["error"]["holder"] == "w3@example.com"


def test_layer_moves_too(team: tuple[Desk, Desk, Desk], path_remote: Remote) -> None:
    ada, bob, _ = team
    change_main(ada, "lease: {layer: team}\n")
    git(bob.clone, "fetch", "-q")
    assert bob.document("claim", "deploy", expect=1)["error"]["code"] == "held"
    ada.document("init", "--move")
    assert ada.document("renew", "deploy")["lease"]["layer"] == "team"
    assert bob.document("claim", "deploy", expect=1)["error"]["code"] == "held"
    assert bob.document("claim", "build")["lease"]["layer"] == "team"


def test_interrupted_move_is_finished_by_the_next_change(
    team: tuple[Desk, Desk, Desk], path_remote: Remote
) -> None:
    ada, bob, _ = team
    change_main(ada)
    ada.document("init", "--move")
    git(path_remote.bare, "update-ref", "-d", NEW)  # as if it had been killed in between
    assert bob.document("claim", "deploy", expect=1)["error"]["code"] == "held"
    assert bob.document("claim", "build")["status"] == "claimed"


def test_another_remote_counts_only_if_main_names_it(
    team: tuple[Desk, Desk, Desk], path_remote: Remote, tmp_path: Path
) -> None:
    ada, bob, cy = team
    git(tmp_path, "init", "-q", "--bare", "elsewhere.git")
    url = f"file://{tmp_path}/elsewhere.git"
    change_main(ada, f"lease: {{remote: '{url}'}}\n")
    ada.document("init", "--move")
    assert [*ledgers(tmp_path / "elsewhere.git")] == [OLD]
    assert ada.document("renew", "deploy")["lease"]["renewals"] == 1
    git(bob.clone, "fetch", "-q")
    assert bob.document("claim", "deploy", expect=1)["error"]["code"] == "held"
    # Whoever has not fetched main asks for it at need.
    assert cy.document("claim", "deploy", expect=1)["error"]["code"] == "held"
    assert cy.document("claim", "build")["status"] == "claimed"
    assert {*bob.live()} == {"deploy", "build"}


@pytest.mark.default
def test_place_that_main_does_not_name_is_not_followed(
    team: tuple[Desk, Desk, Desk], path_remote: Remote, tmp_path: Path
) -> None:
    """Whoever can push to the ledger could name a server of their own."""
    ada, bob, _ = team
    git(tmp_path, "init", "-q", "--bare", "evil.git")
    before = git(ada.clone, "rev-parse", "HEAD")
    change_main(ada, f"lease: {{remote: 'file://{tmp_path}/evil.git'}}\n")
    ada.document("init", "--move")
    git(path_remote.bare, "update-ref", "refs/heads/main", before)
    error = bob.document("claim", "build", expect=7)["error"]
    assert "does not name" in error["message"]


def test_server_hook_admits_a_move_and_nothing_else(tmp_path: Path, servers: Servers) -> None:
    with serve("path", tmp_path / "served", servers) as host:
        clones = {name: host.person(name).root for name in ("jo", "kim")}
        jo, kim = (Desk(root, host.env(name)) for name, root in clones.items())
        commit_file(jo.clone, "README", "x")
        git(jo.clone, "push", "-q", "origin", "HEAD:main", env=host.env("jo"))
        git(kim.clone, "fetch", "-q")
        host.install()
        jo.document("claim", "deploy", "--ttl", "1h")
        kim.document("list")
        jo.document("config", "--ledger", "admins", "jo@example.com")
        commit_file(jo.clone, FILE, MOVED)
        git(jo.clone, "push", "-q", "origin", "HEAD:main", env=host.env("jo"))
        git(kim.clone, "fetch", "-q")
        kim.document("init", "--move", expect=6)
        last = host.tip(OLD)
        jo.document("init", "--move")
        assert host.tip(OLD) != last
        assert kim.document("claim", "deploy", expect=1)["error"]["code"] == "held"
        assert kim.document("claim", "build")["status"] == "claimed"
        assert jo.document("renew", "deploy")["lease"]["renewals"] == 1
        # The state that goes on may go nowhere else, and not on at its former place.
        opened = git(host.bare, "rev-list", "--max-count=1", "--grep=OpenMoved", NEW)
        for ref in (OLD, "refs/heads/gitlease/other"):
            pushed = run_git(
                host.bare, "push", "-q", str(host.bare), f"{opened}:{ref}", env=host.env("jo")
            )
            assert "(moved)" in pushed.stderr
        assert host.tip(OLD) == git(host.bare, "rev-parse", f"{opened}^")
