"""Ledgers in memory, for tests: one process, which all who speak there share, and no git."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from gitlease.kernel.git.objects import SHA1
from gitlease.kernel.ledger.ports import Cause, Change, Clock, Swapped
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.ledger import Fate, Header
from gitlease.kernel.store.git_ledger import RefLedgerStore, StorePlace
from gitlease.kernel.store.object_store import NewObjects
from gitlease.kernel.store.state import StateFolder
from gitlease.kernel.store.storage import Move, Storage
from gitlease.kernel.store.tree import (
    GitRecords,
    LedgerCommit,
    StoreObjects,
    read_state,
    walk,
    write_step,
)


class MemoryStorage(Storage):
    """Ledgers whose states are objects in memory, and the version of each layer's head.

    ``failing`` is what everything that would ask a remote raises.
    """

    def __init__(self) -> None:
        self.failing: GitleaseError | None = None
        self.heads: dict[str, str] = {}
        self.objects = NewObjects(None, SHA1)
        self._lock = threading.Lock()

    def fetch(self, layer: str, known: str = "", *, before_push: bool = False) -> str | None:
        self.ask()
        return self.heads.get(layer)

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        self.ask()
        return {layer: self.heads[layer] for layer in layers if layer in self.heads}

    def read(self, layer: str, version: str) -> tuple[Header, GitRecords]:
        return read_state(StoreObjects(lambda: self.objects), version)

    def history(self, version: str, *, whole: bool = False) -> Iterator[LedgerCommit]:
        return walk(self.objects, version)

    def write(self, change: Change, *, replace_tip: bool) -> str:
        tip = change.base.version
        return write_step(self.objects, change.decided, tip, replace_tip=replace_tip)[0]

    def swap(
        self, moves: Sequence[Move], *, on_start: Callable[[], object] = lambda: None
    ) -> Swapped:
        self.ask()
        on_start()
        with self._lock:
            if any(self.heads.get(move.layer, "") != move.expected for move in moves):
                return Swapped(Fate.UNDECIDED, cause=Cause.MOVED, sent=False)
            self.heads |= {move.layer: move.new for move in moves}
        return Swapped(Fate.APPLIED)

    def watch(self, layer: str) -> str:
        return ""

    def ask(self) -> None:
        """Ask the remote, so to speak."""
        if self.failing is not None:
            raise self.failing


def memory_store(storage: MemoryStorage, folder: str, clock: Clock) -> RefLedgerStore:
    """Ledgers in memory as one clone knows them, with a folder for its state."""
    store = RefLedgerStore(
        StorePlace(storage, lambda x: StateFolder(f"{folder}/{x}"), "memory"), clock
    )
    store.in_memory = True
    return store
