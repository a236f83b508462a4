"""Clones of one user on one machine tell each other that a lease has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.ledgers import door, workspace
from support.remotes import Remote

from gitlease.kernel.ledger.heads import HeadWatcher

Clones = Callable[..., list[Path]]


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path_remote: Remote) -> Iterator[Path]:
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    for name, value in {"XDG_RUNTIME_DIR": str(folder), **path_remote.env}.items():
        monkeypatch.setenv(name, value)  # the remote counts by its variables
    yield folder
    for found in folder.rglob("*"):
        assert found.is_dir() or found.stat().st_size == 0  # it carries no data


class Waiting:
    """Somebody in a clone who sleeps, and is told or not."""

    def __init__(self, clone: Path, remote: Remote) -> None:
        self.clock, self._remote = ManualClock(), remote
        self._watcher = HeadWatcher(workspace(clone, clock=self.clock).ledger)
        self._watcher.fetch()

    def sleeps(self, seconds: float = 0.25) -> tuple[bool, int]:
        """Whether they are woken within that time, and how often the remote is asked."""
        before = self._remote.connections()
        woken = self._watcher.nap(seconds)
        return woken, self._remote.connections() - before


@pytest.mark.slow
def test_an_end_wakes_at_once_and_nothing_else_does(path_remote: Remote, clones: Clones) -> None:
    one, two = clones(2)
    waiting = Waiting(two, path_remote)
    door(one).claim("F001")
    assert waiting.sleeps() == (False, 0)
    door(one).renew("F001")
    assert waiting.sleeps() == (False, 0)
    door(one).release("F001")
    assert waiting.sleeps(60) == (True, 2)  # whether it has moved, and where to
    assert waiting.sleeps() == (False, 0)


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["open to others", "a link", "relative"])
def test_a_folder_that_others_might_reach_is_not_used(
    path_remote: Remote, clones: Clones, runtime: Path, monkeypatch: pytest.MonkeyPatch, odd: str
) -> None:
    own = runtime / "gitlease"
    if odd == "open to others":
        own.mkdir()
        own.chmod(0o770)
    elif odd == "a link":
        (runtime.parent / "elsewhere").mkdir(mode=0o700)
        own.symlink_to(runtime.parent / "elsewhere")
    else:
        monkeypatch.setenv("XDG_RUNTIME_DIR", "runtime")
    one, two = clones(2)
    door(one).claim("F001")
    waiting = Waiting(two, path_remote)
    door(one).release("F001")
    assert waiting.sleeps() == (False, 0)
    assert not list((runtime.parent / "elsewhere").glob("*"))
