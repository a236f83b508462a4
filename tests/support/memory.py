"""The ledger store in memory: for tests of the rules, and for simulation.

``MemoryRemote`` is the server that is shared, ``MemoryClone`` what one clone keeps on its disk, and
``memory_ledger_store`` makes one process of that clone. Everything but refs, objects and files is
the very code of the git store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from gitlease.core import Event, Ledger, WorkPush
from gitlease.engine import Change, Clock, Pending
from gitlease.store import Heads, Known, Move, Pushed, RefLedgerStore, StateFolder, lease_file
from support.memory_remote import Broken, Fault, MemoryRemote, Step

__all__ = [
    "Broken",
    "Fault",
    "MemoryClone",
    "MemoryRemote",
    "Move",
    "Step",
    "memory_ledger_store",
]


class MemoryState(StateFolder):
    """What a clone keeps of one ledger: a StateFolder without the folder."""

    def __init__(self) -> None:
        super().__init__("")
        self._known: Known | None = None
        self._shown: dict[str, None] = {}
        self._pending: dict[str, Pending] = {}

    def turn(self, seconds: float) -> AbstractContextManager[object]:
        return nullcontext()  # whatever holds with turns holds without

    def load(self) -> Known | None:
        return self._known

    def save(self, known: Known) -> None:
        self._known = known.joined(self._known)

    def forget(self) -> None:
        self._known = None

    def mark(self) -> str:
        return self._known.version if self._known else ""

    def shown(self, notices: Iterable[str]) -> frozenset[str]:
        before = frozenset(self._shown)
        self._shown |= dict.fromkeys(notices)
        return before

    def add_pending(self, pending: Pending, *, abandoned: bool = False) -> None:
        self._pending[pending.operations[0]] = pending

    def remove_pending(self, pending: Pending) -> None:
        self._pending.pop(pending.operations[0], None)

    def pending(self) -> list[Pending]:
        return list(self._pending.values())

    unsettled = pending


class MemoryClone:
    """What one clone keeps beside the ledgers, whatever becomes of its processes."""

    def __init__(self, make: Callable[[], MemoryState] = MemoryState) -> None:
        self._make = make
        self._states: dict[str, MemoryState] = {}

    def state(self, layer: str) -> MemoryState:
        if layer not in self._states:
            self._states[layer] = self._make()
        return self._states[layer]


class MemoryRefs:
    """The refs of a MemoryRemote; its versions need no fetching to be read."""

    def __init__(self, remote: MemoryRemote) -> None:
        self._remote = remote

    def read(self, version: str) -> Ledger:
        return self._remote.ledger(version)

    def differences(self, old: Ledger | None, new: Ledger) -> Sequence[tuple[str, bool | None]]:
        before = {} if old is None else {lease.key: lease for lease in old.every_lease()}
        after = {lease.key: lease for lease in new.every_lease()}
        changed: list[tuple[str, bool | None]] = [
            (lease_file(lease), None) for key, lease in before.items() if key not in after
        ]
        for key, lease in after.items():
            if before.get(key) != lease:
                changed.append((lease_file(lease), old is None or key in before))
        return changed

    def decision(self, version: str) -> str:
        step = self._remote.steps[version]
        return step.parent if step.renewal and step.parent else version

    def first_after(self, decision: str, version: str) -> str | None:
        after, at = version, version
        while at and at != decision:
            after, at = at, self._remote.steps[at].parent
        return after if at else None

    def fetch(self, layer: str, *, first: bool = False) -> str | None:
        return self._remote.fetch(layer)

    def deepen(self, layer: str) -> bool:
        return False

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        return self._remote.peek(layers)

    def push(self, moves: Sequence[Move], work: WorkPush | None = None) -> Pushed:
        return self._remote.push(moves, () if work is None else work.refs)

    def remote_refs(self, work: WorkPush) -> Mapping[str, str]:
        return self._remote.work_at([x.ref for x in work.refs])

    def commit(self, change: Change, *, replace_tip: bool) -> str:
        tip = change.base.version
        base = self._remote.steps[tip] if tip else Step(header=change.ledger.header)
        after = base.after(change, base.parent if replace_tip else tip)
        return self._remote.keep(after, base=tip)

    def events(self, version: str, limit: int) -> tuple[Event, ...]:
        found = list[Event]()
        while version and len(found) < limit:
            step = self._remote.steps[version]
            found += reversed(step.events)
            version = step.parent
        return tuple(found[:limit])

    def steps(
        self, earlier: str, version: str, limit: int
    ) -> tuple[tuple[str, tuple[Event, ...]], ...]:
        ends = {earlier, self.decision(earlier)} if earlier else set[str]()
        found = list[tuple[str, tuple[Event, ...]]]()
        while version and version not in ends and len(found) < limit:
            step = self._remote.steps[version]
            found.append((version, tuple(step.events)))
            version = step.parent
        return tuple(reversed(found)) if version in ends or not earlier else ()

    def operations(self, earlier: str, version: str) -> frozenset[str] | None:
        ends, found = {earlier, self.decision(earlier) if earlier else ""}, set[str]()
        while version and version not in ends:
            step = self._remote.steps[version]
            ring = step.header.ring
            found |= {x.operation for x in ring if x.revision == step.header.revision}
            version = step.parent
        return frozenset(found) if version in ends else None

    def announce(self, layer: str) -> None:
        """There is nobody nearby."""

    def nearby(self, layer: str) -> str:
        return ""

    def keep(self, layer: str, version: str) -> None:
        """Nothing is ever lost here."""

    def mend(self, *, anew: bool) -> None:
        """Nothing is ever damaged here."""


def memory_ledger_store(
    remote: MemoryRemote,
    *,
    clock: Clock,
    clone: MemoryClone | None = None,
    place: str = "memory",
    warnings: tuple[str, ...] = (),
) -> RefLedgerStore:
    """Ledgers on a MemoryRemote, as one process of a clone knows them."""
    refs = MemoryRefs(remote)
    heads = Heads(refs, (clone or MemoryClone()).state, clock, place)
    return RefLedgerStore(refs, heads, warnings=warnings)
