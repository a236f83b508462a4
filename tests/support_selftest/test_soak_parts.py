"""The parts of the soak do what they say: its faults hit."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support import kill_nth
from support.availability import missing
from support.fences import clean_env
from support.soak import disk as disks
from support.soak.disk import Disk
from support.soak.gateway import Recorder


@pytest.mark.parametrize("mounting", [True, False])
def test_a_full_disk_takes_nothing_until_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounting: bool
) -> None:
    if not mounting:
        monkeypatch.setattr(disks, "_mounted", lambda *_: False)
    with Disk(tmp_path / "disk") as disk:
        if disk.how != ("tmpfs" if mounting else "shim"):
            pytest.skip(f"this machine makes disks full by {disk.how}")

        def write() -> str:
            code = f"open({str(disk.folder / 'file')!r}, 'ab').write(b'x' * 100_000)"
            done = subprocess.run(
                [sys.executable, "-c", code],
                env=clean_env(disk.env()),
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


def test_a_recorder_sends_what_was_sent_again(tmp_path: Path) -> None:
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(3):
                connection, _ = server.accept()
                with connection, connection.makefile("rb") as sent:
                    received.append(sent.read())

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        recorder = Recorder(server.getsockname()[1])
        assert not recorder.replay(0, 1.0)
        with socket.create_connection(("127.0.0.1", recorder.port)) as client:
            client.sendall(b"git-receive-pack data")
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
        while not recorder.replay(0, 1.0):
            pass
        assert recorder.replay(5, 0.5)
        serving.join(30)
        recorder.close()
    assert received == [b"git-receive-pack data", b"git-receive-pack data", b"git-receive"[:10]]


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
