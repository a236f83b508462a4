"""A ledger that moved and is not at its new place: who finishes the move, and what it grants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.ledgers import door, workspace
from support.remotes import Remote
from support.repos import commit_file, git

from gitlease.kernel.rules.errors import PolicyRefused, Unavailable
from gitlease.kernel.store.git_ledger import LATE
from gitlease.wiring.moving import move_ledger

pytestmark = pytest.mark.slow

MOVED = "refs/other/global"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def moved(clones: Callable[..., list[Path]], clock: ManualClock) -> list[Path]:
    """Three clones with a ledger that the first has moved, which only the second has seen there."""
    ada, bob, cy = clones(3)
    for clone in (bob, cy):
        door(clone, clock=clock).claim(f"of-{clone.name}", ttl="8h")
    door(ada, clock=clock).list()
    commit_file(ada, ".gitlease.yaml", "lease: {ref_prefix: refs/other}\n")
    git(ada, "push", "-q", "origin", "HEAD:main")
    move_ledger(workspace(ada, clock=clock))
    return [ada, bob, cy]


def test_nobody_goes_on_from_the_move_where_the_ledger_was_deleted_since(
    moved: list[Path], clock: ManualClock, path_remote: Remote
) -> None:
    """S2: a lease that was granted at the new place is not known at the former one."""
    _, bob, cy = moved
    door(bob, clock=clock).claim("deploy", ttl="8h")
    clock.advance(LATE / 1_000 + 1)
    git(path_remote.bare, "update-ref", "-d", MOVED)
    for _ in range(3):
        with pytest.raises(Unavailable, match="is not there"):
            door(cy, clock=clock).claim("deploy")
    assert not git(path_remote.bare, "for-each-ref", MOVED)
    # It is put there on purpose, and waits; whoever holds a lease goes on.
    git(cy, "fetch", "-q")
    move_ledger(workspace(cy, clock=clock))
    with pytest.raises(PolicyRefused, match="nothing new is granted"):
        door(cy, clock=clock).claim("deploy")
    assert door(bob, clock=clock).renew("deploy").mine
    assert door(cy, clock=clock).renew(f"of-{cy.name}").mine


def test_move_that_was_interrupted_just_now_is_finished_by_anyone(
    moved: list[Path], clock: ManualClock, path_remote: Remote
) -> None:
    cy = moved[2]
    git(path_remote.bare, "update-ref", "-d", MOVED)  # as if it had never got there
    clock.advance(LATE / 1_000 - 60)
    assert door(cy, clock=clock).claim("build").mine
