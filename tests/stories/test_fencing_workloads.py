"""A process that is stopped while it holds a lease, and what it writes when it goes on.

Another is granted the same lease meanwhile, and writes. Where a write lands, the server itself
writes down its token and the newest that was given by then, while it holds the refs locked.

- *Unfenced*: what the stopped process pushes with plain git lands in spite of the newer grant. The
  checker must find that, or it could not see anything.
- *Fenced*, through ``gitlease push``: it never lands (S5).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.fences import clean_env
from support.remotes import Remote
from support.session import LeaseService

import gitlease

ROOT = Path(__file__).parents[2]
PATIENCE = 240.0  # seconds that a workload may take at most

WORKER = """\
import json, os, signal, subprocess, sys, time
import gitlease

clone, name, mode, stops, log = json.loads(sys.argv[1])

def say(**what):
    with open(log, "a") as out:
        out.write(json.dumps({"worker": name, **what}) + "\\n")

def maybe_stop():
    if stops:
        say(what="stops")
        os.kill(os.getpid(), signal.SIGSTOP)

def git(*words):
    return subprocess.run(["git", *words], cwd=clone, capture_output=True).returncode

with gitlease.open(clone, session=name) as leases:
    while True:
        try:
            lease = leases.claim("register", any=True, ttl=1)
            break
        except gitlease.GitleaseError:
            time.sleep(0.05)
    maybe_stop()
    git("commit", "-q", "--allow-empty", "-m", str(lease.token))
    maybe_stop()
    target = f"HEAD:refs/heads/of-{name}"
    try:
        if mode == "plain":
            git("push", "-q", "origin", target)
        else:
            leases.push("origin", target, require=["register"])
    except gitlease.GitleaseError as error:
        say(what="refused", code=error.code)
"""

WRITES_DOWN = """\
#!/bin/sh
[ "$1" = prepared ] || exit 0
while read old new ref; do
  case $ref in refs/heads/of-*)
    token=$(git log -1 --format=%s "$new")
    newest=$(git cat-file blob refs/gitlease/global:ledger.yaml | sed -n 's/^sequence: *//p')
    echo "$token $newest" >>{log} ;;
  esac
done
"""


@dataclass
class Run:
    """Two processes, what they say, and what the server writes down."""

    remote: Remote
    clones: list[Path]
    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        hook = self.remote.bare / "hooks" / "reference-transaction"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(WRITES_DOWN.format(log=self.folder / "writes"))
        hook.chmod(0o755)
        leases = gitlease.open(str(self.clones[0]), environ={})
        LeaseService(leases._ledger).set_policy({"ttl_min": "1s", "skew": "0s"})

    def start(self, number: int, mode: str, *, stops: bool) -> str:
        name = f"w{number}"
        words = [str(self.clones[number]), name, mode, stops, str(self.folder / "said")]
        with (self.folder / "errors").open("ab") as err:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-c", WORKER, json.dumps(words)],
                env=clean_env({"PYTHONPATH": str(ROOT), **self.remote.env}),
                stderr=err,
            )
        return name

    def send(self, name: str, what: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.running[name].pid, what)

    def is_stopped(self, name: str) -> bool:
        with contextlib.suppress(OSError):
            stat = Path("/proc", str(self.running[name].pid), "stat").read_text()
            return stat.rpartition(")")[2].split()[0] == "T"
        return False

    def is_over(self, name: str) -> bool:
        return self.running[name].poll() is not None

    def said(self, what: str) -> list[dict[str, object]]:
        file = self.folder / "said"
        lines = [json.loads(x) for x in file.read_text().splitlines()] if file.exists() else []
        return [x for x in lines if x["what"] == what]

    def until(self, true: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < end, (what, (self.folder / "errors").read_text())
            time.sleep(0.02)

    def overtaken(self, mode: str) -> list[tuple[int, int]]:
        """Stop one before it writes, have another write under a newer grant, let the first go on.

        By then its lease is lost, and it has yet to hear of that. Of each write that landed the
        token, and the newest that was given by then.
        """
        first = self.start(0, mode, stops=True)
        self.until(lambda: self.is_stopped(first), "the first has stopped with the lease")
        self.send(first, signal.SIGCONT)
        self.until(lambda: len(self.said("stops")) == 2, "it has its work, and has not pushed it")
        self.until(lambda: self.is_stopped(first), "it has stopped again")
        second = self.start(1, mode, stops=False)
        self.until(lambda: self.is_over(second), "the second has written")
        self.send(first, signal.SIGCONT)
        self.until(lambda: self.is_over(first), "the first has tried to write")
        assert not (self.folder / "errors").read_text()
        lines = (self.folder / "writes").read_text().splitlines()
        return [(int(x.split()[0]), int(x.split()[1])) for x in lines]

    def end(self) -> None:
        for name in self.running:
            self.send(name, signal.SIGCONT)
            self.send(name, signal.SIGKILL)
            self.running[name].wait(10)


@pytest.fixture
def run(path_remote: Remote, clones: Callable[..., list[Path]], tmp_path: Path) -> Iterator[Run]:
    folder = tmp_path / "run"
    folder.mkdir()
    made = Run(path_remote, clones(2), folder)
    yield made
    made.end()


def test_a_plain_push_of_a_lost_lease_lands_and_the_checker_sees_it(run: Run) -> None:
    assert run.overtaken("plain") == [(2, 2), (1, 2)]


def test_a_fenced_push_of_a_lost_lease_never_lands(run: Run) -> None:
    assert run.overtaken("fenced") == [(2, 2)]
    assert [x["code"] for x in run.said("refused")] == ["lost"]
