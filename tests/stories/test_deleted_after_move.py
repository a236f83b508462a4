"""A ledger that is deleted once it has moved, and moves that meet another one or each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.remotes import Remote
from support.repos import commit_file, git
from support.running import Desk, desks_in

from gitlease.kernel.ledger import acts, claim
from gitlease.kernel.rules.errors import PolicyRefused, Unavailable
from gitlease.kernel.rules.ledger import Header
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store import git_ledger
from gitlease.wiring.ledger import LedgerPlace
from gitlease.wiring.moving import move_ledger
from gitlease.wiring.workspace import Workspace, open_workspace

pytestmark = pytest.mark.slow

OLD, NEW = "refs/gitlease/global", "refs/other/global"
BUILD = parse_resource("build")


@pytest.fixture
def pair(clones: Callable[..., list[Path]], path_remote: Remote) -> Iterator[tuple[Desk, Desk]]:
    """Ada holds something, and main names another place since."""
    with desks_in(clones(2)) as (ada, bob):
        ada.document("claim", "deploy", "--ttl", "1h")
        bob.document("list")
        commit_file(ada.clone, ".gitlease.yaml", "lease: {ref_prefix: refs/other}\n")
        git(ada.clone, "push", "-q", "origin", "HEAD:main")
        yield ada, bob


def of(desk: Desk) -> Workspace:
    return open_workspace(str(desk.clone))


def delete_long_after(remote: Remote, patch: pytest.MonkeyPatch) -> None:
    """Delete the ledger at its new place, when the move was long ago."""
    git(remote.bare, "update-ref", "-d", NEW)
    patch.setattr(git_ledger, "LATE", -1)


@pytest.mark.default
def test_ledger_that_was_deleted_after_a_move_is_not_begun_again_from_the_move(
    pair: tuple[Desk, Desk], path_remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2 and S4: Bob missed the move, and knows nothing of what was granted since."""
    ada, bob = pair
    ada.document("init", "--move")
    ada.document("claim", "build", "--ttl", "1h")
    delete_long_after(path_remote, monkeypatch)
    with pytest.raises(Unavailable, match="is not there"):
        claim.claim(of(bob).ledger, [BUILD])
    ada.document("init", "--restore")
    assert bob.document("claim", "build", expect=1)["error"]["code"] == "held"
    assert ada.document("renew", "build")["status"] == "renewed"


def test_move_that_was_interrupted_long_ago_is_finished_with_a_wait(
    pair: tuple[Desk, Desk], path_remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can tell it from a ledger that was deleted there, so it is restored."""
    ada, bob = pair
    ada.document("init", "--move")
    delete_long_after(path_remote, monkeypatch)
    move_ledger(of(bob))
    with pytest.raises(PolicyRefused):
        claim.claim(of(bob).ledger, [BUILD])
    assert ada.document("renew", "deploy")["status"] == "renewed"


def test_no_new_ledger_takes_the_place_of_one_that_was_moved_and_deleted(
    pair: tuple[Desk, Desk], path_remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2: what was granted there since the move is in nobody's way in the new one."""
    ada, bob = pair
    ada.document("init", "--move")
    delete_long_after(path_remote, monkeypatch)
    for _ in range(3):
        with pytest.raises(Unavailable, match="is not there"):
            acts.confirm(of(bob).ledger, another=True)
    assert not git(path_remote.bare, "for-each-ref", NEW)


@pytest.mark.default
def test_two_who_move_it_at_once_lock_nobody_out(
    pair: tuple[Desk, Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one found it at the old place, and must not end it at the new one."""
    ada, bob = pair
    look, moved = LedgerPlace.header_at, list[Desk]()

    def and_bob_moves_it(*given: object, **named: object) -> Header | None:
        found = look(*given, **named)  # type: ignore[arg-type]
        if not moved:
            moved.append(bob)
            bob.document("init", "--move")
        return found

    monkeypatch.setattr(LedgerPlace, "header_at", and_bob_moves_it)
    move_ledger(of(ada))
    assert moved
    for desk in (ada, bob):
        assert {*desk.live()} == {"deploy"}
    assert ada.document("renew", "deploy")["status"] == "renewed"


def test_ledger_does_not_end_where_it_cannot_go_on(
    pair: tuple[Desk, Desk], path_remote: Remote
) -> None:
    """A copy of it is at the new place, which nobody could use."""
    ada, bob = pair
    git(path_remote.bare, "update-ref", NEW, OLD)
    refused = ada.document("init", "--move", expect=7)["error"]["message"]
    assert "a copy of this ledger is at that place already" in refused
    assert ada.document("renew", "deploy")["status"] == "renewed"
    git(path_remote.bare, "update-ref", "-d", NEW)
    ada.document("init", "--move")
    assert {*bob.live()} == {"deploy"}
