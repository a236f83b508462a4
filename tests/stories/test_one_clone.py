"""Many processes of one clone, in its work trees as well: they take turns, and lose nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.remotes import Remote
from support.repos import git
from support.running import Desk

from gitlease.store import StateFolder

CLAIMS, PROCESSES = 24, 6

pytestmark = [pytest.mark.sampled(2)]


@pytest.fixture
def places(path_remote: Remote, clones: Callable[..., list[Path]]) -> list[Desk]:
    """A clone and a linked work tree of it, which know the ledger."""
    (clone,) = clones(1)
    git(clone, "worktree", "add", "-q", "-b", "side", str(clone.parent / "side"))
    made = [Desk(place, env=path_remote.env) for place in (clone, clone.parent / "side")]
    made[0].document("claim", "first")
    return made


def claimed(places: list[Desk], *options: str) -> list[str]:
    """So many names, claimed by so many processes at a time; what each came to."""

    def claim(number: int) -> str:
        done = places[number % len(places)].document("claim", f"n{number}", *options)
        return str(done["status"])

    with ThreadPoolExecutor(PROCESSES) as all_of_them:
        return list(all_of_them.map(claim, range(CLAIMS)))


def test_a_claim_of_one_clone_costs_one_connection(places: list[Desk], path_remote: Remote) -> None:
    before = path_remote.connections()
    assert claimed(places) == ["claimed"] * CLAIMS
    assert path_remote.connections() - before <= 1.2 * CLAIMS
    assert len(places[0].live()) == CLAIMS + 1


@pytest.mark.slow
def test_nobody_waits_long_for_a_turn_that_never_ends(places: list[Desk]) -> None:
    """Whoever is stopped in the middle of a step keeps others of the clone for five seconds."""
    state = next((places[0].clone / ".git" / "gitlease" / "state").glob("*/global"))
    with StateFolder(str(state)).turn(1.0):
        assert places[1].document("claim", "after-all")["status"] == "claimed"


@pytest.mark.slow
def test_without_turns_every_claim_is_made_all_the_same(
    places: list[Desk], path_remote: Remote
) -> None:
    state = next((places[0].clone / ".git" / "gitlease" / "state").glob("*/global"))
    with contextlib.ExitStack() as stack:
        stack.enter_context(no_turns(state))
        assert claimed(places) == ["claimed"] * CLAIMS
    assert len(places[0].live()) == CLAIMS + 1


@contextlib.contextmanager
def no_turns(state: Path) -> Iterator[None]:
    """Have something else in the place of the lock, which nobody can take then."""
    (state / "turn.lock").unlink()
    (state / "turn.lock").mkdir()
    yield
