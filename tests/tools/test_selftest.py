"""``gitlease selftest``: what it proves of good remotes, finds in bad ones, and leaves behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import careless_server
from support.commands import ROOT, run_gitlease
from support.documents import held_to_schema
from support.fences import clean_env
from support.remotes import Remote
from support.repos import git
from support.running import until
from support.snapshots import check_words

pytestmark = pytest.mark.slow

Clones = Callable[..., list[Path]]
Running = tuple[subprocess.Popen[str], Path, Path]
PROVEN = ["one_winner", "overlap", "tokens", "lapse", "fence"]
REFS = {"refs/gitlease/selftest", "refs/gitlease/probe", "refs/heads/main"}


def selftest(clone: Path, *words: str, env: Any = None) -> tuple[int, dict[str, Any]]:
    """The exit status and the document of a selftest with a lease that lapses soon."""
    folder = clone.parent / f"{clone.name}-tmp"
    folder.mkdir(exist_ok=True)
    own = {"TMPDIR": str(folder), **(env or {})}
    done = run_gitlease(["selftest", *words, "--json"], clone, own)
    assert list(folder.iterdir()) == [], "it leaves nothing behind"
    return done.returncode, held_to_schema(json.loads(done.stdout))


def hasten(clone: Path, env: Any = None) -> Path:
    """Have leases of this layer last for seconds, if they are to lapse."""
    words = ["config", "--ledger", "ttl_min", "4s", "--layer", "selftest"]
    assert run_gitlease(words, clone, env).returncode == 0
    return clone


def results(document: dict[str, Any]) -> list[str]:
    return [f"{x['name']} {x['result']}" for x in document["results"]]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(x): x.read_bytes() for x in folder.rglob("*") if x.is_file()}


def leases_of(clone: Path, env: Any = None) -> list[Any]:
    done = run_gitlease(["list", "--layer", "selftest", "--json"], clone, env)
    found: list[Any] = json.loads(done.stdout)["leases"]
    return found


def test_a_git_remote_holds_what_is_promised(remote: Remote, clones: Clones) -> None:
    one, other = clones(2, remote)
    hasten(other, remote.env)
    before = files_of(one / ".git")
    status, document = selftest(one, "--workers", "3", "--rounds", "2", env=remote.env)
    assert status == 0, document
    assert results(document) == [f"{x} proven" for x in PROVEN]
    assert (document["workers"], document["rounds"]) == (3, 2)
    assert document["claim_ms"] > document["push_ms"] / 4 > 0
    assert {*git(remote.bare, "for-each-ref", "--format=%(refname)").split()} == REFS
    assert leases_of(other, remote.env) == []
    assert files_of(one / ".git") == before, "nothing of this clone is used or changed"


@pytest.mark.default("False-one_winner")
@pytest.mark.nightly
@pytest.mark.parametrize(("compares", "found"), [(False, "one_winner"), (True, "fence")])
def test_a_remote_that_lies_is_found_out(clones: Clones, *, compares: bool, found: str) -> None:
    (one,) = clones(1)
    hasten(one)
    git(one, "config", "remote.origin.receivepack", careless_server.command(compares, "atomic"))
    status, document = selftest(one, "--rounds", "1")
    assert (status, document["error"]["code"]) == (1, "violations"), document
    assert results(document)[-1] in {f"{found} disproven", "fence disproven"}  # a race is chance


def test_a_remote_without_atomic_pushes_is_reported(path_remote: Remote, clones: Clones) -> None:
    (one,) = clones(1, path_remote)
    git(path_remote.bare, "config", "receive.advertiseAtomic", "false")
    status, document = selftest(hasten(one), "--workers", "2", "--rounds", "1")
    assert (status, results(document)[-1]) == (0, "fence not_enforced"), document


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


@pytest.mark.default
def test_what_makes_no_sense_is_refused_at_once(clones: Clones) -> None:
    (one,) = clones(1)
    for words in (("--workers", "1"), ("--rounds", "0"), ("--layer", "global"), ("--local",)):
        assert selftest(one, *words)[1]["error"]["code"] == "usage", words
    git(one, "remote", "remove", "origin")
    status, document = selftest(one)
    assert (status, document["error"]["code"]) == (2, "usage")
    check_words(document["error"]["message"])


@pytest.fixture
def running(path_remote: Remote, clones: Clones) -> Iterator[Running]:
    """A selftest that waits for a lease to lapse, and its folder for temporary files."""
    (one,) = clones(1, path_remote)
    (folder := one.parent / "tmp").mkdir()
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_test_ends_leases_and_processes(running: Running, number: int) -> None:
    process, folder, clone = running
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert processes_in(folder) == []
    assert list(folder.iterdir()) == []
    assert leases_of(clone) == []


def test_killed_test_leaves_nothing_to_the_next(running: Running, path_remote: Remote) -> None:
    process, folder, clone = running
    path_remote.bare.rename(folder.parent / "away")
    again = ["selftest", "--json"], clone, {"TMPDIR": str(folder)}
    assert run_gitlease(*again).returncode == 5
    (left,) = folder.iterdir()  # that of a live one stays
    process.kill()
    process.wait()
    until(lambda: not processes_in(folder), "the end of its processes")
    assert left.exists()
    assert run_gitlease(*again).returncode == 5
    assert list(folder.iterdir()) == []
