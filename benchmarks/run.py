"""What a lease costs: gitlease against a bare git push to the same remote, in the same run.

One command, from anywhere: ``python benchmarks/run.py``. It needs git, and sshd for ssh.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT))

import pytest  # noqa: E402
from support.fences import clean_env, raise_fences  # noqa: E402
from support.remotes import Remote, Servers, open_remote  # noqa: E402
from support.repos import git, make_clone  # noqa: E402

import gitlease  # noqa: E402

TRANSPORTS = ("path", "http", "ssh")
TASKS = "tasks"  # a path remote, and a work tree with many task files
TASK = """---
id: T{number:04d}
title: Task number {number} of many
status: {status}
assigned: []
priority: {priority}
depends_on: [T{before:04d}]
created: 2026-01-{day:02d}
paths:
  - src/part{number}
---

What is to be done, in a few words.
"""
VERBS = ("claim", "renew", "release")
BARE = "bare push"
START = "start-up"
CLI_AIM_MS = 100.0
LIBRARY_AIM = 1.3
REF = "refs/benchmark/bare"


@dataclass
class Timings:
    """How long one operation took, each time, and how many connections it made."""

    ms: list[float] = field(default_factory=list)
    connections: list[int] = field(default_factory=list)


class Bench:
    """One transport: a remote, a clone, and the operations that are timed against it."""

    def __init__(self, remote: Remote, folder: Path, python: str) -> None:
        self.remote, self.python = remote, python
        self.clone = make_clone(remote, folder / "clone", "bench@example.com", "Bench")
        self.env = clean_env(remote.env)
        self.timings: dict[str, Timings] = {}
        self._pushed, self._number = "", 0
        with environment(remote.env):
            self.leases = gitlease.open(str(self.clone), layer="library")

    def round(self) -> None:
        """Every operation once; the bare push stands between the others, so noise hits all."""
        self._started()
        for verb in VERBS:
            self._bare_push()
            self._command_line(verb)
            self._library(verb)

    def _bare_push(self) -> None:
        """One small new commit (it changes one file) to a ref of its own, as plain git does it."""
        self._number += 1
        text = f"change {self._number}\n"
        blob = git(self.clone, "hash-object", "-w", "--stdin", input=text)
        tree = git(self.clone, "mktree", input=f"100644 blob {blob}\tchanged\n")
        parents = ("-p", self._pushed) if self._pushed else ()
        new = git(self.clone, "commit-tree", tree, *parents, "-m", text)
        lease = f"--force-with-lease={REF}:{self._pushed}"
        self._process(BARE, ["git", "push", "-q", lease, "origin", f"{new}:{REF}"], self.env)
        self._pushed = new

    def _command_line(self, verb: str) -> None:
        words = [self.python, "-m", "gitlease", verb, "F001", "--layer", "cli"]
        self._process(f"CLI {verb}", words, {**self.env, "PYTHONPATH": str(ROOT)})

    def _started(self) -> None:
        words = [self.python, "-m", "gitlease", "--version"]
        self._process(START, words, {**self.env, "PYTHONPATH": str(ROOT)})

    def _library(self, verb: str) -> None:
        call: Callable[[str], object] = getattr(self.leases, verb)
        with environment(self.remote.env):
            self._time(f"library {verb}", lambda: call("F001"))

    def _process(self, name: str, words: Sequence[str], env: Mapping[str, str]) -> None:
        # No timeout: with one, Python waits by polling ever more slowly, which would be measured.
        with tempfile.TemporaryFile() as said:

            def run() -> int:
                return subprocess.call(
                    words,
                    cwd=self.clone,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                )

            if self._time(name, run):
                said.seek(0)
                raise SystemExit(f"{name} failed: {said.read().decode(errors='replace')}")

    def _time(self, name: str, act: Callable[[], object]) -> object:
        before = self.remote.connections()
        gc.collect()
        began = time.perf_counter()
        result = act()
        took = (time.perf_counter() - began) * 1_000
        timings = self.timings.setdefault(name, Timings())
        timings.ms.append(took)
        timings.connections.append(self.remote.connections() - before)
        return result


class TaskBench(Bench):
    """The queue over many task files: with nothing remembered of them, and with all of it."""

    def __init__(self, remote: Remote, folder: Path, python: str, number: int) -> None:
        super().__init__(remote, folder, python)
        files = self.clone / "tasks"
        files.mkdir()
        for n in range(1, number + 1):
            text = TASK.format(
                number=n,
                before=n // 2,
                day=n % 28 + 1,
                status=("todo", "todo", "done")[n % 3],
                priority=("high", "medium", "low")[n % 3],
            )
            (files / f"T{n:04d}.md").write_text(text, encoding="utf-8")
        git(self.clone, "add", "tasks")
        git(self.clone, "commit", "-qm", "tasks")
        self._words("claim", "T0001", "--ttl", "8h")
        self.timings.clear()

    def round(self) -> None:
        """Every operation once, with the bare push between them."""
        for name in os.listdir(self._cache):
            (self._cache / name).unlink()
        self._words("queue", "--all", name="queue, cold")
        self._bare_push()
        self._words("queue", "--all", name="queue, warm")
        self._words("queue", "--all", "--ref", "HEAD", name="queue --ref HEAD")
        self._bare_push()
        self._words("claim", "T0003", name="claim of one")
        self._words("release", "T0003", name="release of one")
        self._bare_push()
        self._words("next", "--claim", name="next --claim")

    @property
    def _cache(self) -> Path:
        return self.clone / ".git" / "gitlease" / "tasks"

    def _words(self, *words: str, name: str = "") -> None:
        line = [self.python, "-m", "gitlease", *words]
        self._process(name or words[0], line, {**self.env, "PYTHONPATH": str(ROOT)})


@dataclass(frozen=True)
class Row:
    """One line of the table. ``aim`` is whether the aim was met; None where there is none."""

    transport: str
    operation: str
    median_ms: float
    min_ms: float
    ratio: float
    difference_ms: float
    connections: int
    aim: bool | None


@contextlib.contextmanager
def environment(extra: Mapping[str, str]) -> Iterator[None]:
    """This process's environment with more in it, for calls that start git from here."""
    before = {name: os.environ.get(name) for name in extra}
    os.environ.update(extra)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def rows_of(transport: str, timings: Mapping[str, Timings]) -> list[Row]:
    """The lines of one transport: the bare push first, then start-up, CLI and library."""
    bare = median(timings[BARE].ms)
    doors = (f"{door} {verb}" for door in ("CLI", "library") for verb in VERBS)
    names = [BARE, START, *doors] if transport != TASKS else sorted(timings, key=_bare_first)
    rows = []
    for name in names:
        took = timings[name]
        middle = median(took.ms)
        aim = None
        if name.startswith("CLI"):
            aim = middle - bare <= CLI_AIM_MS
        elif name.startswith("library"):
            aim = middle <= LIBRARY_AIM * bare
        rows.append(
            Row(
                transport=transport,
                operation=name,
                median_ms=round(middle, 2),
                min_ms=round(min(took.ms), 2),
                ratio=round(middle / bare, 3),
                difference_ms=round(middle - bare, 2),
                connections=max(took.connections),
                aim=aim,
            )
        )
    return rows


def _bare_first(name: str) -> bool:
    return name != BARE


def measure(transports: Sequence[str], rounds: int, python: str, tasks: int) -> list[Row]:
    """Time everything ``rounds`` times, the transports taking turns; a first round is not counted.

    A transport whose server is not installed is left out, and said so.
    """
    raise_fences()
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        top = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gitlease-benchmark-")))
        servers = stack.enter_context(Servers(top / "servers"))
        benches: dict[str, Bench] = {}
        for kind in transports:
            try:
                opened = open_remote(kind, top / kind, servers=servers)
                remote = stack.enter_context(opened)
            except pytest.skip.Exception as reason:
                print(f"{kind} is left out: {reason}", file=sys.stderr)
                continue
            benches[kind] = Bench(remote, top / kind, python)
        if tasks:
            opened = open_remote("path", top / TASKS, servers=servers)
            remote = stack.enter_context(opened)
            benches[TASKS] = TaskBench(remote, top / TASKS, python, tasks)
        for number in range(rounds + 1):
            for bench in benches.values():
                bench.round()
                if number == 0:
                    bench.timings.clear()
            if sys.stderr.isatty():
                print(f"\rround {number} of {rounds}", end="", file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        for kind, bench in benches.items():
            rows += rows_of(kind, bench.timings)
    return rows


def table(rows: Sequence[Row], rounds: int) -> str:
    """The table as people read it."""
    lines = [
        f"{rounds} rounds, interleaved; milliseconds; 'bare' is git push --force-with-lease of one"
        " small commit",
        f"aims: CLI at most bare + {CLI_AIM_MS:g} ms, library at most {LIBRARY_AIM:g} x bare",
        "",
        f"{'':5}  {'operation':<16}{'median':>9}{'min':>9}{'x bare':>9}{'- bare':>9}"
        f"{'conn.':>7}  aim",
    ]
    last = ""
    for row in rows:
        if last and row.transport != last:
            lines.append("")
        shown = row.transport if row.transport != last else ""
        last = row.transport
        aim = {None: "", True: "met", False: "MISSED"}[row.aim]
        lines.append(
            f"{shown:5}  {row.operation:<16}{row.median_ms:>9.1f}{row.min_ms:>9.1f}"
            f"{row.ratio:>9.2f}{row.difference_ms:>+9.1f}{row.connections:>7}  {aim}".rstrip()
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="how often each is timed (15)")
    parser.add_argument(
        "--transport", action="append", choices=TRANSPORTS, help="only this one; repeatable"
    )
    parser.add_argument(
        "--tasks", type=int, default=5_000, help="task files for the queue (5000; 0: none)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the CLI")
    options = parser.parse_args(argv)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    chosen = options.transport or TRANSPORTS
    rows = measure(chosen, options.rounds, options.python, max(0, options.tasks))
    if options.json:
        document = {"schema": 1, "rounds": options.rounds, "rows": [vars(row) for row in rows]}
        print(json.dumps(document, indent=2))
    else:
        print(table(rows, options.rounds))
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores:
        print(
            f"others are busy here (load {load:.1f}, {cores} cores): look at the minima, or run it"
            " again when it is quiet",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
