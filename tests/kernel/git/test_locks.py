"""Locks between the processes of a clone: one holder, and a killed one locks nobody out."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.fences import clean_env
from support.running import LONG

from gitlease.kernel.git.files import MARKER, MARKER_LIFETIME, NO_LOCKS, exclusive, share_clone

pytestmark = pytest.mark.default

ROOT = Path(__file__).parents[2]
HOLDER = """\
import sys, time
if sys.argv[2]:
    import fcntl
    def flock(descriptor, operation):
        raise OSError(int(sys.argv[2]), "no locks here")
    fcntl.flock = flock
from gitlease.kernel.git.files import exclusive
with exclusive(sys.argv[1], timeout=0) as held:
    print(held, flush=True)
    time.sleep(3600)
"""
KINDS = pytest.mark.parametrize("soft", [False, True], ids=["locks", "no locks"])


@pytest.fixture
def lock(tmp_path: Path) -> str:
    return str(tmp_path / "lock")


@contextmanager
def held_elsewhere(lock: str, *, soft: bool) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a lock until it is killed."""
    words = [sys.executable, "-c", HOLDER, lock, str(errno.ENOLCK) if soft else ""]
    env = clean_env({"PYTHONPATH": str(ROOT)})
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "True\n"
            yield process
        finally:
            process.kill()


def without_locks(monkeypatch: pytest.MonkeyPatch, error: int = errno.ENOLCK) -> None:
    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", flock)


@KINDS
def test_killed_holder_locks_nobody_out(
    lock: str, soft: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if soft:
        without_locks(monkeypatch)
    with held_elsewhere(lock, soft=soft) as process:
        with exclusive(lock, timeout=0.05) as held:
            assert not held
        process.send_signal(signal.SIGKILL)
        process.wait(LONG)
        began = time.monotonic()
        with exclusive(lock, timeout=LONG) as held:
            assert held
        assert time.monotonic() - began < MARKER_LIFETIME / 2, "it waited for the lifetime"


@KINDS
def test_threads_of_one_process_exclude_each_other(
    lock: str, soft: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if soft:
        without_locks(monkeypatch)
    inside, most, turns = [0], [0], list[bool]()

    def work() -> None:
        for _ in range(5):
            with exclusive(lock, timeout=LONG) as held:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1
                turns.append(held)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, turns) == ([1], [True] * 20)


def test_every_try_after_the_first_is_announced(lock: str) -> None:
    waits = list[int]()
    with exclusive(lock, timeout=0) as outer:
        assert outer
        with exclusive(lock, timeout=0.05, on_wait=lambda: waits.append(1)) as held:
            assert not held
    assert waits
    before = len(waits)
    with exclusive(lock, timeout=0, on_wait=lambda: waits.append(1)) as held:
        assert held
    assert len(waits) == before


@pytest.mark.parametrize("error", NO_LOCKS, ids=errno.errorcode.get)
def test_file_stands_for_the_lock_if_there_are_none(
    lock: str, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_locks(monkeypatch, error)
    with exclusive(lock, timeout=0) as held:
        assert held
        assert os.path.exists(lock + MARKER)
        with exclusive(lock, timeout=0) as other:
            assert not other
        with exclusive(lock, timeout=0, soft=False) as other:
            assert not other
    assert not os.path.exists(lock + MARKER)


@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE], ids=errno.errorcode.get)
def test_failing_disk_is_not_taken_for_one_without_locks(
    lock: str, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_locks(monkeypatch, error)
    with exclusive(lock, timeout=0) as held:
        assert not held
    assert not os.path.exists(lock + MARKER)


@pytest.mark.parametrize("age", [0.0, 2 * MARKER_LIFETIME], ids=["young", "old"])
@pytest.mark.parametrize("text", ["", "1\nanother-host\n", "1\nanother-host\n17\n"])
def test_marker_whose_owner_cannot_be_checked_expires(
    lock: str, age: float, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner was on another host, or is an older gitlease, which wrote nothing into it."""
    without_locks(monkeypatch)
    marker, then = Path(lock + MARKER), time.time() - age
    marker.write_text(text)
    os.utime(marker, (then, then))
    with exclusive(lock, timeout=0.05) as held:
        assert held == bool(age)
    assert marker.exists() == (not age)


def test_nothing_is_made_where_there_is_no_folder(tmp_path: Path) -> None:
    with exclusive(str(tmp_path / "none/lock"), timeout=0) as held:
        assert not held
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_whatever_is_in_the_way_stops_nobody(lock: str, kind: str) -> None:
    target = Path(f"{lock}.target")
    {"folder": os.mkdir, "pipe": os.mkfifo, "link": lambda x: os.symlink(target, x)}[kind](lock)
    with exclusive(lock, timeout=0.05) as held:
        assert held == (kind == "pipe")
    assert not target.exists()


def test_lock_of_a_shared_clone_opens_for_its_group(tmp_path: Path) -> None:
    folder = tmp_path / "gitlease"
    folder.mkdir()
    try:
        for setting, mode in (("group", 0o660), ("", 0o600)):
            share_clone(str(tmp_path), setting)
            lock = folder / f"lock{setting}"
            with exclusive(str(lock), timeout=0) as held:
                assert held
            assert stat.S_IMODE(lock.stat().st_mode) == mode
    finally:
        share_clone(str(tmp_path), None)
