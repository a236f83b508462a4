"""The parts of the soak do what they say: its faults hit."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import kill_nth
from support.availability import missing
from support.fences import clean_env
from support.soak.disk import Disk


def test_a_full_disk_takes_nothing_until_there_is_room_again(tmp_path: Path) -> None:
    with Disk(tmp_path / "disk") as disk:
        if disk.how == "nothing":
            pytest.skip("no disks may be mounted on this machine")

        def write() -> str:
            code = f"open({str(disk.folder / 'file')!r}, 'ab').write(b'x' * 100_000)"
            done = subprocess.run(
                [sys.executable, "-c", code],
                env=clean_env(),
                capture_output=True,
                text=True,
                check=False,
            )
            return done.stderr

        assert write() == ""
        disk.fill()
        assert os.strerror(errno.ENOSPC) in write()
        disk.free()
        assert write() == ""


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["caller", "all"])
def test_a_command_is_killed_at_each_of_its_calls(tmp_path: Path, whom: str) -> None:
    if not kill_nth.calls():
        missing("system calls are traced on Linux on x86_64 and aarch64 only")
    mkdir = shutil.which("mkdir")  # named in full: the shell tries no other folder
    script = f"{mkdir} a; ({mkdir} b); {mkdir} c; true"
    left = []
    for number in range(7):
        folder = tmp_path / str(number)
        folder.mkdir()
        words = [sys.executable, kill_nth.__file__, str(number), whom, "--", "sh", "-c", script]
        done = subprocess.run(
            words, cwd=folder, env=clean_env(), capture_output=True, text=True, check=False
        )
        found = json.loads(done.stderr.splitlines()[-1])
        assert bool(found["killed"]) == (number > 0)
        left.append("".join(sorted(x.name for x in folder.iterdir())))
    everything = ["abc", "", "", "a", "a", "ab", "ab"]
    others = ["abc", "bc", "bc", "ac", "ac", "ab", "ab"]
    assert left == (others if whom == "caller" else everything)
