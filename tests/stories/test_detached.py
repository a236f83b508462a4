"""What a command starts in sessions of its own ends with its lease, and only nested runs stay."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.running import LONG, Desk, lives, number_in, sleeper, until

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="orphans are adopted on Linux"),
    pytest.mark.slow,
]


def detached(file: Path, *, deaf: bool = False) -> str:
    """A line of a shell that starts a process which leaves its session and loses its parent."""
    return f"(setsid {shlex.join(sleeper(file, deaf=deaf))} </dev/null >/dev/null 2>&1 &)"


@contextlib.contextmanager
def killed_at_last(*pids: int) -> Iterator[None]:
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_while_something_of_a_killed_run_lives_its_lease_stays(jo: Desk, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    own = shlex.join(sleeper(tmp_path / "own"))
    script = f"{detached(one)}; {detached(other, deaf=True)}; exec {own}"
    run = jo.start("run", "F001", "--grace", "60s", "--", "sh", "-c", script)
    *asked, deaf = map(number_in, (one, tmp_path / "own", other))
    guardian = jo.guardian()
    run.kill()
    run.wait(LONG)
    until(lambda: not any(map(lives, asked)), "the end of what heeds TERM")
    refused = jo.ask("claim", "F001")
    assert (refused.returncode, "no longer holds" in refused.stderr) == (1, False)
    assert lives(deaf)
    os.kill(deaf, signal.SIGKILL)
    until(lambda: not lives(guardian), "the end of all")
    claimed = jo.ask("claim", "F001")
    assert (claimed.returncode, "no longer holds it" in claimed.stderr) == (0, True)


def test_a_loss_ends_all_but_nested_runs(jo: Desk, tmp_path: Path) -> None:
    gone, own, nested, dispatched = (tmp_path / x for x in ("gone", "own", "nested", "dispatched"))
    inner = shlex.join(jo.words("run", "F002", "--session", "two", "--", *sleeper(nested)))
    words = ("dispatch", "F003", "--session", "three", "--", *sleeper(dispatched))
    script = f"{detached(gone, deaf=True)}; {shlex.join(jo.words(*words))}; {inner} & exec "
    script += shlex.join(sleeper(own, deaf=True))
    run = jo.start("run", "F001", "--grace", "1s", "--", "sh", "-c", script)
    ended = [number_in(gone), number_in(own)]
    stay = [number_in(nested), number_in(dispatched)]
    assert jo.ask("release", "F001", "--no-session").returncode == 0
    assert run.wait(LONG) == 125
    assert not any(map(lives, ended))
    assert all(map(lives, stay))
    assert sorted(jo.live()) == ["F002", "F003"]
    for pid in stay:
        os.kill(pid, signal.SIGTERM)
    until(lambda: not jo.live(), "the releases of the nested runs")


def test_a_nested_run_that_is_the_command_itself_goes_on(jo: Desk, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    inner = jo.words("run", "F002", "--session", "two", "--", *sleeper(file))
    run = jo.start("run", "F001", "--grace", "1s", "--", *inner)
    child = number_in(file)
    assert jo.ask("release", "F001", "--no-session").returncode == 0
    assert run.wait(LONG) == 125
    assert lives(child)
    assert jo.live() == ["F002"]
    os.kill(child, signal.SIGTERM)
    until(lambda: not jo.live(), "the release of the nested run")


def test_a_dead_guardian_leaves_the_lease_to_lapse(jo: Desk, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    script = f"{detached(file)}; exec {shlex.join(sleeper(tmp_path / 'own'))}"
    run = jo.start("run", "F001", "--", "sh", "-c", script)
    left, command, guardian = number_in(file), number_in(tmp_path / "own"), jo.guardian()
    with killed_at_last(left):
        run.send_signal(signal.SIGSTOP)  # else it would see that its guardian is dead
        os.kill(guardian, signal.SIGKILL)
        run.kill()
        run.wait(LONG)
        until(lambda: not lives(command), "the end of the command")
        assert lives(left)
        for words in (
            ["claim", "F001"],
            ["claim", "F002"],
            ["release", "F002"],
            ["session", "end"],
        ):
            assert "no longer holds" not in jo.ask(*words).stderr
        assert jo.live() == ["F001"]
        found = jo.ask("doctor").stdout
        assert "its lease is left to lapse" in found
    assert jo.ask("release", "F001", "--no-session").returncode == 0
    assert jo.ask("claim", "F002").returncode == 0
    assert not os.listdir(jo.clone / ".git" / "gitlease" / "alive"), "nobody needs its record"


def test_what_a_command_leaves_behind_is_named_and_left_alone(jo: Desk, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    script = f"{detached(file)}; while [ ! -s '{file}' ]; do :; done; exit 3"
    done = jo.ask("run", "F001", "--", "sh", "-c", script)
    pid = number_in(file)
    with killed_at_last(pid):
        assert done.returncode == 3
        lines = [x for x in done.stderr.splitlines() if "still running without a lease" in x]
        assert lines == [f"warning: still running without a lease: sh ({pid})"]
        assert lives(pid)
        assert jo.live() == []
