"""Workloads like those that lock services are tested with: real processes, pauses and kills.

Several processes, each a session of its own in a clone of its own, take one lease with a short TTL
in turn. They are stopped in the middle and go on later, and are killed.

- *Belief*: the times for which a process believes that it holds, by its own deadline, never
  overlap (S3).
- *Unfenced writes*: what a stopped process pushes with plain git lands in spite of a newer grant.
  The checker must find that, or it could not see anything.
- *Fenced writes*, through ``gitlease push``: the checker never finds a write with an older token
  after a newer grant (S5).

Where a write lands, the server itself writes down its token and the newest that was given by then,
while it holds the refs locked.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from support.fences import clean_env
from support.remotes import KINDS, Remote
from support.repos import git
from support.session import LeaseService

import gitlease

Clones = Callable[..., list[Path]]
ROOT = Path(__file__).parents[2]
RESOURCE = "register"
PATIENCE = 240.0  # seconds that a workload may take at most

WORKER = """\
import json, os, random, signal, subprocess, sys, time
import gitlease

clone, name, mode, ttl, rounds, seed, stops, log = json.loads(sys.argv[1])
dice, out = random.Random(seed), open(log, "a")

def say(**what):
    out.write(json.dumps({"worker": name, "at": time.time_ns() // 1_000_000, **what}) + "\\n")
    out.flush()

def maybe_stop():
    if dice.random() < stops:
        say(what="stops")
        os.kill(os.getpid(), signal.SIGSTOP)

def git(*words):
    return subprocess.run(["git", *words], cwd=clone, capture_output=True).returncode

def write(leases, lease):
    git("commit", "-q", "--allow-empty", "-m", str(lease.token))
    maybe_stop()
    target = f"HEAD:refs/heads/of-{name}"
    if mode == "plain":
        say(what="wrote" if git("push", "-q", "origin", target) == 0 else "failed")
        return
    try:
        leases.push("origin", target, require=["register"])
        say(what="wrote")
    except gitlease.GitleaseError as error:
        say(what="refused", code=error.code)

def believe(leases, lease):
    for _ in range(dice.randrange(4)):
        maybe_stop()
        time.sleep(dice.uniform(0, 0.4) * ttl)
        try:
            lease = leases.renew("register")
        except gitlease.GitleaseError as error:
            say(what="lost", code=error.code)
            return
        say(what="holds", until=int(lease.expires_at.timestamp() * 1000), token=lease.token)

for turn in range(rounds):
    with gitlease.open(clone, session=name) as leases:
        while True:
            try:
                lease = leases.claim("register", any=True, ttl=ttl)
                break
            except gitlease.GitleaseError:
                time.sleep(dice.uniform(0.02, 0.1))
        say(what="holds", until=int(lease.expires_at.timestamp() * 1000), token=lease.token)
        maybe_stop()
        (believe if mode == "belief" else write)(leases, lease)
        say(what="ends")
        try:
            leases.release("register")
        except gitlease.GitleaseError:
            pass
    time.sleep(dice.uniform(0, 0.05))
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
    """One workload: its processes, what they say, and what the server writes down."""

    remote: Remote
    clones: list[Path]
    folder: Path
    mode: str
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def ttl(self) -> int:
        """Seconds: long enough for a push that is not stopped, which takes two connections."""
        return 1 if self.remote.kind in ("path", "file") else 4

    def __post_init__(self) -> None:
        hook = self.remote.bare / "hooks" / "reference-transaction"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(WRITES_DOWN.format(log=self.folder / "writes"))
        hook.chmod(0o755)
        leases = gitlease.open(str(self.clones[0]), environ={})
        LeaseService(leases._ledger).set_policy({"ttl_min": "1s", "skew": "0s"})

    def start(self, number: int, *, rounds: int, seed: int, stops: float) -> str:
        name = f"w{number}-{seed}"
        words = (str(self.clones[number]), name, self.mode, self.ttl, rounds, seed, stops)
        with (self.folder / f"err-{name}").open("wb") as err:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-c", WORKER, json.dumps([*words, str(self.folder / "said")])],
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

    def said(self, what: str | None = None) -> list[dict[str, object]]:
        file = self.folder / "said"
        lines = [json.loads(x) for x in file.read_text().splitlines()] if file.exists() else []
        return [x for x in lines if what is None or x["what"] == what]

    def writes(self) -> list[tuple[int, int]]:
        """The token of each write that landed, and the newest that was given by then."""
        file = self.folder / "writes"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(x.split()[0]), int(x.split()[1])) for x in lines]

    def stale_writes(self) -> list[tuple[int, int]]:
        """The checker: writes with an older token, after a newer grant."""
        return [(token, newest) for token, newest in self.writes() if token < newest]

    def errors(self) -> str:
        return "".join(x.read_text(errors="replace") for x in sorted(self.folder.glob("err-*")))

    def play(self, dice: random.Random, *, rounds: int, stops: float, kills: int) -> None:
        """Let all of them work, resume what has stopped after a while, and kill some."""
        for number in range(len(self.clones)):
            self.start(number, rounds=rounds, seed=dice.randrange(10**6), stops=stops)
        resume: dict[str, float] = {}
        kill_at = sorted(dice.uniform(0.5, 2.0 * rounds) for _ in range(kills))
        begun = time.monotonic()
        while open_still := [name for name in self.running if not self.is_over(name)]:
            now = time.monotonic()
            assert now - begun < PATIENCE, (self.said()[-20:], self.errors())
            for name in open_still:
                if not self.is_stopped(name):
                    continue
                if resume.setdefault(name, now + dice.uniform(0.1, 2.2) * self.ttl) <= now:
                    del resume[name]
                    self.send(name, signal.SIGCONT)
            if kill_at and now - begun > kill_at[0]:
                kill_at.pop(0)
                name = dice.choice(open_still)
                self.send(name, signal.SIGKILL)
                number = int(name.split("-")[0][1:])
                self.start(number, rounds=rounds, seed=dice.randrange(10**6), stops=stops)
            time.sleep(0.02)
        assert not self.errors(), self.errors()

    def end(self) -> None:
        for name in self.running:
            self.send(name, signal.SIGCONT)
            self.send(name, signal.SIGKILL)
            self.running[name].wait(10)


@pytest.fixture
def run_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def make(mode: str, remote: Remote, clones: list[Path]) -> Run:
        for key, value in remote.env.items():
            monkeypatch.setenv(key, value)
        folder = tmp_path / f"run-{len(runs)}"
        folder.mkdir()
        runs.append(Run(remote, clones, folder, mode))
        return runs[-1]

    yield make
    for one in runs:
        one.end()


def until(true: Callable[[], bool], run: Run, what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, (what, run.said(), run.errors())
        time.sleep(0.02)


def beliefs(run: Run) -> list[tuple[int, int, str]]:
    """From when until when each process believed: by its deadline, unless it ended before."""
    found: list[list[object]] = []
    holding: dict[str, list[object]] = {}
    for line in run.said():
        name = str(line["worker"])
        if line["what"] == "holds":
            if name in holding:
                holding[name][1] = line["until"]
            else:
                holding[name] = [line["at"], line["until"], name]
                found.append(holding[name])
        elif line["what"] in ("ends", "lost") and name in holding:
            interval = holding.pop(name)
            interval[1] = min(int(str(interval[1])), int(str(line["at"])))
    return sorted((int(str(a)), int(str(b)), str(who)) for a, b, who in found)


def overlapping(intervals: list[tuple[int, int, str]]) -> list[tuple[object, object]]:
    """The checker: pairs of beliefs of two processes at one time."""
    found: list[tuple[object, object]] = []
    latest: tuple[int, int, str] | None = None
    for one in intervals:
        if latest is not None and one[0] < latest[1] and one[2] != latest[2]:
            found.append((latest, one))
        if latest is None or one[1] > latest[1]:
            latest = one
    return found


# --- belief ---------------------------------------------------------------------------------------


def played(one: int, other: int) -> list[ParameterSet]:
    """One seed over a path and one over http; nightly both over every transport."""
    every = ((kind, seed) for kind in KINDS for seed in (one, other))
    now = (("path", one), ("http", other))
    return [pytest.param(*x, marks=() if x in now else pytest.mark.nightly) for x in every]


def believe(run: Run, seed: int, *, rounds: int, kills: int) -> None:
    run.play(random.Random(seed), rounds=rounds, stops=0.25, kills=kills)
    found = beliefs(run)
    assert len(found) >= rounds * len(run.clones) - kills
    assert overlapping(found) == []
    tokens = [int(str(x["token"])) for x in run.said("holds")]
    assert len(set(tokens)) >= rounds * len(run.clones) - kills, "a token for every grant"


@pytest.mark.slow
def test_two_never_believe_at_once(
    path_remote: Remote, clones: Clones, run_of: Callable[..., Run]
) -> None:
    believe(run_of("belief", path_remote, clones(3)), 7, rounds=2, kills=1)


def test_the_checker_of_beliefs_can_see() -> None:
    assert overlapping([(0, 10, "a"), (5, 20, "b")])
    assert overlapping([(0, 30, "a"), (5, 20, "a"), (25, 40, "b")])
    assert not overlapping([(0, 10, "a"), (10, 20, "b"), (12, 30, "b")])


# --- writes ---------------------------------------------------------------------------------------


def overtaken(run: Run) -> None:
    """One stops before it writes; another is granted the same, and writes; then the first goes on.

    By then its lease is lost, and it has yet to hear of that.
    """
    first = run.start(0, rounds=1, seed=1, stops=1.0)
    until(lambda: run.is_stopped(first), run, "the first has stopped with the lease")
    run.send(first, signal.SIGCONT)
    until(lambda: len(run.said("stops")) == 2, run, "it has its work, and has not pushed it")
    until(lambda: run.is_stopped(first), run, "it has stopped again")
    second = run.start(1, rounds=1, seed=2, stops=0.0)
    until(lambda: run.is_over(second), run, "the second has written")
    assert run.writes(), (run.said(), run.errors())
    run.send(first, signal.SIGCONT)
    until(lambda: run.is_over(first), run, "the first has tried to write")
    assert not run.errors(), run.errors()


def test_a_plain_push_of_a_lost_lease_lands_and_the_checker_sees_it(
    path_remote: Remote, clones: Clones, run_of: Callable[..., Run]
) -> None:
    run = run_of("plain", path_remote, clones(2))
    overtaken(run)
    assert run.stale_writes() == [(1, 2)]


def test_a_fenced_push_of_a_lost_lease_never_lands(
    path_remote: Remote, clones: Clones, run_of: Callable[..., Run]
) -> None:
    run = run_of("fenced", path_remote, clones(2))
    overtaken(run)
    assert run.stale_writes() == []
    assert run.writes() == [(2, 2)]
    assert [x["code"] for x in run.said("refused")] == ["lost"]


def fenced_writes(run: Run, seed: int, *, rounds: int, kills: int) -> None:
    run.play(random.Random(seed), rounds=rounds, stops=0.3, kills=kills)
    assert run.stale_writes() == []
    wrote, refused = len(run.said("wrote")), run.said("refused")
    assert {x["code"] for x in refused} <= {"lost", "not_holder", "unknown_outcome", "unavailable"}
    assert wrote, "some of them land"
    assert len(run.writes()) >= wrote
    said = {(x["worker"], x["token"]) for x in run.said("holds")}
    assert {token for token, _ in run.writes()} <= {token for _, token in said}


@pytest.mark.slow
@pytest.mark.parametrize(("remote", "seed"), played(11, 12), indirect=["remote"])
def test_two_never_believe_at_once_for_long(
    seed: int, remote: Remote, clones: Clones, run_of: Callable[..., Run]
) -> None:
    rounds = 2 if remote.kind == "ssh" else 5
    believe(run_of("belief", remote, clones(4)), seed, rounds=rounds, kills=2)


@pytest.mark.slow
@pytest.mark.parametrize(("remote", "seed"), played(21, 22), indirect=["remote"])
def test_fenced_writes_never_fail_for_long(
    seed: int, remote: Remote, clones: Clones, run_of: Callable[..., Run]
) -> None:
    rounds = 3 if remote.kind == "ssh" else 5
    fenced_writes(run_of("fenced", remote, clones(4)), seed, rounds=rounds, kills=2)


@pytest.mark.slow
def test_unfenced_writes_are_seen_to_fail(
    http_remote: Remote, clones: Clones, run_of: Callable[..., Run]
) -> None:
    run = run_of("plain", http_remote, clones(4))
    run.play(random.Random(31), rounds=5, stops=0.5, kills=0)
    assert run.stale_writes(), "the very same play, without the fence"


@pytest.mark.slow
def test_a_lost_lease_lands_nothing_over_http(
    http_remote: Remote, clones: Clones, run_of: Callable[..., Run]
) -> None:
    run = run_of("fenced", http_remote, clones(2))
    overtaken(run)
    assert run.stale_writes() == []
    assert (
        git(http_remote.bare, "for-each-ref", "--format=%(refname)", "refs/heads/of-*").count(
            "of-w0"
        )
        == 0
    )
