"""The parts of the soak do what they say: its judge can condemn, its faults hit."""

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
from typing import Any

import pytest
from support import kill_nth
from support.availability import missing
from support.fences import clean_env
from support.repos import git
from support.soak import disk as disks
from support.soak.disk import Disk
from support.soak.gateway import Recorder
from support.soak.judging import Grant, check_answers, check_history, grants_in

FILE = "leases/3f/f1.yaml"
RECORD = {
    "resource": "F1",
    "scope": "*",
    "holder": "jo@example.com",
    "session": "w0",
    "state": "active",
    "token": 1,
    "claimed_at": "2026-01-01T10:00:00.000Z",
    "expires_at": "2026-01-01T10:00:10.000Z",
    "lease_id": "a",
}
LATER = {**RECORD, "holder": "kim@example.com", "token": 2, "lease_id": "b"}
OTHER_SESSION = {"holder": "jo@example.com", "session": "w1"}
FREED = {**LATER, "claimed_at": "2026-01-01T10:01:00Z", "expires_at": "2026-01-01T10:02:00Z"}


def write(bare: Path, *steps: tuple[int, int, dict[str, Any]]) -> str:
    """A history of a revision, a last token and the records of each commit; its tip."""
    tip = ""
    for revision, sequence, records in steps:
        header = {"revision": revision, "epoch": 0, "sequence": sequence}
        lines = ""
        for name, content in {"ledger.yaml": header, **records}.items():
            blob = git(bare, "hash-object", "-w", "--stdin", input=json.dumps(content))
            lines += f"100644 {blob}\t{name}\n"
        git(bare, "read-tree", "--empty")
        git(bare, "update-index", "--add", "--index-info", input=lines)
        parent = ["-p", tip] if tip else []
        who = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
        tip = git(bare, *who, "commit-tree", *parent, "-m", "step", git(bare, "write-tree"))
    return tip


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    return tmp_path / "bare.git"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"session": "w0"}, {"holder": "jo@example.com"}),
        ({"session": "null", "parked": "true"}, {"holder": "jo@example.com", "session": "w1"}),
    ],
)
def test_what_is_ones_own_may_be_granted_anew(
    bare: Path, before: dict[str, str], after: dict[str, str]
) -> None:
    first, second = {**RECORD, **before}, {**LATER, **after}
    tip = write(bare, (1, 1, {FILE: first}), (2, 2, {FILE: second}))
    assert check_history(bare, tip) == []


def test_a_legal_history_is_accepted(bare: Path) -> None:
    tip = write(bare, (1, 1, {FILE: RECORD}), (2, 1, {}), (3, 2, {FILE: FREED}))
    assert check_history(bare, tip, [tip]) == []


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([(1, 1, {FILE: RECORD}), (2, 2, {FILE: LATER})], "while jo@example.com held it"),
        (
            [(1, 1, {FILE: RECORD}), (2, 2, {FILE: {**LATER, **OTHER_SESSION}})],
            "while jo@example.com held it",
        ),
        ([(1, 1, {FILE: RECORD}), (3, 1, {})], "revision 3 comes after 1"),
        ([(1, 1, {FILE: RECORD}), (2, 0, {})], "the last token 0 is less than 1"),
        ([(1, 1, {FILE: RECORD}), (2, 1, {FILE: {**FREED, "token": 1}})], "was given before"),
        ([(1, 2, {FILE: RECORD, "leases/4/x.yaml": LATER})], "f1 has two records"),
    ],
)
def test_an_illegal_history_is_not(
    bare: Path, steps: list[tuple[int, int, dict[str, Any]]], said: str
) -> None:
    (found,) = check_history(bare, write(bare, *steps))
    assert said in found


def test_a_tip_that_was_overwritten_is_found(bare: Path) -> None:
    one = write(bare, (1, 1, {FILE: RECORD}))
    other = write(bare, (1, 2, {FILE: LATER}))
    assert check_history(bare, one, [one, other]) == [f"{other} was the tip, and is not in history"]


def call(**more: Any) -> dict[str, Any]:
    lease = {**RECORD, "expires_at": "2026-01-01T10:00:10Z"}
    return {
        "client": "jo@example.com/w0",
        "holder": "jo@example.com",
        "session": "w0",
        "verb": "claim",
        "start": 1767261600.0,
        "end": 1767261601.0,
        "answer": {"ok": True, "leases": [lease]},
        **more,
    }


@pytest.fixture
def history(bare: Path) -> dict[str, Grant]:
    return grants_in(bare, write(bare, (1, 1, {FILE: RECORD})))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (call(), None),
        (call(answer=None), None),
        (call(answer={"ok": False, "error": {"code": "unknown_outcome"}}), None),
        (
            call(answer={"ok": False, "error": {"code": "held"}}),
            "was never told of its grant of F1",
        ),
        (call(answer=None, start=0.0, end=1.0), "was never told of its grant of F1"),
        (call(answer=None, session="w1"), "was never told of its grant of F1"),
    ],
)
def test_every_grant_was_asked_for(
    history: dict[str, Grant], entry: dict[str, Any], said: str | None
) -> None:
    found = check_answers(history, [entry])
    assert not found if said is None else said in found[0]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("lease_id", "c", "the grant c is not in history"),
        ("token", 7, "token 7, not 1"),
        ("expires_at", "2026-01-01T10:00:11Z", "no record expires at 2026-01-01T10:00:11Z"),
    ],
)
def test_every_answer_is_in_history(
    history: dict[str, Grant], key: str, value: Any, said: str
) -> None:
    entry = call()
    entry["answer"]["leases"][0][key] = value
    found = check_answers(history, [call(), entry])
    assert len(found) == 1
    assert said in found[0]


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
