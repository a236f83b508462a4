"""Put faults into gitlease, one after the other, and see that each is caught.

    python tests/mutants/run.py [NAME…] [--table FILE] [--journal FILE]

NAME is the name of a fault or a part of it; without any, all are run. First every net must pass
without a fault. With a journal, what it has is not run again. Exit 1 where a fault escapes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mutants.catalogue import MUTANTS
from mutants.mutant import Mutant
from mutants.workshop import TESTS_FAILED, Ran, Workshop

Entry = dict[str, Any]

HEAD = """\
# Faults on purpose, and what catches them

Each fault is one place of `gitlease/`, changed so that a promise of the protocol is broken (S1 to
S10, L1 to L3). The net is the test that fails then; it passes without the fault. Written by

    python tests/mutants/run.py --table tests/mutants/TABLE.md

The seconds are those of one net on a loaded machine with two cores, with the start of pytest in
them. The slow tests try a sample of the faults each time.

| fault | in | breaks | caught by | seconds |
| --- | --- | --- | --- | --- |
"""


def judged(mutant: Mutant, ran: Ran) -> str:
    """Why a fault was not caught; ``""`` where it was."""
    if ran.code == TESTS_FAILED:
        return ""
    if ran.code is None:
        return f"the net took more than {ran.seconds:.0f}s"
    return "no test failed" if ran.code == 0 else f"pytest exited with {ran.code}: {ran.said}"


def selected(words: Sequence[str]) -> list[Mutant]:
    """The faults whose names have one of these words in them. SystemExit for a word of none."""
    for word in words:
        if not any(word in mutant.name for mutant in MUTANTS):
            raise SystemExit(f"no fault has {word!r} in its name: see tests/mutants/TABLE.md")
    return [x for x in MUTANTS if not words or any(word in x.name for word in words)]


def table(entries: Iterable[Entry]) -> str:
    """The table of faults that were caught, as Markdown."""
    rows = (
        f"| {x['name']} | `{x['file']}` | {x['promise']} | `{x['net'].removeprefix('tests/')}` "
        f"| {x['seconds']:.0f} |\n"
        for x in entries
    )
    return HEAD + "".join(rows)


def described(mutant: Mutant) -> Entry:
    """What a journal and the table say of a fault, whatever became of it."""
    return {
        "name": mutant.name,
        "file": mutant.file,
        "old": mutant.old,
        "new": mutant.new,
        "promise": mutant.promise,
        "net": mutant.net,
    }


def read_journal(file: Path | None) -> list[Entry]:
    """The faults that were caught before; a line that a kill cut off is run again."""
    found: list[Entry] = []
    if file is None or not file.exists():
        return found
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def tried(mutants: Sequence[Mutant], journal: Path | None, folder: Path) -> tuple[list[Entry], int]:
    """What was caught, in the order of the faults, and how many were not."""
    before = {
        entry["name"]: entry
        for entry in read_journal(journal)
        if any(described(x).items() <= entry.items() for x in mutants)
    }
    rest = [mutant for mutant in mutants if mutant.name not in before]
    escaped = 0
    if rest:
        workshop = Workshop(folder)
        nets = list(dict.fromkeys(mutant.net for mutant in rest))
        whole = workshop.run(nets)
        if whole.code != 0:
            raise SystemExit(f"the nets do not pass without a fault:\n{whole.said}")
        for mutant in rest:
            ran = workshop.run_with(mutant)
            why = judged(mutant, ran)
            print(f"{mutant.name}: {why or 'caught'}, {ran.seconds:.1f}s", flush=True)
            if why:
                escaped += 1
                continue
            entry = described(mutant) | {"seconds": round(ran.seconds, 1)}
            before[mutant.name] = entry
            if journal is not None:
                with journal.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(entry) + "\n")
    return [before[x.name] for x in mutants if x.name in before], escaped


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a fault's name")
    parser.add_argument("--table", type=Path, help="write what was caught, and by what, here")
    parser.add_argument("--journal", type=Path, help="go on where this file ends")
    given = parser.parse_args()
    mutants = selected(given.names)
    with tempfile.TemporaryDirectory(prefix="gitlease-mutants-") as folder:
        caught, escaped = tried(mutants, given.journal, Path(folder))
    if given.table is not None:
        given.table.write_text(table(caught), encoding="utf-8")
    print(f"{len(caught)} of {len(mutants)} faults caught")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
