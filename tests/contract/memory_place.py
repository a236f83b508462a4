"""A place in memory: one remote, and as many clones as a test asks for."""

from __future__ import annotations

from collections import defaultdict

from support.clock import ManualClock
from support.memory import MemoryClone, MemoryRemote, memory_ledger_store

from gitlease.engine import LedgerStore


class MemoryPlace:
    """See ``contract.suite``."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.remote = MemoryRemote()
        self._clones: defaultdict[int, MemoryClone] = defaultdict(MemoryClone)

    def store(self, n: int) -> LedgerStore:
        return memory_ledger_store(self.remote, clock=self.clock, clone=self._clones[n])

    def force(self, layer: str, version: str) -> None:
        self.remote.force(layer, version)

    def refuse_replacements(self) -> None:
        self.remote.refuses_replacements = True
