"""Answers about a lease whose process has ended do not say that its work has."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import pytest
from support.running import LONG, Desk, lives, number_in, sleeper, until

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="orphans are adopted on Linux"),
    pytest.mark.slow,
]


def test_what_a_killed_run_started_may_still_run(jo: Desk, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    work = f"setsid {shlex.join(sleeper(file))} & wait"
    run = jo.start("run", "F001", "--", "sh", "-c", work)
    child, guardian = number_in(file), jo.guardian()
    os.kill(run.pid, signal.SIGSTOP)  # so that it does not hear of its guardian's end
    os.kill(guardian, signal.SIGKILL)
    run.kill()
    run.wait(LONG)
    until(lambda: not lives(guardian), "its end")
    assert lives(child)
    for words in (["list"], ["status"]):
        shown = jo.ask(*words).stdout
        assert "process ended (what it started may still run)" in shown, shown
    shown = jo.ask("show", "F001").stdout
    assert "may still run" in shown, shown
    refused = jo.ask("claim", "F001")
    assert (refused.returncode, "may still run" in refused.stderr) == (1, True), refused
    assert lives(child)
    os.kill(child, signal.SIGKILL)  # which nothing else will end
