"""Ledgers in memory, for tests: one process, which all who speak there share, and no git."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from gitlease.core.errors import GitleaseError
from gitlease.core.lease import Lease, Sighting
from gitlease.core.ledger import Fate, Ledger
from gitlease.core.moves.operations import Event
from gitlease.engine.ports import (
    Cause,
    Change,
    Clock,
    LedgerStep,
    Pending,
    Prepared,
    Snapshot,
    Swapped,
)

if TYPE_CHECKING:
    from gitlease.core.work import WorkPush


class MemoryStore:
    """Ledgers as values. ``failing`` is what everything that would ask a remote raises."""

    moved = False
    place = "memory"
    in_memory = True  # no command can be started that would find it

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.failing: GitleaseError | None = None
        self.warnings: tuple[str, ...] = ()
        self.heads: dict[str, tuple[str, Ledger]] = {}
        self._past: dict[str, list[tuple[str, LedgerStep]]] = {}
        self._seen: dict[tuple[str, int], Sighting] = {}
        self._notices: set[str] = set()
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()

    def known(self, layer: str) -> Snapshot | None:
        return self._snapshot(layer) if layer in self.heads else None

    def fetch(self, layer: str, there: str = "") -> Snapshot:
        self._ask()
        return self._snapshot(layer)

    def confirm(self, layer: str, *, rolled_back: bool = False, another: bool = False) -> Snapshot:
        return self.fetch(layer)

    def accept(self, head: Snapshot, *, another: bool) -> None:
        """There is no other ledger."""

    def doubt(self, head: Snapshot) -> None:
        return None

    def read_elsewhere(self, head: Snapshot) -> str:
        return ""

    def admit(self, head: Snapshot, *, grants: bool) -> bool:
        return True

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        self._ask()
        return {layer: mark for layer in layers if (mark := self.mark(layer))}

    def turn(self, layers: Sequence[str], seconds: float) -> AbstractContextManager[object]:
        return nullcontext()

    def nearby(self, layer: str) -> str:
        return ""

    def mark(self, layer: str) -> str:
        return self.heads[layer][0] if layer in self.heads else ""

    def prepare(self, changes: Sequence[Change], *, append: bool = False) -> Prepared:
        made = {change.base.layer: change for change in changes}
        return Prepared(made, {layer: f"{next(self._numbers):040x}" for layer in made})

    def swap(self, prepared: Prepared, work: WorkPush | None = None) -> Swapped:
        """Nothing is pushed from here: there is no ``work``."""
        self._ask()
        with self._lock:
            applied = all(self.mark(x) == prepared.replaces(x) for x in prepared.changes)
            for layer, change in prepared.changes.items() if applied else ():
                version = prepared.versions[layer]
                self.heads[layer] = (version, change.ledger)
                step = LedgerStep(change.ledger, change.decided.applied.events)
                self._past.setdefault(layer, []).append((version, step))
                for lease in change.ledger.every_lease():
                    self._sighting(lease)
            heads = {layer: self._snapshot(layer) for layer in prepared.changes}
        fate, cause = (Fate.APPLIED, Cause.NONE) if applied else (Fate.LOST, Cause.MOVED)
        return Swapped(fate=fate, heads=heads, cause=cause)

    def pending(self, layer: str) -> tuple[Pending, ...]:
        return ()

    def settle(self, pending: Pending, head: Snapshot) -> Fate:
        return Fate.LOST

    def forget_pending(self, prepared: Prepared) -> None:
        """Nothing is ever pending here."""

    def keep_pending(self, prepared: Prepared) -> None:
        """What is done here is done at once."""

    def deepen(self, layer: str) -> bool:
        return False

    def history(self, layer: str, limit: int, *, older: bool = False) -> tuple[Event, ...]:
        found = [event for _, step in self._past.get(layer, ()) for event in step.events]
        return tuple(found[::-1][:limit])

    def steps(self, before: Snapshot, after: Snapshot, limit: int) -> Sequence[LedgerStep]:
        past = self._past.get(after.layer, [])
        at = {version: number for number, (version, _) in enumerate(past)}
        if before.version not in at or after.version not in at:
            return ()
        found = past[at[before.version] + 1 : at[after.version] + 1]
        return [step for _, step in found] if len(found) <= limit else ()

    def shown(self, layer: str, notices: Iterable[str]) -> frozenset[str]:
        before = frozenset(self._notices)
        self._notices |= set(notices)
        return before

    def _ask(self) -> None:
        if self.failing is not None:
            raise self.failing

    def _snapshot(self, layer: str) -> Snapshot:
        version, ledger = self.heads.get(layer, ("", None))
        return Snapshot(layer, version, ledger, self.clock.now(), seen=self._sighting)

    def _sighting(self, lease: Lease) -> Sighting:
        key = (lease.lease_id, lease.renewals)
        return self._seen.setdefault(key, Sighting(at=self.clock.now(), changed=False))
