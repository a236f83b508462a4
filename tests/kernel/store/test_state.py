"""What one clone knows of one ledger, where several of its processes write it down."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from gitlease.kernel.ledger.ports import Pending
from gitlease.kernel.rules.instant import Instant
from gitlease.kernel.rules.lease import Sighting
from gitlease.kernel.store.state import Known, StateFolder

HEAD = "a" * 40


def at(seconds: int) -> Instant:
    return Instant(
        wall_ms=1_800_000_000_000 + seconds * 1_000, boot_ms=seconds * 1_000, boot_id="b"
    )


def known(**sighted: int) -> Known:
    seen = {file: Sighting(at=at(seconds), changed=True) for file, seconds in sighted.items()}
    return Known("ledger-1", HEAD, 7, at(100), at(0), sighted=seen)


def test_of_two_processes_that_saw_the_same_head_the_earlier_one_counts(tmp_path: Path) -> None:
    folder = StateFolder(str(tmp_path / "state"))
    folder.save(known(mine=10, theirs=30, early=5))
    folder.save(known(mine=60, theirs=20))
    loaded = folder.load()
    assert loaded is not None
    assert {file: s.at for file, s in loaded.sighted.items()} == {"mine": at(10), "theirs": at(20)}


def test_of_another_head_only_the_later_word_counts(tmp_path: Path) -> None:
    folder = StateFolder(str(tmp_path / "state"))
    folder.save(known(mine=10))
    folder.save(replace(known(mine=60), version="b" * 40, revision=8))
    loaded = folder.load()
    assert loaded is not None
    assert loaded.sighted["mine"].at == at(60)


def test_since_when_a_holder_counts_is_kept_where_the_clock_was_set_back(tmp_path: Path) -> None:
    folder = StateFolder(str(tmp_path / "state"))
    own = Sighting(at=at(60), changed=True, since=at(10))
    folder.save(replace(known(theirs=20), sighted={"mine": own}))
    loaded = StateFolder(folder.path).load()
    assert loaded is not None
    assert loaded.sighted == {"mine": own}
    set_back = replace(at(70), wall_ms=at(0).wall_ms)
    assert loaded.at(set_back).sighting("mine").since == at(10)


# What the version before this one wrote, and an older gitlease beside this one in a clone reads.
BEFORE: dict[str, object] = {
    "ledger_id": "ledger-1",
    "version": HEAD,
    "revision": 7,
    "boot_id": "b",
    "received": [1_800_000_100_000, 100_000],
    "base": [1_800_000_000_000, 0],
    "append_only": True,
    "digest": "d" * 64,
    "decision": "c" * 40,
    "renewed": {"nonce-1": ["F001", 3]},
    "restarted": None,
    "sighted": {"mine": [1_800_000_010_000, 10_000, True]},
}


@pytest.mark.parametrize("restarted", [None, [1_800_000_050_000, 50_000]], ids=["", "restarted"])
def test_what_an_older_version_knew_is_read_and_written_as_it_was(
    tmp_path: Path, restarted: list[int] | None
) -> None:
    before = {**BEFORE, "restarted": restarted}
    file = tmp_path / "known.json"
    file.write_text(json.dumps(before))
    loaded = StateFolder(str(tmp_path)).load()
    assert loaded == replace(
        known(mine=10),
        append_only=True,
        digest="d" * 64,
        decision="c" * 40,
        renewed={"nonce-1": ("F001", 3)},
        restarted=at(50) if restarted else None,
    )
    file.unlink()
    StateFolder(str(tmp_path)).save(loaded)
    assert json.loads(file.read_text()) == before


def test_a_pending_change_remembers_when_it_was_decided(tmp_path: Path) -> None:
    folder = StateFolder(str(tmp_path / "state"))
    pending = Pending(("op-1",), "global", HEAD, 7, "c" * 40, "claim of F001", at(3), ("F001",))
    folder.add_pending(pending)
    assert folder.pending(living=True) == [pending]
    assert folder.pending() == [pending]  # it is this process's own
    folder.remove_pending(pending)
    assert folder.pending(living=True) == []


def test_what_another_thread_is_busy_with_is_its_own(tmp_path: Path) -> None:
    folder = StateFolder(str(tmp_path / "state"))
    pending = Pending(("op-2",), "global", HEAD, 7, "c" * 40, "claim of F001", at(3), ("F001",))
    sent, looked = threading.Event(), threading.Event()

    def change() -> None:
        folder.add_pending(pending)
        sent.set()
        looked.wait(60)

    thread = threading.Thread(target=change)
    thread.start()
    assert sent.wait(60)
    assert (folder.pending(), folder.pending(living=True)) == ([], [pending])
    looked.set()
    thread.join(60)
    assert folder.pending() == [pending], "it ended, and left that undecided"


def test_what_a_dead_process_left_is_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = StateFolder(str(tmp_path / "state"))
    pending = Pending(("op-3",), "global", HEAD, 7, "c" * 40, "claim of F001", at(3), ("F001",))
    alive = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    with monkeypatch.context() as other, alive:
        other.setattr(os, "getpid", lambda: alive.pid)
        folder.add_pending(pending)
        other.undo()
        assert folder.pending() == []
    assert folder.pending() == [pending], "it ended, and left that undecided"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"ledger_id": "x", "version": "',
        b"7",
        b"{}",
        b"[" * 100_000,
        *(
            json.dumps({**BEFORE, **change}).encode()
            for change in (
                {"ledger_id": 1, "version": 2, "revision": "x"},
                {"version": "zz"},
                {"sighted": {"x": "y"}},
                {"received": [1e999, 1e999]},
                {"received": None},
            )
        ),
    ],
    ids=lambda data: data.decode()[:20],
)
def test_what_is_damaged_is_not_known(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "known.json").write_bytes(data)
    folder = StateFolder(str(tmp_path))
    assert folder.load() is None
    folder.save(known(mine=10))
    assert folder.load() == known(mine=10)


@pytest.mark.parametrize(
    "change",
    [
        {"process": 10**30},
        {"process": -5},
        {"process": "me"},
        {"operations": "abc"},
        {"operations": []},
        {"operations": ["../../known"], "version": "zz"},
        {"base_revision": 10**30},
    ],
)
def test_an_odd_pending_file_hinders_nothing(tmp_path: Path, change: dict[str, object]) -> None:
    folder = StateFolder(str(tmp_path / "state"))
    pending = Pending(("op-1",), "global", HEAD, 7, "c" * 40, "claim of F001", at(3), ("F001",))
    folder.add_pending(pending)
    (file,) = (tmp_path / "state" / "pending").iterdir()
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    other = replace(pending, operations=("op-2",))
    folder.add_pending(other)
    assert other in folder.pending(living=True)
    assert file.exists()
