"""What a lease costs: gitlease against a bare git push to the same remote, in the same run.

One command, from anywhere: ``python benchmarks/run.py``. It needs git, and sshd for ssh.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT))

import pytest  # noqa: E402
from support.counting import costs  # noqa: E402
from support.fences import raise_fences  # noqa: E402
from support.remotes import Remote, Servers, open_remote  # noqa: E402

from benchmarks.bench import Bench  # noqa: E402
from benchmarks.check_bench import CheckBench  # noqa: E402
from benchmarks.hold_bench import COUNTS, HoldBench, per_hour  # noqa: E402
from benchmarks.hook_bench import COMMIT_AIM_MS, GATE_AIM_MS, LOOK_AIM, HookBench  # noqa: E402
from benchmarks.task_bench import TaskBench  # noqa: E402
from benchmarks.verb_bench import (  # noqa: E402
    CLI_AIM,
    DISTANT_AIM,
    LATENCY,
    LIBRARY_AIM,
    STARTS,
    DistantBench,
    VerbBench,
)

TRANSPORTS = ("path", "http", "ssh")
TASKS = "tasks"  # a path remote, and a work tree with many task files
HOLDING = "hold"  # a path remote, and whoever holds on
HOOKS = "hooks"  # a path remote, and clones with and without hooks
DISTANT = "far"  # an http remote that is 50 ms away
CHECKS = "check"  # a path remote, and a branch of many commits


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


def rows_of(place: str, bench: Bench) -> list[Row]:
    """The lines of one bench: what it is compared with first."""
    base = median(bench.timings[bench.base].ms)
    rows = []
    for name in bench.names():
        took = bench.timings[name]
        middle = median(took.ms)
        rows.append(
            Row(
                transport=place,
                operation=name,
                median_ms=round(middle, 2),
                min_ms=round(min(took.ms), 2),
                ratio=round(middle / base, 3),
                difference_ms=round(middle - base, 2),
                connections=max(took.connections),
                aim=bench.aim(name, middle, base),
            )
        )
    return rows


def measure(
    transports: Sequence[str],
    rounds: int,
    python: str,
    *,
    tasks: int,
    hooks: bool,
    hold: bool,
    checks: bool,
) -> list[Row]:
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
            benches[kind] = VerbBench(remote, top / kind, python)
        if "http" in benches:
            far = open_remote("http", top / DISTANT, servers=servers, latency=LATENCY)
            benches[DISTANT] = DistantBench(stack.enter_context(far), top / DISTANT, python)
        others: dict[str, tuple[bool, Callable[[Remote, Path, str], Bench]]] = {
            TASKS: (tasks > 0, partial(TaskBench, number=tasks)),
            HOOKS: (hooks, HookBench),
            HOLDING: (hold, HoldBench),
            CHECKS: (checks, CheckBench),
        }
        for kind, (wanted, bench_of) in others.items():
            if wanted:
                opened = open_remote("path", top / kind, servers=servers)
                remote = stack.enter_context(opened)
                benches[kind] = bench_of(remote, top / kind, python)
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
            rows += rows_of(kind, bench)
    return rows


def table(rows: Sequence[Row], rounds: int) -> str:
    """The table as people read it."""
    lines = [
        f"{rounds} rounds, interleaved; milliseconds; 'bare' is git push --force-with-lease of one"
        " small commit",
        f"aims: library at most {LIBRARY_AIM:g} x bare, or {DISTANT_AIM:g} x with as many requests,"
        f" far away; a hook {GATE_AIM_MS:g} ms, a commit with hooks one without +"
        f" {COMMIT_AIM_MS:g} ms, pre-push one connection",
        f"      in starts of Python: CLI at most bare + {CLI_AIM}, a hook that has to look"
        f" {LOOK_AIM}, {', '.join(f'{x} {most}' for x, most in STARTS.items())}",
        "",
        f"{'':5}  {'operation':<33}{'median':>9}{'min':>9}{'x bare':>9}{'- bare':>9}"
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
            f"{shown:5}  {row.operation:<33}{row.median_ms:>9.1f}{row.min_ms:>9.1f}"
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
    parser.add_argument("--no-hooks", action="store_true", help="leave the hooks of git out")
    parser.add_argument("--no-hold", action="store_true", help="leave holding on out")
    parser.add_argument("--no-check", action="store_true", help="leave the check of commits out")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the CLI")
    options = parser.parse_args(argv)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    chosen = options.transport or TRANSPORTS
    rows = measure(
        chosen,
        options.rounds,
        options.python,
        tasks=max(0, options.tasks),
        hooks=not options.no_hooks,
        hold=not options.no_hold,
        checks=not options.no_check,
    )
    with tempfile.TemporaryDirectory(prefix="gitlease-benchmark-") as folder:
        counts = {
            name: {"modules": len(cost.modules), "git_processes": len(cost.gits)}
            for name, cost in costs(Path(folder)).items()
        }
    hourly = {} if options.no_hold else {count: per_hour(count) for count in COUNTS}
    if options.json:
        document = {
            "schema": 1,
            "rounds": options.rounds,
            "rows": [vars(row) for row in rows],
            "counts": counts,
            "pushes_per_hour": hourly,
        }
        print(json.dumps(document, indent=2))
    else:
        print(table(rows, options.rounds))
        print(f"\n{'':7}{'modules, git processes':<33}{'modules':>9}{'gits':>9}")
        for name, cost in counts.items():
            print(f"{'':7}{name:<33}{cost['modules']:>9}{cost['git_processes']:>9}")
        print()
        for count, pushes in hourly.items():
            word = "lease" if count == 1 else "leases"
            print(
                f"{count} {word} of 15m in one process: {pushes} pushes an hour, and as many"
                " connections"
            )
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
