"""Real gitlease on real git under real faults, for as long as wanted; then all of it is judged.

    python tests/soak.py --minutes 15 --transport http --workers 2 --seed 7

Workers in several clones of one repository call commands, all at once, while they and the servers
are killed and stopped, connections cut and delayed, requests repeated, disks filled, locks planted,
clocks wrong, and repositories packed. In the end every fault is taken away, every place must work
without repair, and the ledger's history and all answers must agree. ``--keep`` keeps the
repositories; the journal has a line of JSON for each call and each fault. Exit 1: violations.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger_checker.answers import check_answers, load_calls, read_history
from support.commands import run_program
from support.fences import clean_env
from support.remotes import new_bare
from support.soak.chaos import Chaos
from support.soak.client import ROOT, Client, Journal
from support.soak.disk import Disk
from support.soak.gateway import TRANSPORTS, Gateway, Transport
from support.soak.places import POLICY, REF, USERS, Place, make_places, seed_tasks


@dataclass(frozen=True)
class Report:
    """What a soak did, and what was wrong."""

    transport: Transport
    seed: int
    minutes: float
    counts: Mapping[str, int]
    by_what: Mapping[str, str]
    violations: tuple[str, ...]

    def text(self) -> str:
        faults = {k: v for k, v in self.counts.items() if k not in ("operations", "commits")}
        return json.dumps(
            {
                "transport": self.transport,
                "seed": self.seed,
                "minutes": round(self.minutes, 1),
                "operations": self.counts["operations"],
                "commits": self.counts["commits"],
                "kills": sum(v for k, v in faults.items() if "killed" in k and "lock" not in k),
                "faults": sum(faults.values()),
                "by_kind": dict(sorted(faults.items())),
                "by_what": dict(self.by_what),
                "violations": list(self.violations),
            },
            indent=1,
        )


def soak(
    transport: Transport,
    *,
    minutes: float,
    workers: int,
    seed: int,
    folder: Path,
    log: Path,
    keep: bool = False,
) -> Report:
    """Run a soak in an empty folder; the journal goes to ``log``."""
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as file, ExitStack() as stack:
        journal = Journal(file)
        small = stack.enter_context(Disk(folder / "small-disk", keep=keep))
        servers_disk = stack.enter_context(Disk(folder / "server-disk", keep=keep))
        bare = new_bare(servers_disk.folder / "origin.git")
        gateway = stack.enter_context(Gateway(transport, bare, folder / "server", USERS))
        seed_tasks(folder, gateway)
        places = make_places(folder, gateway, small)
        _set_policy(places[0])
        chaos = Chaos(seed, gateway, places, (small, servers_disk), journal)
        tips = _run(minutes, workers, seed, places, chaos, journal, bare)
        chaos.calm()
        for place in places:
            _must_work(place, journal)
        file.flush()
        journal.wrong += judged(bare, log, tips)
        commits = _git(bare, "rev-list", "--count", REF)
        journal.counts["commits"] = int(commits)
        by_what = {"full disks": f"{small.how} (client), {servers_disk.how} (server)"}
        took = (time.monotonic() - started) / 60
        return Report(transport, seed, took, journal.counts, by_what, tuple(journal.wrong))


def judged(bare: Path, log: Path, tips: Iterable[str] = ()) -> list[str]:
    """What is wrong with a ledger's history, and where the calls of a journal disagree with it."""
    history = read_history(bare, REF, tips)
    assert history.verified is not None
    wrong = [f"{x.commit}: {x.rule}: {x.message}" for x in history.verified.broken]
    told = check_answers(history, load_calls(log))
    return wrong + [f"{x.client}: {x.rule}: {x.message}" for x in told]


def _run(
    minutes: float,
    workers: int,
    seed: int,
    places: list[Place],
    chaos: Chaos,
    journal: Journal,
    bare: Path,
) -> list[str]:
    """Let everything loose; the tips of the ledger that were seen meanwhile."""
    begun = time.monotonic()
    end, half = begun + minutes * 60, begun + minutes * 30

    def done() -> bool:
        return time.monotonic() > end

    clients = [Client(number, seed, places, journal) for number in range(workers)]
    threads = [threading.Thread(target=client.work, args=(done,)) for client in clients]
    threads.append(
        threading.Thread(
            target=chaos.rage,
            args=(done,),
            kwargs={"hook_after": lambda: time.monotonic() > half},
        )
    )
    for thread in threads:
        thread.start()
    tips: dict[str, None] = {}
    while any(thread.is_alive() for thread in threads):
        if tip := _git(bare, "rev-parse", "-q", "--verify", REF):
            tips[tip] = None
        threads[0].join(1)
        time.sleep(0 if threads[0].is_alive() else 0.2)
    return list(tips)


def _set_policy(place: Place) -> None:
    for key, value in POLICY.items():
        done = _gitlease(place, "config", "--ledger", key, value)
        if done.returncode:
            raise RuntimeError(f"the policy cannot be set: {done.stderr}")


def _must_work(place: Place, journal: Journal) -> None:
    """No repair is needed: after all that was done to it, a place claims and gives back."""
    name = f"after-{place.name}"
    for words in (["status"], ["claim", name, "--any"], ["renew", name], ["release", name]):
        entry: dict[str, Any] = {"start": time.time()}
        done = _gitlease(place, "--json", *words, "--session", "last")
        answer = json.loads(done.stdout) if done.stdout.startswith("{") else None
        if done.returncode:
            said = f"{' '.join(words)}: {done.stdout}{done.stderr}"
            journal.violation(f"{place.name} does not work any more: {said}")
            return
        entry |= {"end": time.time(), "answer": answer, "verb": words[0], "exit": done.returncode}
        entry |= {"client": f"{place.holder}/last", "holder": place.holder, "session": "last"}
        journal.call({**entry, "resources": [name], "place": place.name})


def _gitlease(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    return run_program(
        [sys.executable, "-m", "gitlease", *words],
        place.tree,
        {**place.env, "PYTHONPATH": str(ROOT)},
    )


def _git(bare: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=bare, env=clean_env(), capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True)
        yield Path(os.path.realpath(keep))
        return
    with tempfile.TemporaryDirectory(prefix="gitlease-soak-", ignore_cleanup_errors=True) as made:
        yield Path(os.path.realpath(made))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=3.0, help="how long (default: 3)")
    parser.add_argument("--transport", choices=TRANSPORTS, default="path")
    parser.add_argument("--workers", type=int, default=4, help="how many at once (default: 4)")
    parser.add_argument("--seed", type=int, default=1, help="what all choices come from")
    parser.add_argument("--journal", type=Path, default=None, help="a file (default: soak-….jsonl)")
    parser.add_argument("--keep", type=Path, default=None, help="a new folder for the repositories")
    args = parser.parse_args()
    if args.minutes <= 0 or args.workers < 1:
        parser.error("--minutes and --workers must be positive")
    journal = args.journal or Path(f"soak-{args.transport}-{args.seed}.jsonl")
    with _folder(args.keep) as folder:
        report = soak(
            args.transport,
            minutes=args.minutes,
            workers=args.workers,
            seed=args.seed,
            folder=folder,
            log=journal,
            keep=args.keep is not None,
        )
    print(report.text())
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
