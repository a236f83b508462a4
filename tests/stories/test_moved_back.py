"""A ledger that moves back to where it was, and moves that an old copy of main would ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.remotes import Remote
from support.repos import commit_file, git, real_clone
from support.running import Desk, desks_in

pytestmark = pytest.mark.default

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
