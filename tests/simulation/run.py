"""Run many lives of the simulation: ``python tests/simulation/run.py --seeds 0-999``.

Each seed adds one line of JSON to the journal: operations, faults by kind, outcomes, states. A run
goes on where its journal ends, and stops at the first violation, with the seed and the rule.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ledger_checker.moves import Broken
from simulation.lives import life

Entry = dict[str, Any]


def play(seed: int, steps: int = 400) -> Entry:
    """One life, as its line in the journal; a violation has ``rule`` and ``violation`` besides.

    ``states`` counts the versions of the ledger, ``situations`` each verb with its outcome, and
    ``ties`` what was bound, unbound, kept by an edge, and claimed as abandoned.
    """
    began = time.process_time()
    gc.disable()  # a life makes no cycles of any size until it ends
    try:
        world = life(seed, steps=steps)
    except Broken as broken:
        return {"seed": seed, "rule": broken.rule, "violation": str(broken)}
    except Exception as error:
        return {"seed": seed, "rule": "S8", "violation": f"{type(error).__name__}: {error}"}
    finally:
        gc.enable()
    return {
        "seed": seed,
        "operations": world.done,
        "requests": len(world.remote.requests),
        "states": len(world.remote.steps),
        "held": world.checker.held,
        "faults": dict(sorted(world.faults.items())),
        "ties": dict(sorted(world.checker.ties.counted.items())),
        "situations": dict(sorted(world.counted.items())),
        "cpu": round(time.process_time() - began, 2),
    }


def read_journal(file: Path | None) -> list[Entry]:
    """The whole lines of a journal; a line that a kill cut off is played again."""
    found: list[Entry] = []
    if file is None or not file.exists():
        return found
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("seed"), int):
            found.append(entry)
    return found


def summary(entries: Iterable[Entry]) -> Entry:
    """What several lives came to together."""
    total: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    ties: Counter[str] = Counter()
    situations: Counter[str] = Counter()
    for entry in entries:
        total["seeds"] += 1
        for key in ("operations", "requests", "states", "held", "cpu"):
            total[key] += entry.get(key, 0)
        faults.update(entry.get("faults", {}))
        ties.update(entry.get("ties", {}))
        situations.update(entry.get("situations", {}))
    return {
        **total,
        "cpu": round(total["cpu"], 1),
        "faults": dict(sorted(faults.items())),
        "ties": dict(sorted(ties.items())),
        "situations": len(situations),
    }


def played(seeds: list[int], jobs: int) -> Iterator[Entry]:
    """The lives of seeds, on so many cores, as each comes to its end."""
    if jobs == 1:
        yield from map(play, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(play, seeds)


def main(words: list[str] | None = None) -> int:
    asked = _parser().parse_args(words)
    before = read_journal(asked.journal)
    if broken := next((entry for entry in before if "rule" in entry), None):
        return _stop(broken)
    done = {entry["seed"] for entry in before}
    first, last = asked.seeds
    entries = [entry for entry in before if first <= entry["seed"] <= last]
    for entry in played([seed for seed in range(first, last + 1) if seed not in done], asked.jobs):
        entries.append(entry)
        if asked.journal is not None:
            with asked.journal.open("a", encoding="utf-8") as journal:
                journal.write(json.dumps(entry) + "\n")
        if "rule" in entry:
            return _stop(entry)
    print(json.dumps(summary(entries), indent=2))
    return 0


def _stop(entry: Entry) -> int:
    print(f"seed {entry['seed']}: {entry['violation']}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seeds", required=True, type=_seeds, metavar="A-B", help="the first and the last seed"
    )
    parser.add_argument("--journal", type=Path, metavar="FILE", help="a line of JSON for each seed")
    parser.add_argument("--jobs", type=_number, default=1, metavar="N", help="cores to use")
    return parser


def _seeds(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) < int(first):
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds, as 0-999 is")
    return int(first), int(last or first)


def _number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 1 and 64")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
