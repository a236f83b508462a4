"""The process that starts a command and ends it: real processes, without a lease."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.running import lives, number_in, until

from gitlease.runs import supervisor
from gitlease.runs.guardian import BOOT, CommandOrder, Guardian
from gitlease.runs.supervisor import SupervisedProcess

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="orphans are adopted on Linux"),
    pytest.mark.default,
]


def now() -> int:
    return time.clock_gettime_ns(BOOT) // 1_000_000


@pytest.fixture
def guardian() -> Iterator[Guardian]:
    made = Guardian(1_000)
    made.start()
    yield made
    made.close(goodbye=False)


def order(folder: Path, *words: str, seconds: float = 300.0) -> CommandOrder:
    return CommandOrder(
        words=words,
        env=dict(os.environ),
        cwd=str(folder),
        group=0,
        until_ms=now() + round(seconds * 1_000),
        mark=str(folder / "over"),
    )


SLEEPS = "echo $$ >$0.new; mv $0.new $0; exec sleep 300"


def test_at_its_time_it_ends_what_left_its_session_and_leaves_a_mark(
    guardian: Guardian, tmp_path: Path
) -> None:
    away, own = tmp_path / "away", tmp_path / "own"
    script = f'(setsid sh -c "$1" "{away}" &) ; sh -c "$1" "{own}"'
    pid = guardian.begin(order(tmp_path, "sh", "-c", script, "sh", SLEEPS), lambda _pid: None)
    pids = [number_in(away), number_in(own), pid]
    assert all(map(lives, pids))
    guardian.watch(now() - 1)
    until(lambda: guardian.is_gone(), "the end of the guardian")
    assert not any(map(lives, pids))
    assert (guardian.status, (tmp_path / "over").exists()) == (-9, True)


def test_a_command_begins_only_once_it_is_recorded(guardian: Guardian, tmp_path: Path) -> None:
    def record(pid: int) -> None:
        assert lives(pid)
        assert not (tmp_path / "began").exists()

    guardian.begin(order(tmp_path, "touch", "began"), record)
    until(lambda: guardian.is_gone() or guardian.status is not None, "its end")
    assert (guardian.status, (tmp_path / "began").exists()) == (0, True)


def test_what_is_late_never_begins(guardian: Guardian, tmp_path: Path) -> None:
    guardian.begin(order(tmp_path, "touch", "began", seconds=-1), lambda _pid: None)
    until(lambda: guardian.is_gone() or guardian.status is not None, "its end")
    assert not (tmp_path / "began").exists()


def test_a_command_that_cannot_be_executed_is_an_error(guardian: Guardian, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        guardian.begin(order(tmp_path, str(tmp_path / "nothing")), lambda _pid: None)


def test_a_goodbye_leaves_what_the_command_left(guardian: Guardian, tmp_path: Path) -> None:
    away = tmp_path / "away"
    script = f'(setsid sh -c "$1" "{away}" >/dev/null &)'
    guardian.begin(order(tmp_path, "sh", "-c", script, "sh", SLEEPS), lambda _pid: None)
    pid = number_in(away)
    guardian.close()
    assert lives(pid)
    assert not (tmp_path / "over").exists()
    os.kill(pid, 9)


def test_a_command_that_ended_before_its_start_was_heard_of_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guardian, waits = Guardian(1_000), list[float]()
    guardian._line, theirs = socket.socketpair()
    theirs.sendall(b"started\nended 3\n")
    assert guardian._hear("it is silent") == (b"started", b"")
    guardian._line.setblocking(False)

    def wait_readable(_: object, seconds: float) -> set[int]:
        waits.append(seconds)
        return set()

    monkeypatch.setattr(supervisor, "wait_readable", wait_readable)
    with SupervisedProcess(grace=1_000) as command:
        command._guardian = guardian
        assert command.wait(60.0) == 3
        assert command.wait(60.0) == 3
    assert waits == [0.0, 60.0]
    theirs.close()
