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

from gitlease.kernel.store import private_store
from gitlease.kernel.store.private_store import TIDY_AFTER, TIDY_AGAIN

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
    ("age", "many", "packs", "joined", "begins"),
    [
        (TIDY_AFTER + 60, 10**9, 10**9, 10**9, ["gc"]),
        (TIDY_AFTER - 60, 10**9, 10**9, 10**9, []),
        (60, 0, 10**9, TIDY_AGAIN + 60, ["repack"]),
        (60, 0, 10**9, TIDY_AGAIN - 60, []),
        (60, 10**9, 0, private_store.JOIN_AGAIN + 5, ["repack"]),
        (60, 10**9, 0, 1, []),
    ],
)
def test_it_begins_once_a_day_or_earlier_where_there_are_many(
    age: float,
    many: int,
    packs: int,
    joined: float,
    begins: list[str],
    path_remote: Remote,
    clones: Clones,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (clone,) = clones(1)
    store = made_long_ago(clone, age)
    (store / "objects/17").mkdir(exist_ok=True)
    (store / "objects/17" / ("0" * 38)).touch()
    for ending in ("pack", "idx"):
        (store / f"objects/pack/pack-x.{ending}").touch()
    (store / "joined").touch()
    os.utime(store / "joined", (time.time() - joined,) * 2)
    begun: list[list[str]] = []
    monkeypatch.setattr(private_store, "MANY", many)
    monkeypatch.setattr(private_store, "PACKS", packs)
    monkeypatch.setattr(private_store, "detach", lambda words, **_: begun.append(words))
    private_store.PrivateStore(str(store)).tidy()
    private_store.PrivateStore(str(store)).tidy()
    ran = [x for words in begun for x in ("gc", "repack") if x in words]
    assert ran == begins, "and not twice"


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
