"""Faults on purpose: one place of gitlease's source each, changed so that a promise is broken.

``TABLE.md`` has each with its file, promise and net, in their order; what is changed stands under
the same name in the modules beside this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mutants.ledgers import LEDGERS
from mutants.outside import OUTSIDE
from mutants.rules import RULES
from mutants.survivors import SURVIVORS

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("TABLE.md")
CHANGES = {**RULES, **LEDGERS, **OUTSIDE, **SURVIVORS}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault, the promise that it breaks, and the net that must catch it.

    ``old`` stands in its file exactly once. ``promise`` is one of S1 to S10 and L1 to L3 of the
    protocol. ``net`` is what pytest is told to run: it passes as the source is, and fails with the
    fault.
    """

    name: str
    file: str
    promise: str
    net: str
    old: str
    new: str

    def applied(self, source: str) -> str:
        """The source of its file with the fault. ValueError where it cannot be put in."""
        count = source.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: {self.file} has the old text {count} times, not once")
        changed = source.replace(self.old, self.new)
        compile(changed, self.file, "exec")
        return changed


def _rows() -> list[Mutant]:
    rows = [
        x.strip("| ").split(" | ") for x in TABLE.read_text("utf-8").splitlines() if x[:1] == "|"
    ]
    return [
        Mutant(
            name, f"gitlease/{file.strip('`')}", promise, f"tests/{net.strip('`')}", *CHANGES[name]
        )
        for name, file, promise, net in rows[2:]
    ]


MUTANTS = _rows()
