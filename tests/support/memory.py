"""The ledger store in memory, with every kind of fault: for tests of the rules, and for simulation.

``MemoryRemote`` is the server that is shared, ``MemoryClone`` what one clone keeps on its disk, and
``memory_ledger_store`` makes one process of that clone. Everything but refs, objects and files is
the very code of the git store.

    remote = MemoryRemote()
    remote.pushes.append(Fault.UNANSWERED)      # what becomes of the next push
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from itertools import takewhile
from typing import Any, NamedTuple, TypeVar

from gitlease.guard.notes import IdleMarker
from gitlease.guard.reports import CachedLedger, Unreachable
from gitlease.kernel.ledger.ports import Cause, Change, Clock, Pending, PushRecord, Swapped
from gitlease.kernel.rules.errors import Denied, Invalid, Unavailable
from gitlease.kernel.rules.frozen import dataclass, field, replace
from gitlease.kernel.rules.lease import Lease, LeaseKey, person_key
from gitlease.kernel.rules.ledger import Damage, Fate, Header, Ledger, Note, Notice, Ticket
from gitlease.kernel.rules.moves.operations import Event
from gitlease.kernel.rules.resources import Resource
from gitlease.kernel.rules.work import WorkPush, WorkRef
from gitlease.kernel.store.git_ledger import RefLedgerStore, StorePlace
from gitlease.kernel.store.records import lease_file
from gitlease.kernel.store.state import Known, StateFolder
from gitlease.kernel.store.storage import Move, SharedWithWork, Storage, StoredRecords

T = TypeVar("T")


class Fault(Enum):
    """What becomes of one request. A fetch knows only NONE, REFUSED and UNREACHABLE."""

    NONE = "it is carried out and answered"
    LOST = "it is lost on the way, and nobody answers"
    UNANSWERED = "it is carried out, and the answer is lost"
    LATE = "nobody answers, and it is carried out after some more requests (`late_by`)"
    REFUSED = "the server refuses it"
    BUSY = "the ref is locked by another push"
    UNREACHABLE = "it never leaves this machine"


@dataclass(frozen=True)
class Broken:
    """A record that cannot be read: why, whose it is, and whether it would cover paths."""

    problem: str
    resource: Resource | None = None
    paths: bool = False


@dataclass(frozen=True)
class Step:
    """One version of a ledger: the records whole, and what its step was."""

    header: Header
    leases: Mapping[LeaseKey, Lease] = field(default_factory=dict)
    notes: Mapping[str, tuple[Note, ...]] = field(default_factory=dict)
    notices: Mapping[str, tuple[Notice, ...]] = field(default_factory=dict)
    broken: Mapping[str, Broken] = field(default_factory=dict)
    tickets: Mapping[str, tuple[Ticket, ...]] = field(default_factory=dict)
    parent: str = ""
    renewal: bool = False
    events: tuple[Event, ...] = ()

    def after(self, change: Change, parent: str) -> Step:
        """This version with a change on top."""
        changes = change.ledger.changes
        leases = {**self.leases}
        for key, (_, lease) in changes.leases.items():
            leases.pop(key, None)
            if lease is not None:
                leases[key] = lease
        return Step(
            header=change.ledger.header,
            leases=leases,
            notes=_kept(self.notes, changes.notes),
            notices=_kept(self.notices, changes.notices),
            broken={k: v for k, v in self.broken.items() if k not in changes.dropped},
            tickets=_kept(self.tickets, changes.tickets),
            parent=parent,
            renewal=change.renewal,
            events=change.decided.applied.events,
        )


class ComparedRecords(StoredRecords):
    """Records that are looked through one by one."""

    def record_at(self, file: str) -> Lease | Damage:
        found = (x for x in self.every() if isinstance(x, Lease) and lease_file(x) == file)
        return next(found, Damage(file, "missing"))

    def changed_since(self, before: StoredRecords | None) -> list[tuple[str, bool | None]]:
        old, new = (
            {x.key: x for x in ([] if y is None else y.every()) if isinstance(x, Lease)}
            for y in (before, self)
        )
        ended = ((lease_file(x), None) for key, x in old.items() if key not in new)
        changed = (
            (lease_file(x), before is None or key in old)
            for key, x in new.items()
            if old.get(key) != x
        )
        return [*ended, *changed]


class MemoryRecords(ComparedRecords):
    """The records of one version: the store's side of a Ledger."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def of(self, resource: Resource) -> list[Lease]:
        self._raise_broken(lambda broken: broken.resource == resource)
        return [lease for key, lease in self._step.leases.items() if key[0] == resource.key]

    def with_paths(self) -> list[Lease]:
        self._raise_broken(lambda broken: broken.paths)
        return [lease for lease in self._step.leases.values() if lease.patterns]

    def every(self) -> Iterator[Lease | Damage]:
        yield from self._step.leases.values()
        yield from (Damage(file, broken.problem) for file, broken in self._step.broken.items())

    def _raise_broken(self, wanted: Callable[[Broken], bool]) -> None:
        for file, broken in self._step.broken.items():
            if wanted(broken):
                raise Invalid(f"the ledger's record {file} is damaged: {broken.problem}")

    def notes(self, resource: Resource) -> tuple[Note, ...]:
        return self._step.notes.get(resource.key, ())

    def notices(self, holder: str) -> tuple[Notice, ...]:
        return self._step.notices.get(person_key(holder), ())

    def tickets(self, resource: Resource) -> tuple[Ticket, ...]:
        return self._step.tickets.get(resource.key, ())

    def every_ticket(self) -> Iterator[Ticket]:
        return (t for tickets in self._step.tickets.values() for t in tickets)


def _kept(
    before: Mapping[str, tuple[T, ...]], changes: Mapping[str, tuple[object, tuple[T, ...]]]
) -> Mapping[str, tuple[T, ...]]:
    """What there is of each owner after a change; of whom there is nothing is not in it."""
    if not changes:
        return before
    after = {**before, **{key: items for key, (_, items) in changes.items()}}
    return {key: items for key, items in after.items() if items}


def _said(step: Step, base: Step) -> Hashable:
    """What a step says, as far as it is not as in its base."""
    owned = (
        (step.leases, base.leases),
        (step.notes, base.notes),
        (step.notices, base.notices),
        (step.tickets, base.tickets),
        (step.broken, base.broken),
    )
    changed = tuple(() if new is old else _differing(new, old) for new, old in owned)
    header = step.header
    fresh = tuple(takewhile(lambda e: e.revision == header.revision, reversed(header.ring)))
    return step.parent, step.renewal, replace(header, ring=fresh), changed, step.events


def _differing(new: Mapping[Any, object], old: Mapping[Any, object]) -> frozenset[object]:
    gone = ((key, None) for key in old if key not in new)
    return frozenset([*gone, *((k, v) for k, v in new.items() if old.get(k) is not v)])


class MemoryRemote:
    """A server with one ref a layer, all moved by compare-and-swap, several all or none.

    ``pushes`` and ``fetches`` script the faults of the next requests. ``during`` is called in the
    middle of every request, with its kind: time may pass there, and others may act.
    """

    def __init__(self) -> None:
        self.refs: dict[str, str] = {}
        self.work: dict[str, str] = {}  # the branches and tags beside them
        self.steps: dict[str, Step] = {}
        self.pushes: deque[Fault] = deque()
        self.fetches: deque[Fault] = deque()
        self.late_by = 1
        self.during: Callable[[str], None] = lambda _kind: None
        self.under_way: Callable[[], None] = lambda: None  # called once a push has begun
        self.requests: list[str] = []
        self.refuses_replacements = False
        self._late: list[tuple[int, tuple[Move, ...], tuple[WorkRef, ...]]] = []
        self._versions: dict[Hashable, str] = {}

    # --- what clients ask -------------------------------------------------------------------------
    def fetch(self, layer: str) -> str | None:
        """The version at the ref, None when there is none. Raises Unavailable and Denied."""
        return self._answer("fetch", layer)

    def peek(self, layers: Sequence[str]) -> dict[str, str]:
        """The versions at refs, and nothing of what they say. It fails as fetches do."""
        found = {layers[0]: self._answer("peek", layers[0])}
        found |= {layer: self.refs.get(layer) for layer in layers[1:]}
        return {layer: version for layer, version in found.items() if version}

    def push(
        self,
        moves: Sequence[Move],
        work: Sequence[WorkRef] = (),
        on_start: Callable[[], object] = lambda: None,
    ) -> Swapped:
        """Move refs, as far as the answer tells: what was lost is for reading to find out."""
        fault = self._begin("push", self.pushes)
        on_start()
        self.under_way()
        nothing = Swapped(fate=Fate.UNDECIDED, cause=Cause.UNREACHABLE, detail="no answer")
        if fault is Fault.UNREACHABLE:
            return replace(nothing, sent=False, detail="no connection")
        if fault is Fault.REFUSED or (self.refuses_replacements and self._replaces(moves)):
            return replace(nothing, cause=Cause.REFUSED, detail="hook declined")
        if fault is Fault.BUSY:
            return replace(nothing, cause=Cause.BUSY, detail="cannot lock ref")
        if fault is not Fault.LOST and (other := self._work_moved(work)):
            return replace(nothing, cause=Cause.WORK, sent=False, detail=f"{other}: fetch first")
        if fault is Fault.LATE:
            at = len(self.requests) + self.late_by
            self._late.append((at, tuple(moves), tuple(work)))
        if fault in (Fault.LATE, Fault.LOST):
            return nothing
        moved = self._move_all(moves, work)
        if fault is Fault.UNANSWERED:
            return nothing
        return Swapped(fate=Fate.APPLIED) if moved else replace(nothing, cause=Cause.MOVED)

    def work_at(self, refs: Sequence[str]) -> dict[str, str]:
        """What branches and tags are. Raises Unavailable."""
        if self._begin("look", self.fetches) is not Fault.NONE:
            raise Unavailable("the remote cannot be reached")
        return {ref: self.work.get(ref, "") for ref in refs}

    # --- what happens behind everyone's back ------------------------------------------------------
    def force(self, layer: str, version: str) -> None:
        """Move a ref without asking what it was; ``""`` deletes it."""
        self.refs.pop(layer, None)
        if version:
            self.refs[layer] = version

    def damage(self, file: str, broken: Broken) -> None:
        """Add an unreadable record, as another writer could, in a step of its own."""
        base = self.refs["global"]
        step = self.steps[base]
        header = replace(step.header, revision=step.header.revision + 1)
        self.refs["global"] = self.keep(
            replace(step, header=header, broken={**step.broken, file: broken}, parent=base)
        )

    def arrive(self) -> None:
        """Carry out every push that is still on its way."""
        late, self._late = self._late, []
        for _, moves, work in late:
            self._move_all(moves, work)

    # --- versions ---------------------------------------------------------------------------------
    def keep(self, step: Step, *, base: str = "") -> str:
        """Store a version under a name for what it says; the same step has the same version.

        ``base`` is the version that it was made from: then only what differs is compared.
        """
        said = _said(step, self.steps[base] if base else Step(header=step.header))
        version = self._versions.setdefault((base, said), f"{len(self._versions) + 1:040x}")
        self.steps.setdefault(version, step)
        return version

    def state(self, version: str) -> tuple[Header, MemoryRecords]:
        """The ledger at a version; Invalid where there is none."""
        if version not in self.steps:
            raise Invalid(f"the ledger's version {version} cannot be read")
        step = self.steps[version]
        return step.header, MemoryRecords(step)

    def ledger(self, version: str) -> Ledger:
        return Ledger(*self.state(version))

    def _answer(self, kind: str, layer: str) -> str | None:
        fault = self._begin(kind, self.fetches)
        if fault is Fault.REFUSED:
            raise Denied("the remote refused to be read")
        if fault is not Fault.NONE:
            raise Unavailable("the remote cannot be reached")
        return self.refs.get(layer)

    def _begin(self, kind: str, script: deque[Fault]) -> Fault:
        self.requests.append(kind)
        self.during(kind)
        due = [late for late in self._late if late[0] <= len(self.requests)]
        self._late = [late for late in self._late if late[0] > len(self.requests)]
        for _, moves, work in due:
            self._move_all(moves, work)
        return script.popleft() if script else Fault.NONE

    def _move_all(self, moves: Iterable[Move], work: Sequence[WorkRef]) -> bool:
        if self._work_moved(work) or not self._move(moves):
            return False
        self.work |= {one.ref: one.new for one in work if one.moves}
        return True

    def _move(self, moves: Iterable[Move]) -> bool:
        if any(self.refs.get(move.layer, "") != move.expected for move in moves):
            return False
        self.refs |= {move.layer: move.new for move in moves}
        return True

    def _work_moved(self, work: Sequence[WorkRef]) -> str:
        """The first ref of some work that is not what it was any more, ``""`` for none."""
        refs = (x.ref for x in work if x.moves and self.work.get(x.ref, "") not in (x.old, x.new))
        return next(refs, "")

    def _replaces(self, moves: Iterable[Move]) -> bool:
        return any(self.steps[move.new].parent != move.expected for move in moves)


class MemoryState(StateFolder):
    """What a clone keeps of one ledger: a StateFolder without the folder."""

    def __init__(self) -> None:
        super().__init__("")
        self._known: Known | None = None
        self._shown: dict[str, None] = {}
        self._pending: dict[str, Pending] = {}
        self._asking: dict[str, object] = {}

    def ask(self, name: str, what: object) -> None:
        self._asking[name] = what
        if what is None:
            del self._asking[name]

    def asked(self) -> list[object]:
        return list(self._asking.values())

    def turn(self, seconds: float, on_wait: Callable[[], None]) -> AbstractContextManager[object]:
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

    def note_push(self, push: PushRecord) -> None:
        """Nothing is kept of what was pushed."""

    def add_pending(self, pending: Pending, *, abandoned: bool = False) -> None:
        self._pending[pending.operations[0]] = pending

    def remove_pending(self, pending: Pending) -> None:
        self._pending.pop(pending.operations[0], None)

    def pending(self, *, living: bool = False) -> list[Pending]:
        return list(self._pending.values())


class MemoryClone:
    """What one clone keeps beside the ledgers, whatever becomes of its processes."""

    def __init__(self, make: Callable[[], MemoryState] = MemoryState) -> None:
        self._make = make
        self._states: dict[str, MemoryState] = {}

    def state(self, layer: str) -> MemoryState:
        if layer not in self._states:
            self._states[layer] = self._make()
        return self._states[layer]


class MemoryStep(NamedTuple):
    """One version of a ledger, as the store sees it in the past of another."""

    id: str
    before: str
    is_renewal: bool
    events: tuple[Event, ...]
    operations: frozenset[str] | None
    records: StoredRecords
    time: int = 0


class MemoryRefs(Storage, SharedWithWork):
    """The refs of a MemoryRemote; its versions need no fetching to be read."""

    def __init__(self, remote: MemoryRemote) -> None:
        self._remote = remote

    def read(self, layer: str, version: str) -> tuple[Header, StoredRecords]:
        return self._remote.state(version)

    def history(self, version: str, *, whole: bool = False) -> Iterator[MemoryStep]:
        while version:
            step = self._remote.steps[version]
            done = (x.operation for x in step.header.ring if x.revision == step.header.revision)
            renewal = step.renewal and bool(step.parent)
            events, records = tuple(step.events), MemoryRecords(step)
            yield MemoryStep(version, step.parent, renewal, events, frozenset(done), records)
            version = step.parent

    def fetch(self, layer: str, known: str = "", *, before_push: bool = False) -> str | None:
        return self._remote.fetch(layer)

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        return self._remote.peek(layers)

    def swap(
        self,
        moves: Sequence[Move],
        work: WorkPush | None = None,
        *,
        on_start: Callable[[], object] = lambda: None,
    ) -> Swapped:
        return self._remote.push(moves, () if work is None else work.refs, on_start)

    def watch(self, layer: str) -> str:
        return ""

    def work_refs(self, work: WorkPush) -> Mapping[str, str]:
        return self._remote.work_at([x.ref for x in work.refs])

    def write(self, change: Change, *, replace_tip: bool) -> str:
        tip = change.base.version
        base = self._remote.steps[tip] if tip else Step(header=change.ledger.header)
        after = base.after(change, base.parent if replace_tip else tip)
        return self._remote.keep(after, base=tip)


def memory_ledger_store(
    remote: MemoryRemote,
    *,
    clock: Clock,
    clone: MemoryClone | None = None,
    place: str = "memory",
) -> RefLedgerStore:
    """Ledgers on a MemoryRemote, as one process of a clone knows them."""
    refs, state = MemoryRefs(remote), (clone or MemoryClone()).state
    return RefLedgerStore(StorePlace(refs, state, place, beside_work=refs), clock)


class MemoryWatch:
    """Like the files of a clone."""

    def __init__(self) -> None:
        self.kept: dict[str, CachedLedger] = {}
        self.idle = IdleMarker()
        self.failure: Unreachable | None = None

    def load(self, layer: str) -> CachedLedger | None:
        return self.kept.get(layer)

    def save(self, cached: CachedLedger) -> None:
        self.kept[cached.layer] = cached

    def set_idle_marker(self, idle: IdleMarker, versions: Mapping[str, str]) -> None:
        self.idle = idle

    def unreachable(self) -> Unreachable | None:
        return self.failure

    def set_unreachable(self, failure: Unreachable | None) -> None:
        self.failure = failure
