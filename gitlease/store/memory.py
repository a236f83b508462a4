"""Ledgers in memory, for tests: one process, which all who speak there share, and no git."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence

from gitlease.core.errors import GitleaseError
from gitlease.core.ledger import Fate, Ledger
from gitlease.core.work import WorkPush
from gitlease.engine.ports import Cause, Change, Clock, Swapped
from gitlease.git.objects import Absent, check_object, object_id
from gitlease.store.git_ledger import RefLedgerStore, Storage
from gitlease.store.history import LedgerCommit, walk
from gitlease.store.state import StateFolder
from gitlease.store.transport import Move
from gitlease.store.tree import differences, read_ledger, write_step


class MemoryObjects:
    """Objects in git's form, by their ids."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[str, bytes]] = {}

    def read(self, id: str, kind: str, limit: int) -> bytes:
        if id not in self._objects:
            raise Absent
        found, data = self._objects[id]
        check_object(found == kind, len(data), kind, limit)
        return data

    def write(self, kind: str, data: bytes) -> str:
        id, _ = object_id(kind, data, 20)
        self._objects[id] = kind, data
        return id


class MemoryStorage(Storage):
    """Ledgers whose states are objects in memory, and the version of each layer's head.

    ``failing`` is what everything that would ask a remote raises.
    """

    def __init__(self) -> None:
        self.failing: GitleaseError | None = None
        self.heads: dict[str, str] = {}
        self.objects = MemoryObjects()
        self._lock = threading.Lock()

    def fetch(self, layer: str, known: str = "") -> str | None:
        self.ask()
        return self.heads.get(layer)

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        self.ask()
        return {layer: self.heads[layer] for layer in layers if layer in self.heads}

    def read(self, version: str) -> Ledger:
        return read_ledger(self.objects, version)

    def past(self, version: str) -> Iterator[LedgerCommit]:
        return walk(self.objects, version)

    def differences(self, old: Ledger | None, new: Ledger) -> Sequence[tuple[str, bool | None]]:
        return differences(old, new)

    def write(self, change: Change, *, replace_tip: bool) -> str:
        tip = change.base.version
        return write_step(self.objects, change.decided, tip, replace_tip=replace_tip)[0]

    def swap(self, moves: Sequence[Move], work: WorkPush | None = None) -> Swapped:
        """Nothing is pushed from here: there is no ``work``."""
        self.ask()
        with self._lock:
            if any(self.heads.get(move.layer, "") != move.expected for move in moves):
                return Swapped(Fate.UNDECIDED, cause=Cause.MOVED, sent=False)
            self.heads |= {move.layer: move.new for move in moves}
        return Swapped(Fate.APPLIED)

    def ask(self) -> None:
        """Ask the remote, so to speak."""
        if self.failing is not None:
            raise self.failing


def memory_store(storage: MemoryStorage, folder: str, clock: Clock) -> RefLedgerStore:
    """Ledgers in memory as one clone knows them, with a folder for its state."""
    store = RefLedgerStore(storage, lambda x: StateFolder(f"{folder}/{x}"), clock, "memory")
    store.in_memory = True
    return store
