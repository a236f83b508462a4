"""A command that is killed when the process dies that started it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.fences import clean_env
from support.running import ROOT, lives, until

from gitlease.landing.tether import start_tethered

pytestmark = pytest.mark.default

STARTER = """\
import sys, time
from gitlease.landing.tether import start_tethered
start_tethered(["sh", "-c", 'echo $$ >"$0"; exec sleep 600', sys.argv[1]], process_group=0)
time.sleep(600)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux: processes that die along")
def test_it_dies_with_a_process_that_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    env = clean_env({"PYTHONPATH": ROOT})
    with subprocess.Popen([sys.executable, "-c", STARTER, str(file)], env=env) as starter:
        pid = int(until(lambda: file.exists() and file.read_text().strip(), "the command runs"))
        assert os.getpgid(pid) == pid
        starter.send_signal(signal.SIGKILL)
    until(lambda: not lives(pid), "the command ends")


def test_its_status_streams_and_signals_are_those_of_any_command(tmp_path: Path) -> None:
    script = 'echo "$1"; pwd; kill -PIPE $$; exit 3'
    words = ["sh", "-c", script, "sh", "größe \udcff"]
    with start_tethered(words, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
    assert lines == [os.fsencode("größe \udcff"), os.fsencode(tmp_path.resolve())]
    assert process.returncode == -signal.SIGPIPE, "it was ignored"


@pytest.mark.parametrize(("mode", "error"), [(None, errno.ENOENT), (0o600, errno.EACCES)])
def test_what_cannot_be_executed_is_an_error(tmp_path: Path, mode: int | None, error: int) -> None:
    file = tmp_path / "command"
    if mode is not None:
        file.touch(mode)
    with pytest.raises(OSError, match="command") as refused:
        start_tethered([str(file)])
    assert refused.value.errno == error
