"""What a lease costs at a real host's pace, where each connection and each pack takes its time.

``python benchmarks/pace.py`` prints what claims, waits and crowds take beside a bare push to a
remote that takes 0.5 s for each connection and 0.7 s for each pack, and how many pushes and fetches
they make. An hour of twelve agents is played under a clock that is moved by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT))

from support.fences import clean_env, raise_fences  # noqa: E402
from support.keepers import KeptAgents  # noqa: E402
from support.paced import PacedHost, Tally  # noqa: E402

import gitlease  # noqa: E402
from benchmarks.bench import BARE, Bench  # noqa: E402

CONNECTION, PACK = 0.5, 0.7
CURRENT, STALE = "claim, this clone's copy is current", "claim, someone else has changed the ledger"
LIBRARY = "library claim"
WAITING = "14 s of waiting"
RELEASE, GRANTED = "release while someone waits", "the waiter is granted after that returned"
OTHERS = 5  # changes by someone else, since the last contact
WAITED = 14.0
MANY = 20
AGENTS, TTL, HOUR = 12, 900, 3_600


@dataclass(frozen=True)
class Aim:
    """What is aimed at: seconds at the pace above, times the bare push, or numbers of pushes."""

    seconds: float | None = None
    ratio: float | None = None
    pushes: int | None = None

    def is_met(self, took: float | None, bare: float, count: Tally) -> bool:
        """Whether what was measured is within all of it."""
        timed = took is None or self.seconds is None or took <= self.seconds
        close = took is None or self.ratio is None or took <= self.ratio * bare
        return timed and close and (self.pushes is None or count.pushes <= self.pushes)

    def __str__(self) -> str:
        said = []
        if self.seconds is not None:
            said.append(f"{self.seconds:g} s")
        if self.ratio is not None:
            said.append(f"{self.ratio:g} x bare")
        if self.pushes is not None:
            said.append(f"{self.pushes} push" + "es" * (self.pushes != 1))
        return ", ".join(said)


AIMS = {
    CURRENT: Aim(pushes=1),
    STALE: Aim(seconds=2.1),
    LIBRARY: Aim(ratio=1.1),
    RELEASE: Aim(seconds=2.1),
    GRANTED: Aim(seconds=3.0),
    WAITING: Aim(pushes=1),
}
CROWD_AIM = Aim(seconds=30.0, pushes=60)
HOUR_AIM = Aim(pushes=15)


@dataclass(frozen=True)
class Row:
    """One line of the table: medians, and the range of the seconds.

    ``host`` is how many of them the host took, where one thing came after the other.
    """

    what: str
    count: Tally
    seconds: tuple[float, ...] = ()
    aim: Aim = Aim()
    host: float | None = None

    @property
    def median(self) -> float | None:
        return median(self.seconds) if self.seconds else None


class PaceBench(Bench):
    """One who is timed, one who waits for them, and someone whose changes take no time."""

    def __init__(self, host: PacedHost, folder: Path, python: str) -> None:
        super().__init__(host.remote, folder, python)
        self._host = host
        host.pace(self.clone, "bench")
        self._waiter = host.clone(folder / "waiter", "waiter")
        self._other = host.clone(folder / "other", "other", hurried=True)
        self.counts: dict[str, list[Tally]] = {}
        self._round = 0
        self._library = gitlease.open(str(self.clone), layer="library")

    def row(self, name: str) -> Row:
        """The line of one operation: its medians."""
        counts = [astuple(x) for x in self.counts[name]]
        middle = Tally(*(round(median(some)) for some in zip(*counts, strict=True)))
        if name == WAITING:
            return Row(name, middle, (), AIMS[name])
        seconds = tuple(x / 1_000 for x in self.timings[name].ms)
        host = None if name == GRANTED else self._host.seconds_of(middle)
        return Row(name, middle, seconds, AIMS.get(name, Aim()), host)

    def round(self) -> None:
        """Everything once, a bare push before each."""
        self._round += 1
        name = f"F{self._round}"
        self._bare_push()
        self._words("claim", name, "--layer", "alone", name=CURRENT)
        for number in range(OTHERS):
            run_words(self.python, self._other, "claim", f"{name}-{number}", "--layer", "team")
        self._bare_push()
        self._words("claim", name, "--layer", "team", name=STALE)
        self._bare_push()
        self._time(LIBRARY, lambda: self._library.claim(name))
        self._bare_push()
        self._wait_and_release(name)

    def _wait_and_release(self, name: str) -> None:
        line = ("--layer", "line")
        run_words(self.python, self.clone, "claim", name, "--ttl", "1h", *line)
        words = [self.python, "-m", "gitlease", "claim", name, "--wait", "5m", *line]
        env = {**self.env, "PYTHONPATH": str(ROOT)}
        before = self._host.tally("waiter")
        with subprocess.Popen(
            words,
            cwd=self._waiter,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as waiter:
            time.sleep(WAITED)
            self.counts.setdefault(WAITING, []).append(self._host.tally("waiter") - before)
            self._words("release", name, *line, name=RELEASE)
            # What it asks until it is granted is its own, not that of the one who is timed.
            if self._time(GRANTED, waiter.wait, who="waiter"):
                raise SystemExit(f"{GRANTED}: it failed")

    def _time(self, name: str, act: Callable[[], object], who: str = "bench") -> object:
        before = self._host.tally(who)
        result = super()._time(name, act)
        self.counts.setdefault(name, []).append(self._host.tally(who) - before)
        return result


def run_words(python: str, clone: Path, *words: str) -> None:
    """One command of gitlease in a clone."""
    env = clean_env({"PYTHONPATH": str(ROOT)})
    subprocess.run(
        [python, "-m", "gitlease", *words], cwd=clone, env=env, check=True, capture_output=True
    )


def crowd(host: PacedHost, folder: Path, python: str, many: int) -> tuple[float, Tally]:
    """So many clones claim a name each at once: the seconds until the last has it, and the count.

    Each knows the ledger, as after a look at it.
    """
    people = [f"c{number}" for number in range(many)]
    clones = [host.clone(folder / who, who) for who in people]
    run_words(python, clones[0], "claim", "first")
    with ThreadPoolExecutor(many) as threads:
        list(threads.map(lambda clone: run_words(python, clone, "list"), clones))
        before, began = host.tally(), time.perf_counter()
        list(threads.map(lambda x: run_words(python, clones[x], "claim", f"F{x}"), range(many)))
        return time.perf_counter() - began, host.tally() - before


def hour(host: PacedHost, folder: Path, *, others: bool) -> Row:
    """How many pushes the leases of twelve agents of one clone take in an hour, by the clock.

    ``others``: somebody else changes the ledger once a minute.
    """
    # The host's times move the clock, and nobody waits for them.
    jo, kim = (host.clone(folder / who, who, hurried=True) for who in ("jo", "kim"))
    agents = KeptAgents(host, jo, "jo")
    agents.begin(AGENTS, TTL)
    other = gitlease.open(str(kim))
    names = iter(range(HOUR))

    def change() -> None:
        if others:
            other.claim(f"K{next(names)}", any=True)

    count = agents.keep(HOUR, meanwhile=change)
    if agents.lost:
        raise SystemExit(f"an hour of agents: {len(agents.lost)} leases were lost")
    what = f"{AGENTS} agents of one clone, {TTL // 60}m leases, an hour"
    return Row(f"{what}, a team" if others else what, count, (), HOUR_AIM)


@contextmanager
def folder_of(what: str) -> Iterator[Path]:
    """A folder for one part of the run."""
    with tempfile.TemporaryDirectory(prefix=f"gitlease-{what}-") as name:
        yield Path(name)


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """The lines of the table: the bare push first. A first round is not counted."""
    pace = {"connection": options.connection, "pack": options.pack}
    with folder_of("pace") as folder:
        bench = PaceBench(PacedHost(folder / "host", **pace), folder, options.python)
        for number in range(options.rounds + 1):
            bench.round()
            if not number:
                bench.timings.clear()
                bench.counts.clear()
        yield bench.row(BARE)
        for name in AIMS:
            yield bench.row(name)
    lasted, counts = list[float](), list[Tally]()
    for _ in range(options.crowds):
        with folder_of("crowd") as folder:
            host = PacedHost(folder / "host", **pace)
            took, count = crowd(host, folder, options.python, options.clones)
            lasted.append(took)
            counts.append(count)
    if counts:
        middle = Tally(*(round(median(x)) for x in zip(*map(astuple, counts), strict=True)))
        what = f"{options.clones} clones claim a name each at once, the last one"
        yield Row(what, middle, tuple(lasted), CROWD_AIM)
    for others in (False, True) if options.hour else ():
        with folder_of("hour") as folder:
            yield hour(PacedHost(folder / "host", **pace), folder, others=others)


def line_of(row: Row, bare: float, *, judged: bool) -> str:
    """One line of the table as people read it."""
    took = row.median
    timed = " " * 37
    if took is not None:
        host = "" if row.host is None else f"{row.host:.1f}"
        timed = f"{took:>7.2f}{min(row.seconds):>8.2f} -{max(row.seconds):>6.2f}"
        timed += f"{host:>6}{took / bare:>8.2f}"
    told = ""
    if judged and str(row.aim):
        told = f"{row.aim}: " + ("met" if row.aim.is_met(took, bare, row.count) else "MISSED")
    count = row.count
    counted = f"{count.pushes:>7}{count.packs:>7}{count.landed:>8}{count.fetches:>9}"
    return f"{row.what:<50}{timed}{counted}  {told}".rstrip()


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is timed (5)")
    parser.add_argument("--connection", type=float, default=CONNECTION, help="its seconds (0.5)")
    parser.add_argument("--pack", type=float, default=PACK, help="its seconds (0.7)")
    parser.add_argument("--clones", type=int, default=MANY, help="of the crowd (20)")
    parser.add_argument("--crowds", type=int, default=1, help="how often they come (1)")
    parser.add_argument("--no-hour", dest="hour", action="store_false", help="leave the hour out")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the CLI")
    options = parser.parse_args(argv)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    raise_fences()
    rows: list[Row] = []
    if not options.json:
        print(f"{options.connection:g} s for a connection, {options.pack:g} s for a pack; medians")
        print(
            f"{'':<50}{'s':>7}{'from - to':>16}{'host':>6}{'x bare':>8}"
            f"{'pushes':>7}{'packs':>7}{'landed':>8}{'fetches':>9}  aim"
        )
    judged = (options.connection, options.pack, options.clones) == (CONNECTION, PACK, MANY)
    for row in measure(options):
        rows.append(row)
        if not options.json:
            print(line_of(row, rows[0].median or 1.0, judged=judged), flush=True)
    if options.json:
        print(json.dumps({"schema": 1, "rows": [asdict(row) for row in rows]}, indent=2))
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores:
        print(
            f"others are busy here (load {load:.1f}, {cores} cores): look at the shortest times, at"
            " those of the host, and at the counts",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
