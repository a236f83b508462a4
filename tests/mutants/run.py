"""Put faults into gitlease, one after the other, and see that each is caught.

    python tests/mutants/run.py [NAME…]

NAME is the name of a fault or a part of it; without any, all are run. First every net must pass
without a fault. Exit 1 where a fault escapes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mutants.catalogue import MUTANTS, Mutant
from mutants.workshop import TESTS_FAILED, Ran, Workshop


def judged(ran: Ran) -> str:
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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a fault's name")
    mutants, escaped = selected(parser.parse_args().names), 0
    with tempfile.TemporaryDirectory(prefix="gitlease-mutants-") as folder:
        workshop = Workshop(Path(folder))
        whole = workshop.run(list(dict.fromkeys(mutant.net for mutant in mutants)))
        if whole.code != 0:
            raise SystemExit(f"the nets do not pass without a fault:\n{whole.said}")
        for mutant in mutants:
            ran = workshop.run_with(mutant)
            why = judged(ran)
            escaped += bool(why)
            print(f"{mutant.name}: {why or 'caught'}, {ran.seconds:.1f}s", flush=True)
    print(f"{len(mutants) - escaped} of {len(mutants)} faults caught")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
