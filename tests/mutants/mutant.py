"""A fault on purpose: one place of gitlease's source, changed so that a promise is broken."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault, the promise that it breaks, and the net that must catch it.

    ``file`` is relative to ``gitlease/``; ``old`` stands in it exactly once. ``promise`` is one of
    S1 to S10 and L1 to L3 of the protocol. ``net`` is what pytest is told to run: it passes as the
    source is, and fails with the fault.
    """

    name: str
    file: str
    old: str
    new: str
    promise: str
    net: str

    @property
    def path(self) -> str:
        """Its file, relative to the root."""
        return f"gitlease/{self.file}"

    def applied(self, source: str) -> str:
        """The source of its file with the fault. ValueError where it cannot be put in."""
        count = source.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: {self.path} has the old text {count} times, not once")
        changed = source.replace(self.old, self.new)
        if changed == source:
            raise ValueError(f"{self.name}: it changes nothing")
        compile(changed, self.path, "exec")
        return changed
