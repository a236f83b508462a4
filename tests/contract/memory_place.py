"""A place in memory: one remote, and as many clones as a test asks for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from support.clock import ManualClock
from support.memory import MemoryClone

from gitlease.kernel.ledger.ports import Cause, LedgerStore, Swapped
from gitlease.kernel.rules.ledger import Fate
from gitlease.kernel.store.git_ledger import RefLedgerStore, StorePlace
from gitlease.kernel.store.memory import MemoryStorage
from gitlease.kernel.store.storage import Move


class Remote(MemoryStorage):
    """May refuse whatever does not append."""

    only_appends = False

    def swap(
        self, moves: Sequence[Move], *, on_start: Callable[[], object] = lambda: None
    ) -> Swapped:
        if self.only_appends and any(next(self.history(x.new)).before != x.expected for x in moves):
            return Swapped(Fate.UNDECIDED, cause=Cause.REFUSED, detail="only appends here")
        return super().swap(moves, on_start=on_start)


class MemoryPlace:
    """See ``contract.suite``."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.remote = Remote()
        self._clones: defaultdict[int, MemoryClone] = defaultdict(MemoryClone)

    def store(self, n: int) -> LedgerStore:
        return RefLedgerStore(StorePlace(self.remote, self._clones[n].state, "memory"), self.clock)

    def force(self, layer: str, version: str) -> None:
        self.remote.heads.pop(layer, None)
        if version:
            self.remote.heads[layer] = version

    def refuse_replacements(self) -> None:
        self.remote.only_appends = True
