"""The private store packs its objects now and then, and nobody notices."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.remotes import Remote
from support.repos import git
from support.running import Desk, until

from gitlease.store import TIDY_AFTER, TIDY_AGAIN, private_store

Clones = Callable[[int], list[Path]]


def made_long_ago(clone: Path, seconds: float) -> Path:
    """The private store of a clone that was tidied so long ago, and has a few claims."""
    store = clone / ".git/gitlease/store.git"
    Desk(clone).document("claim", "F0", "F1")
    then = time.time() - seconds
    os.utime(store / "tidied", (then, then))
    return store


@pytest.mark.slow
@pytest.mark.parametrize(
    ("age", "many", "begins"),
    [
        (TIDY_AFTER + 60, 10**9, True),
        (TIDY_AFTER - 60, 10**9, False),
        (TIDY_AGAIN + 60, 0, True),
        (TIDY_AGAIN - 60, 0, False),
    ],
)
def test_it_begins_once_a_day_or_once_an_hour_where_there_are_many(
    age: float,
    many: int,
    begins: bool,
    path_remote: Remote,
    clones: Clones,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (clone,) = clones(1)
    store = made_long_ago(clone, age)
    (store / "objects/17").mkdir(exist_ok=True)
    (store / "objects/17" / ("0" * 38)).touch()
    begun: list[list[str]] = []
    monkeypatch.setattr(private_store, "MANY", many)
    monkeypatch.setattr(private_store, "detach", lambda words, **_: begun.append(words))
    private_store.PrivateStore(str(store)).tidy()
    private_store.PrivateStore(str(store)).tidy()
    assert ["gc" in words for words in begun] == [True] * begins, "and not twice"


def test_all_is_there_afterwards(path_remote: Remote, clones: Clones) -> None:
    (clone,) = clones(1)
    store = made_long_ago(clone, TIDY_AFTER + 60)
    Desk(clone).document("renew", "F0")
    until(lambda: list(store.glob("objects/pack/*.pack")), "the objects are packed")
    until(lambda: not (store / "gc.pid").exists(), "its end")
    assert [path.name for path in (store / "refs/known").rglob("*") if path.is_file()]
    assert Desk(clone).document("renew", "F0")["leases"][0]["renewals"] == 2
    Desk(clone).document("claim", "F2")
    assert len(Desk(clone).document("list")["leases"]) == 3
    git(store, "fsck", "--strict", "--no-dangling")
