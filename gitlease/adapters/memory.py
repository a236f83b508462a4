"""The ledger store in memory: for tests of the rules, and for simulation with every kind of fault.

``MemoryRemote`` is the server that is shared, ``MemoryClone`` what one clone keeps on its disk, and
``MemoryLedgerStore`` one process of that clone. What is judged of a head (sightings, rollbacks,
another ledger) is judged by the same code as in the git store.

    remote = MemoryRemote()
    remote.pushes.append(Fault.UNANSWERED)      # what becomes of the next push
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from hashlib import sha256

from gitlease.adapters.heads import AnotherLedger, Heads
from gitlease.adapters.private_store import PrivateStore
from gitlease.adapters.records import lease_file
from gitlease.adapters.state import Known, StateFolder
from gitlease.domain.errors import Denied, Invalid, Unavailable
from gitlease.domain.frozen import dataclass
from gitlease.domain.lease import Lease, LeaseKey
from gitlease.domain.ledger import Damage, Fate, Header, Ledger, Note, Notice
from gitlease.domain.outcome import Event
from gitlease.domain.pattern import fold
from gitlease.domain.policy import History
from gitlease.domain.resource import Resource
from gitlease.ports import Cause, Change, Clock, Pending, Prepared, Snapshot, Swapped

NO_REF = ""


class Fault(Enum):
    """What becomes of one request. A fetch knows only NONE, REFUSED and UNREACHABLE."""

    NONE = "it is carried out and answered"
    LOST = "it is lost on the way, and nobody answers"
    UNANSWERED = "it is carried out, and the answer is lost"
    LATE = "nobody answers, and it is carried out after some more requests (`late_by`)"
    REFUSED = "the server refuses it"
    BUSY = "the ref is locked by another push"
    UNREACHABLE = "it never leaves this machine"


@dataclass(frozen=True, slots=True)
class Broken:
    """A record that cannot be read: why, whose it is, and whether it would cover paths."""

    problem: str
    resource: Resource | None = None
    paths: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One version of a ledger: the records whole, and what its step was."""

    header: Header
    leases: Mapping[LeaseKey, Lease] = field(default_factory=dict)
    notes: Mapping[str, tuple[Note, ...]] = field(default_factory=dict)
    notices: Mapping[str, tuple[Notice, ...]] = field(default_factory=dict)
    broken: Mapping[str, Broken] = field(default_factory=dict)
    parent: str = NO_REF
    renewal: bool = False
    events: tuple[Event, ...] = ()

    def of(self, resource: Resource) -> list[Lease]:
        self._raise_broken(lambda broken: broken.resource == resource)
        return [lease for lease in self.leases.values() if lease.resource == resource]

    def with_paths(self) -> list[Lease]:
        self._raise_broken(lambda broken: broken.paths)
        return [lease for lease in self.leases.values() if lease.patterns]

    def every(self) -> Iterator[Lease | Damage]:
        yield from self.leases.values()
        yield from (Damage(file, broken.problem) for file, broken in self.broken.items())

    def notes_of(self, resource: Resource) -> tuple[Note, ...]:
        return self.notes.get(resource.key, ())

    def _raise_broken(self, wanted: Callable[[Broken], bool]) -> None:
        for file, broken in self.broken.items():
            if wanted(broken):
                raise Invalid(f"the ledger's record {file} is damaged: {broken.problem}")

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
            notes={k: v for k, v in {**self.notes, **changes.notes}.items() if v},
            notices={k: v for k, v in {**self.notices, **changes.notices}.items() if v},
            broken={k: v for k, v in self.broken.items() if k not in changes.dropped},
            parent=parent,
            renewal=change.renewal,
            events=change.events,
        )


class MemoryRecords:
    """The records of one version: the store's side of a Ledger."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def of(self, resource: Resource) -> list[Lease]:
        return self._step.of(resource)

    def with_paths(self) -> list[Lease]:
        return self._step.with_paths()

    def every(self) -> Iterator[Lease | Damage]:
        return self._step.every()

    def notes(self, resource: Resource) -> tuple[Note, ...]:
        return self._step.notes_of(resource)

    def notices(self, holder: str) -> tuple[Notice, ...]:
        return self._step.notices.get(fold(holder), ())


@dataclass(frozen=True, slots=True)
class Move:
    """One ref of a push: what it must be now (``""``: absent), and what it shall be."""

    layer: str
    expected: str
    new: str


class MemoryRemote:
    """A server with one ref a layer, all moved by compare-and-swap, several all or none.

    ``pushes`` and ``fetches`` script the faults of the next requests. ``during`` is called in the
    middle of every request, with its kind: time may pass there, and others may act.
    """

    def __init__(self) -> None:
        self.refs: dict[str, str] = {}
        self.steps: dict[str, Step] = {}
        self.pushes: deque[Fault] = deque()
        self.fetches: deque[Fault] = deque()
        self.late_by = 1
        self.during: Callable[[str], None] = lambda _kind: None
        self.requests: list[str] = []
        self.refuses_replacements = False
        self._late: list[tuple[int, tuple[Move, ...]]] = []

    # --- what clients ask -------------------------------------------------------------------------
    def fetch(self, layer: str) -> str | None:
        """The version at the ref, None when there is none. Raises Unavailable and Denied."""
        fault = self._begin("fetch", self.fetches)
        if fault is Fault.REFUSED:
            raise Denied("the remote refused to be read")
        if fault is not Fault.NONE:
            raise Unavailable("the remote cannot be reached")
        return self.refs.get(layer)

    def push(self, moves: Sequence[Move]) -> Swapped:
        """Move refs, as far as the answer tells: never LOST, which is for reading to find out."""
        fault = self._begin("push", self.pushes)
        undecided = Swapped(fate=Fate.UNDECIDED, cause=Cause.UNREACHABLE, detail="no answer")
        if fault is Fault.UNREACHABLE:
            return replace(undecided, sent=False, detail="no connection")
        if fault is Fault.REFUSED or (self.refuses_replacements and self._replaces(moves)):
            return replace(undecided, cause=Cause.REFUSED, detail="hook declined")
        if fault is Fault.BUSY:
            return replace(undecided, cause=Cause.BUSY, detail="cannot lock ref")
        if fault is Fault.LATE:
            self._late.append((len(self.requests) + self.late_by, tuple(moves)))
        if fault in (Fault.LATE, Fault.LOST):
            return undecided
        moved = self._move(moves)
        if fault is Fault.UNANSWERED:
            return undecided
        return Swapped(fate=Fate.APPLIED) if moved else replace(undecided, cause=Cause.MOVED)

    # --- what happens behind everyone's back ------------------------------------------------------
    def force(self, layer: str, version: str) -> None:
        """Move a ref without asking what it was; ``""`` deletes it."""
        self.refs.pop(layer, None)
        if version:
            self.refs[layer] = version

    def damage(self, layer: str, file: str, broken: Broken) -> None:
        """Add an unreadable record, as another writer could, in a step of its own."""
        base = self.refs[layer]
        step = self.steps[base]
        header = replace(step.header, revision=step.header.revision + 1)
        self.refs[layer] = self.keep(
            replace(step, header=header, broken={**step.broken, file: broken}, parent=base)
        )

    def arrive(self) -> None:
        """Carry out every push that is still on its way."""
        late, self._late = self._late, []
        for _, moves in late:
            self._move(moves)

    # --- versions ---------------------------------------------------------------------------------
    def keep(self, step: Step) -> str:
        """Store a version under the hash of what it says; the same step has the same version."""
        version = sha256(repr(step).encode()).hexdigest()[:40]
        self.steps[version] = step
        return version

    def ledger(self, version: str) -> Ledger:
        """The ledger at a version; Invalid where there is none."""
        if version not in self.steps:
            raise Invalid(f"the ledger's version {version} cannot be read")
        step = self.steps[version]
        return Ledger(header=step.header, records=MemoryRecords(step))

    def _begin(self, kind: str, script: deque[Fault]) -> Fault:
        self.requests.append(kind)
        self.during(kind)
        due = [moves for at, moves in self._late if at <= len(self.requests)]
        self._late = [(at, moves) for at, moves in self._late if at > len(self.requests)]
        for moves in due:
            self._move(moves)
        return script.popleft() if script else Fault.NONE

    def _move(self, moves: Iterable[Move]) -> bool:
        if any(self.refs.get(move.layer, NO_REF) != move.expected for move in moves):
            return False
        self.refs |= {move.layer: move.new for move in moves}
        return True

    def _replaces(self, moves: Iterable[Move]) -> bool:
        return any(self.steps[move.new].parent != move.expected for move in moves)


class MemoryState(StateFolder):
    """What a clone keeps of one ledger: a StateFolder without the folder."""

    def __init__(self) -> None:
        super().__init__("")
        self._known: Known | None = None
        self._shown: dict[str, None] = {}
        self._pending: dict[str, Pending] = {}

    def load(self) -> Known | None:
        return self._known

    def save(self, known: Known, *, confirm: bool = False) -> None:
        before = None if confirm else self._known
        same = before is not None and before.ledger_id == known.ledger_id
        if not (same and before is not None and before.revision > known.revision):
            self._known = known

    def forget(self) -> None:
        self._known = None

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


class MemoryClone:
    """What one clone keeps beside the ledgers, whatever becomes of its processes."""

    def __init__(self) -> None:
        self._states: dict[str, MemoryState] = {}

    def state(self, layer: str) -> MemoryState:
        return self._states.setdefault(layer, MemoryState())


class _MemoryHeads(Heads):
    """Heads whose versions are values: only how versions are read and compared differs."""

    def __init__(self, remote: MemoryRemote, clone: MemoryClone, clock: Clock, place: str) -> None:
        super().__init__(PrivateStore(place), str, clock, place)
        self._remote, self._clone = remote, clone

    def state(self, layer: str) -> StateFolder:
        return self._clone.state(layer)

    def read(self, version: str) -> Ledger:
        return self._remote.ledger(version)

    def _differences(self, old: str, new: Ledger) -> Iterable[tuple[str, bool]]:
        before = {lease.key: lease for lease in self.read(old).every_lease()}
        for lease in new.every_lease():
            if before.get(lease.key) != lease:
                yield lease_file(lease), lease.key in before


class MemoryLedgerStore:
    """Ledgers on a MemoryRemote, as one process of a clone knows them."""

    def __init__(
        self,
        remote: MemoryRemote,
        *,
        clock: Clock,
        clone: MemoryClone | None = None,
        place: str = "memory",
        warnings: tuple[str, ...] = (),
    ) -> None:
        self._remote = remote
        self._heads = _MemoryHeads(remote, clone or MemoryClone(), clock, place)
        self._sent: set[str] = set()  # operations that may land, whatever a later try says
        self.place, self.warnings = place, warnings

    # --- reading ----------------------------------------------------------------------------------
    def known(self, layer: str) -> Snapshot | None:
        return self._heads.known(layer)

    def fetch(self, layer: str) -> Snapshot:
        before = self._heads.state(layer).load()
        return self._heads.learn(layer, self._remote.fetch(layer), before=before)

    def confirm(self, layer: str) -> Snapshot:
        try:
            return self.fetch(layer)
        except AnotherLedger:
            self._heads.state(layer).forget()
            return self.fetch(layer)

    def history(self, layer: str, limit: int) -> tuple[Event, ...]:
        known = self._heads.state(layer).load()
        version, found = known.version if known else NO_REF, list[Event]()
        while version and len(found) < limit:
            step = self._remote.steps[version]
            found += reversed(step.events)
            version = step.parent
        return tuple(found[:limit])

    # --- writing ----------------------------------------------------------------------------------
    def prepare(self, changes: Sequence[Change]) -> Prepared:
        replacing = frozenset(c.base.layer for c in changes if self._may_replace(c))
        return self._prepared({c.base.layer: c for c in changes}, replacing)

    def append_only(self, prepared: Prepared) -> Prepared:
        for layer in prepared.replacing:
            state = self._heads.state(layer)
            if known := state.load():
                state.save(replace(known, append_only=True))
        return self._prepared(dict(prepared.changes), frozenset())

    def swap(self, prepared: Prepared) -> Swapped:
        self.keep_pending(prepared)
        swapped = self._swap(prepared)
        if swapped.fate in (Fate.APPLIED, Fate.LOST) or not swapped.sent:
            self.forget_pending(prepared)
        return swapped

    # --- what is pending --------------------------------------------------------------------------
    def pending(self, layer: str) -> Iterable[Pending]:
        return self._heads.state(layer).pending()

    def keep_pending(self, prepared: Prepared) -> None:
        for layer in prepared.changes:
            self._heads.state(layer).add_pending(_pending(prepared, layer))

    def forget_pending(self, prepared: Prepared) -> None:
        for layer in prepared.changes:
            self._heads.state(layer).remove_pending(_pending(prepared, layer))

    def settle(self, pending: Pending, head: Snapshot) -> Fate:
        fate = _fate(pending, head)
        if fate is not Fate.UNDECIDED:
            self._heads.state(pending.layer).remove_pending(pending)
        return fate

    def shown(self, layer: str, notices: Iterable[str]) -> frozenset[str]:
        return self._heads.state(layer).shown(notices)

    # --- how --------------------------------------------------------------------------------------
    def _may_replace(self, change: Change) -> bool:
        """Whether this renewal may take the place of the renewal at the tip."""
        known, tip = self._heads.state(change.base.layer).load(), change.base.version
        if not change.renewal or not tip or (known is not None and known.append_only):
            return False
        if change.ledger.header.policy.history is not History.REPLACE:
            return False
        return self._remote.steps[tip].renewal and bool(self._remote.steps[tip].parent)

    def _prepared(self, changes: dict[str, Change], replacing: frozenset[str]) -> Prepared:
        versions = {layer: self._keep(c, layer in replacing) for layer, c in changes.items()}
        return Prepared(changes=changes, versions=versions, replacing=replacing)

    def _keep(self, change: Change, replace_tip: bool) -> str:
        tip = change.base.version
        base = self._remote.steps[tip] if tip else Step(header=change.ledger.header)
        return self._remote.keep(base.after(change, base.parent if replace_tip else tip))

    def _swap(self, prepared: Prepared) -> Swapped:
        pushed = self._remote.push(
            [
                Move(layer, change.base.version, prepared.versions[layer])
                for layer, change in prepared.changes.items()
            ]
        )
        operations = {op for change in prepared.changes.values() for op in change.operations}
        if not pushed.sent and not operations & self._sent:
            return pushed
        pushed = replace(pushed, sent=True)
        self._sent |= operations
        if pushed.fate is not Fate.APPLIED:
            return self._read_back(prepared, pushed)
        heads = {
            layer: self._heads.adopt(change, prepared.versions[layer])
            for layer, change in prepared.changes.items()
        }
        return replace(pushed, heads=heads)

    def _read_back(self, prepared: Prepared, pushed: Swapped) -> Swapped:
        """What became of a push without a clean answer: one ref tells it for all of them."""
        try:
            heads = {
                layer: self._heads.credit(change, self.fetch(layer))
                for layer, change in prepared.changes.items()
            }
        except (Unavailable, Denied) as error:
            detail = f"{pushed.detail}; {error.message}"
            return Swapped(fate=Fate.UNKNOWN, cause=Cause.UNREACHABLE, detail=detail)
        fates = {_fate(_pending(prepared, layer), head) for layer, head in heads.items()}
        for fate in (Fate.APPLIED, Fate.UNKNOWN, Fate.LOST):
            if fate in fates:
                return replace(pushed, fate=fate, heads=heads)
        return replace(pushed, heads=heads)


def _fate(pending: Pending, head: Snapshot) -> Fate:
    if head.ledger is None:
        return Fate.UNDECIDED
    return head.ledger.header.fate(pending.operations, pending.base_revision)


def _pending(prepared: Prepared, layer: str) -> Pending:
    change = prepared.changes[layer]
    base = change.base.ledger
    return Pending(
        operations=change.operations,
        layer=layer,
        expected=change.base.version,
        base_revision=base.header.revision if base else 0,
        version=prepared.versions[layer],
        what=change.what,
    )
