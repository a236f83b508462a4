"""``gitlease selftest``: what it proves of good remotes, finds in bad ones, and leaves behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import ROOT, run_gitlease
from support.documents import held_to_schema
from support.fences import clean_env
from support.remotes import Remote, Servers
from support.repos import git
from support.served import serve
from support.snapshots import check_words

Clones = Callable[..., list[Path]]
Running = tuple[subprocess.Popen[str], Path, Path]
PROVEN = ["one_winner", "overlap", "tokens", "lapse", "fence"]
REFS = {"refs/gitlease/selftest", "refs/gitlease/probe", "refs/heads/main"}

# A receiving git that lies in one of three ways, in front of git's own.
LIAR = """\
#!{python}
import os, subprocess, sys, time
how, place = {how!r}, sys.argv[-1]
server = subprocess.Popen(["git", "receive-pack", place], stdin=-1, stdout=-1)
inn, out = sys.stdin.buffer, sys.stdout.buffer

def pkt(stream):
    size = int(stream.read(4) or b"0", 16)
    return stream.read(size - 4) if size else None

def pkts(stream):
    while (line := pkt(stream)) is not None:
        yield line

def put(stream, lines):
    for line in lines:
        stream.write(b"%04x" % (len(line) + 4) + line)
    stream.write(b"0000")
    stream.flush()

put(out, pkts(server.stdout))
lines = list(pkts(inn))
if lines:
    time.sleep(0.3)
    told = [line.split(b"\\0")[0].split(b" ") for line in lines]
    rest = [line.partition(b"\\0") for line in lines]
    if how == "not atomic":
        rest = [(x, y, z.replace(b" atomic", b"")) for x, y, z in rest]
    careless = how == "compares nothing" or (how == "two refs" and len(lines) > 1)
    for n, (old, new, ref) in enumerate(told):
        if careless:
            there = subprocess.run(["git", "-C", place, "rev-parse", "-q", "--verify", ref],
                                   stdout=-1).stdout.strip()
            old = there or b"0" * 40
        told[n] = b" ".join((old, new, ref))
    put(server.stdin, [x + y + z for x, (_, y, z) in zip(told, rest)])
else:
    server.stdin.write(b"0000")
    server.stdin.flush()
while data := inn.read1(65536):
    server.stdin.write(data)
server.stdin.close()
while data := server.stdout.read1(65536):
    out.write(data)
    out.flush()
sys.exit(server.wait())
"""


def selftest(clone: Path, *words: str, env: Any = None) -> tuple[int, dict[str, Any]]:
    """The exit status and the document of a selftest with a lease that lapses soon."""
    folder = clone.parent / f"{clone.name}-tmp"
    folder.mkdir(exist_ok=True)
    done = run_gitlease(
        ["selftest", *words, "--json"], clone, {"TMPDIR": str(folder), **(env or {})}
    )
    assert list(folder.iterdir()) == [], "it leaves nothing behind"
    return done.returncode, held_to_schema(json.loads(done.stdout))


def hasten(clone: Path, env: Any = None, ttl: str = "4s") -> Path:
    """Have leases of this layer last for seconds, if they are to lapse."""
    words = ["config", "--ledger", "ttl_min", ttl, "--layer", "selftest"]
    assert run_gitlease(words, clone, env).returncode == 0
    return clone


def results(document: dict[str, Any]) -> list[str]:
    return [f"{x['name']} {x['result']}" for x in document["results"]]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(x): x.read_bytes() for x in folder.rglob("*") if x.is_file()}


def refs_of(bare: Path) -> set[str]:
    return {*git(bare, "for-each-ref", "--format=%(refname)").split()}


def leases_of(clone: Path, env: Any = None) -> list[Any]:
    done = run_gitlease(["list", "--layer", "selftest", "--json"], clone, env)
    found: list[Any] = json.loads(done.stdout)["leases"]
    return found


@pytest.mark.one_in(4)
def test_a_git_remote_holds_what_is_promised(remote: Remote, clones: Clones) -> None:
    one, other = clones(2, remote)
    hasten(other, remote.env)
    before = files_of(one / ".git")
    status, document = selftest(one, "--workers", "3", "--rounds", "2", env=remote.env)
    assert status == 0, document
    assert results(document) == [f"{x} proven" for x in PROVEN]
    assert (document["workers"], document["rounds"]) == (3, 2)
    assert document["claim_ms"] > document["push_ms"] / 4 > 0
    assert document["claims_per_minute"] >= 1
    assert refs_of(remote.bare) == REFS
    assert git(remote.bare, "log", "--format=%s", "main") == "seed"
    assert leases_of(other, remote.env) == []
    assert files_of(one / ".git") == before, "nothing of this clone is used or changed"


@pytest.mark.parametrize(
    ("how", "found"),
    [("compares nothing", "one_winner"), ("two refs", "fence"), ("not atomic", "fence")],
)
@pytest.mark.one_in(3)
def test_a_remote_that_lies_is_found_out(
    path_remote: Remote, clones: Clones, tmp_path: Path, how: str, found: str
) -> None:
    (one,) = clones(1, path_remote)
    hasten(one)
    liar = tmp_path / "liar"
    liar.write_text(LIAR.format(python=sys.executable, how=how))
    liar.chmod(0o700)
    git(one, "config", "remote.origin.receivepack", str(liar))
    status, document = selftest(one, "--rounds", "1")
    assert (status, document["error"]["code"]) == (1, "violations"), document
    assert results(document)[-1] in {f"{found} disproven", "fence disproven"}  # a race is chance


@pytest.mark.slow
def test_a_remote_without_atomic_pushes_is_reported(path_remote: Remote, clones: Clones) -> None:
    (one,) = clones(1, path_remote)
    git(path_remote.bare, "config", "receive.advertiseAtomic", "false")
    status, document = selftest(hasten(one), "--workers", "2", "--rounds", "1")
    assert (status, results(document)[-1]) == (0, "fence not_enforced"), document


@pytest.mark.slow
def test_on_a_slow_remote_leases_last_longer_before_they_lapse(
    path_remote: Remote, clones: Clones, tmp_path: Path
) -> None:
    (one,) = clones(1, path_remote)
    hasten(one, ttl="2s")
    for name in ("upload", "receive"):
        slow = tmp_path / name
        slow.write_text(f'#!/bin/sh\nsleep 0.4\nexec git-{name}-pack "$@"\n')
        slow.chmod(0o700)
        git(one, "config", f"remote.origin.{name}pack", str(slow))
    status, document = selftest(one, "--workers", "2", "--rounds", "1")
    assert (status, results(document)) == (0, [f"{x} proven" for x in PROVEN]), document


def test_what_the_remote_refuses_has_the_codes_of_a_claim(
    path_remote: Remote, clones: Clones, tmp_path: Path
) -> None:
    (one,) = clones(1, path_remote)
    hook = path_remote.bare / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o700)
    status, document = selftest(one)
    assert (status, document["error"]["code"], document["results"]) == (4, "denied", [])
    check_words(run_gitlease(["selftest"], one).stderr)
    path_remote.bare.rename(tmp_path / "gone")
    status, document = selftest(one)
    assert (status, document["error"]["code"]) == (5, "unavailable")
    assert selftest(one, "--remote", "nosuch")[0] == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--workers", "1"),
        ("--workers", "33"),
        ("--rounds", "0"),
        ("--rounds", "many"),
        ("--layer", "global"),
        ("--local",),
        ("--session", "s"),
        ("F001",),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(clones: Clones, words: tuple[str, ...]) -> None:
    status, document = selftest(clones(1)[0], *words)
    assert (status, document["error"]["code"]) == (2, "usage")


def test_a_clone_without_a_remote_has_nothing_to_prove(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "lone")
    git(tmp_path / "lone", "config", "user.email", "jo@example.com")
    status, document = selftest(tmp_path / "lone")
    assert (status, document["error"]["code"]) == (2, "usage")
    check_words(document["error"]["message"])
    assert selftest(tmp_path)[0] == 128


@pytest.mark.slow
def test_credentials_come_from_the_helper_of_the_clone(
    tmp_path: Path, servers: Servers, clones: Clones
) -> None:
    with serve("http", tmp_path / "served", servers) as host:
        jo = hasten(host.person("jo").root)
        url = git(jo, "remote", "get-url", "origin")
        host_only = url.rpartition("@")[2]
        name, _, password = url.removeprefix("http://").partition("@")[0].partition(":")
        git(jo, "remote", "set-url", "origin", f"http://{host_only}")
        helper = f"!f() {{ echo username={name}; echo password={password}; }}; f"
        git(jo, "config", "credential.helper", helper)
        host.install()
        status, document = selftest(jo, "--workers", "2", "--rounds", "1")
        assert (status, results(document)) == (0, [f"{x} proven" for x in PROVEN]), document


@pytest.fixture
def running(path_remote: Remote, clones: Clones) -> Iterator[Running]:
    """A selftest that waits for a lease to lapse, and its folder for temporary files."""
    (one,) = clones(1, path_remote)
    folder = one.parent / "tmp"
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "gitlease", "selftest", "--workers", "2", "--rounds", "1"],
        cwd=one,
        env=clean_env({"PYTHONPATH": ROOT, "TMPDIR": str(folder)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith("waiting"):
            assert line
        yield process, folder, one
        process.kill()


def processes_in(folder: Path) -> list[str]:
    """The processes that name a folder in their environment."""
    found, ours = [], f"TMPDIR={folder}".encode()
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            try:
                if ours in (place / "environ").read_bytes():
                    found.append(place.name)
            except OSError:
                continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_test_ends_leases_and_processes(running: Running, number: int) -> None:
    process, folder, clone = running
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert processes_in(folder) == []
    assert list(folder.iterdir()) == []
    assert leases_of(clone) == []


@pytest.mark.slow
def test_killed_test_leaves_nothing_to_the_next(running: Running, path_remote: Remote) -> None:
    process, folder, clone = running
    path_remote.bare.rename(folder.parent / "away")
    again = ["selftest", "--json"], clone, {"TMPDIR": str(folder)}
    assert run_gitlease(*again).returncode == 5
    (left,) = folder.iterdir()  # that of a live one stays
    process.kill()
    process.wait()
    until = time.monotonic() + 30
    while processes_in(folder):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert left.exists()
    assert run_gitlease(*again).returncode == 5
    assert list(folder.iterdir()) == []
