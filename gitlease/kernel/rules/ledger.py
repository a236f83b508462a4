"""The state of one ledger: a header, and records that are read only where a decision needs them.

A ledger is a value: ``records`` is what the store read, ``changes`` what has been decided on top.
Reading asks the store for a few records by resource, so that a claim costs the same with ten
leases as with a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated, Protocol, runtime_checkable

from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import RARE, dataclass, field, replace
from gitlease.kernel.rules.instant import MS, Time
from gitlease.kernel.rules.lease import (
    MAX_REASON,
    Lease,
    LeaseKey,
    Policy,
    Session,
    State,
    lease_key,
    person_key,
    same_person,
)
from gitlease.kernel.rules.lease_rows import LeaseRows, Reach
from gitlease.kernel.rules.resources import Issues, Resource, Scope, issue_resource

FORMAT = 2
ISSUES_FORMAT = 3  # where the policy has what clients of format 2 would drop
PICKED_FORMAT = 4  # once a record was ``picked``, or the policy abandons edges within a day
MOVED_FORMAT = 5  # once it was moved to another place
RESTORED_FORMAT = 5  # once it was restored after a deletion, and granted nothing for a while
NEWEST_FORMAT = 5
RING_SIZE = 128
MAX_STEP = 64  # operations of one step: two whole steps at least stand in the ring
NOTES_KEPT = 20
NOTICES_KEPT = 50
BY_OTHERS = ("taken_over", "revoked", "retired")
ENDS_TOLD = (*BY_OTHERS, "replaced", "released", "completed", "parked", "run_out")
NOTED = "noted"
HOLDERS_TOLD = 256  # by one step
TICKETS_KEPT = 256  # of one resource
LINES_READ = 1_024  # resources whose waiters a claim of paths gives way to
EPOCH_SIZE = 10**12
# The ends of ids of operations, by which their notes count in a ``Setback``. Every version carries
# ids as they are, so an older client or server neither refuses such a note nor loses the count.
FAILED, WAITS, WORD = MARKS = "-fail", "-wait", "-word"
LEFT_ALONE = 600  # seconds after the first failure of a task; twice as long after the next
MOST_FAILURES = 3


class Fate(Enum):
    """The outcome of an operation, according to a later head of the ledger."""

    APPLIED = "applied"
    LOST = "lost"  # final: the head has moved on, and the operation is not in it
    UNDECIDED = "undecided"  # the head is what it was decided on: it may yet land
    UNKNOWN = "unknown"  # the ring no longer reaches back far enough


@dataclass(frozen=True)
class RingEntry:
    """One of the last operations: its id, the revision that holds it, and its outcome."""

    operation: str
    revision: int
    outcome: str


@dataclass(frozen=True)
class Header:
    """The content of ``ledger.yaml``. ``sequence`` is the epoch's last fencing token.

    ``digest`` chains every decision there ever was, so that two ledgers with the same digest have
    the same past; renewals, which history may forget, are not in it. None before the first one of
    format 2. ``ring`` has the operations of the last steps, whole steps only. ``format`` is the
    least that its records need, beside what its policy does: once raised, it never falls.
    ``moved_to`` names the place where a ledger that was moved goes on: nothing follows here.
    ``closed_until`` is when a restored ledger grants again (see ``kernel.rules.moves.restoring``).
    """

    ledger_id: str
    revision: int
    epoch: Annotated[int, range(10**5 + 1)]
    sequence: Annotated[int, range(EPOCH_SIZE)]
    policy: Policy
    digest: Annotated[str, 64] | None = None
    moved_to: Annotated[str | None, RARE] = None
    closed_until: Annotated[Time | None, RARE] = None
    ring: tuple[RingEntry, ...] = ()
    format: int = FORMAT

    @property
    def token(self) -> int:
        """The last fencing token given: one integer, ``epoch × 10¹² + sequence``."""
        return self.epoch * EPOCH_SIZE + self.sequence

    def entry(self, operation: str) -> RingEntry | None:
        """The ring's entry of an operation id; None if it has none."""
        return next((entry for entry in self.ring if entry.operation == operation), None)

    def fate(self, operations: Iterable[str], base_revision: int) -> Fate:
        """Tell the fate of a step of these operations that was decided on ``base_revision``."""
        # Some of them may be another step's, too, but never all: see ``Transaction.carry_out``.
        if all(self.entry(operation) for operation in operations):
            return Fate.APPLIED
        # Nothing has happened since, so the push may be on its way still.
        if self.revision <= base_revision:
            return Fate.UNDECIDED
        return Fate.LOST if self.ring_reaches(base_revision) else Fate.UNKNOWN

    def ring_reaches(self, revision: int) -> bool:
        """Return whether the ring knows every operation decided on ``revision`` or later."""
        # A ring that begins with the first revision there is knows everything.
        return bool(self.ring) and self.ring[0].revision <= max(revision, 1)

    def after_step(self, entries: tuple[RingEntry, ...], *, decision: bool) -> Header:
        """The header one revision on, with what became of the operations of that step."""
        ring = (*self.ring, *entries)
        # Whole steps only: half a step would read as one that lost some of its operations.
        while len(ring) > RING_SIZE:
            oldest = ring[0].revision
            ring = ring[next(n for n, entry in enumerate(ring) if entry.revision != oldest) :]
        digest = self.digest
        # Renewals may vanish from history, so they must not be in what two clones compare.
        if decision:
            from hashlib import sha256  # OpenSSL, for which hooks have no time

            lines = (f"{entry.operation} {entry.revision} {entry.outcome}" for entry in entries)
            chain = "\n".join([digest or self.ledger_id, *lines])
            digest = sha256(chain.encode()).hexdigest()
        return replace(self, revision=self.revision + 1, ring=ring, digest=digest)


@dataclass(frozen=True)
class Note:
    """A note for the next holder of a resource. ``at`` is wall-clock milliseconds."""

    id: str
    resource: Resource
    author: str
    at: Time
    text: Annotated[str, "lines"]


@dataclass(frozen=True)
class Setback:
    """A reason to hand out no task: it failed, or its worker ``waits`` for a person.

    ``last`` is the note of the last of these. A claim by name is never kept out.
    """

    failures: int
    last: Note
    waits: bool = False

    @property
    def free_at(self) -> int | None:
        """Wall-clock milliseconds from which on it is handed out again; None: it needs a person."""
        if self.waits or self.failures >= MOST_FAILURES:
            return None
        return self.last.at + (LEFT_ALONE << self.failures - 1) * MS

    def is_left_alone(self, now_ms: int) -> bool:
        """Return whether it is not to be handed out at this time."""
        until = self.free_at
        # Of a note from the future, whose writer's clock is wrong, only the count is believed.
        return until is None or self.last.at - LEFT_ALONE * MS <= now_ms < until


def is_kept(lease: Lease) -> bool:
    """Return whether its holder stopped, and kept the task until somebody claims it by name."""
    # Every later change of the record has an id of its own.
    return lease.state is State.ACTIVE and lease.operation.endswith(WAITS)


def is_of_kept(notice: Notice) -> bool:
    """Return whether a notice is about a lease that was ended to keep its task."""
    return notice.what == "run_out" and WAITS in notice.id


def setback(notes: Iterable[Note], kept: Iterable[str] = ()) -> Setback | None:
    """The failures by the notes of a task, since the last word of a person; None without any.

    ``kept`` are the operations whose records still stand as they left them: it waits only by these.
    """
    still = tuple(kept)
    found: Setback | None = None
    for note in notes:
        if WORD in note.id:
            found = None
        elif FAILED in note.id or (WAITS in note.id and note.id.startswith(still)):
            failures, waits = (found.failures, found.waits) if found else (0, False)
            failed = FAILED in note.id
            found = Setback(failures + failed, note, waits or not failed)
    return found


@dataclass(frozen=True)
class Notice:
    """A message to a holder about the end of a lease, or with a note (``NOTED``).

    Other people have ``taken_over`` or ``revoked`` it, or ``retired`` it after it expired. For a
    session, its person or another of their sessions has ``replaced`` it after it expired, or ended
    it: ``released``, ``completed``, or ``run_out``, with its session or to keep the task. Older
    versions have ``parked`` it.
    """

    id: str
    to: str
    what: Annotated[str, (*ENDS_TOLD, NOTED)]
    resource: Annotated[str, 600]
    scope: Scope
    session: Session | None
    by: str
    at: Time
    reason: Annotated[str, MAX_REASON] | None


@dataclass(frozen=True)
class Ticket:
    """A place in the queue for a resource: since when, and until when at most.

    Times are wall-clock milliseconds of the waiting client. Waiting for several resources takes a
    ticket for each. See ``kernel.rules.moves.tickets``.
    """

    id: Annotated[str, 64]
    resource: Resource
    scope: Scope
    holder: str
    session: Session | None
    since: Time
    until: Time


@dataclass(frozen=True)
class Damage:
    """A record that cannot be read: its file, and why."""

    file: str
    problem: str

    @property
    def shown(self) -> str:
        """The file's name fit for a message: anyone may have chosen it."""
        fine = self.file.isprintable() and len(self.file) <= 160
        return self.file if fine else ascii(self.file)[:160]


class Records(Protocol):
    """The records that a store reads from one state of a ledger."""

    def of(self, resource: Resource) -> Iterable[Lease]:
        """Every record of this resource, whatever its scope. Invalid when one is damaged."""

    def with_paths(self) -> Iterable[Lease]:
        """Every record that covers paths. Invalid when one of them is damaged."""

    def every(self) -> Iterator[Lease | Damage]:
        """All records, and the damaged ones as Damage: for lists, never for decisions."""

    def notes(self, resource: Resource) -> tuple[Note, ...]:
        """Notes left on a resource, oldest first."""

    def notices(self, holder: str) -> tuple[Notice, ...]:
        """Notices waiting for a holder, oldest first."""

    def tickets(self, resource: Resource) -> tuple[Ticket, ...]:
        """The tickets for a resource, in any order. Invalid if they cannot be read."""

    def every_ticket(self) -> Iterable[Ticket]:
        """The readable tickets of the first ``LINES_READ`` resources in the order of the store."""


@runtime_checkable
class RowRecords(Protocol):
    """Records of a store with a cache, so that only new ones are read again."""

    def near(self, reach: Reach) -> Iterable[Lease]:
        """Every record with paths that may cover what is reached. Invalid as for ``with_paths``."""

    def live(self, holder: str) -> tuple[LeaseRows, Sequence[Damage]]:
        """Return what ``Ledger.live`` does."""


@dataclass(frozen=True)
class Changes:
    """Decided changes on top of the records: None removes."""

    leases: Mapping[LeaseKey, tuple[Lease | None, Lease | None]] = field(default_factory=dict)
    notes: Mapping[str, tuple[Resource, tuple[Note, ...]]] = field(default_factory=dict)
    notices: Mapping[str, tuple[str, tuple[Notice, ...]]] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    tickets: Mapping[str, tuple[Resource, tuple[Ticket, ...]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Ledger:
    """One state of one ledger. Every change gives a new value; nothing here reads a clock."""

    header: Header
    records: Records
    changes: Changes = field(default_factory=Changes)

    def spelt(self, resource: Resource) -> Resource:
        """The resource as the ledger's policy has it spelt: the number of an issue, say."""
        issues = self.header.policy.issues
        return resource if issues is Issues.NONE else issue_resource(resource, issues)

    def leases_of(self, resource: Resource) -> list[Lease]:
        """The records of a resource, any scope, in the order of their scopes."""
        key = (resource := self.spelt(resource)).key
        return self._as_changed(self.records.of(resource), lambda x: x.resource.key == key)

    def lease(self, resource: Resource, scope: str) -> Lease | None:
        """The record of one scope of a resource; None where there is none."""
        resource = self.spelt(resource)
        return self._record(resource, lease_key(resource, scope), 1)

    def leases_with_paths(self, near: Iterable[str] = ()) -> list[Lease]:
        """The records that cover paths; at least those that share a file with patterns ``near``."""
        records, patterns = self.records, tuple(near)
        if patterns and isinstance(records, RowRecords):
            try:
                read = records.near(Reach.of_patterns(patterns))
            except ValueError:  # no pattern: what it is asked for says so
                read = records.with_paths()
        else:
            read = records.with_paths()
        return self._as_changed(read, lambda x: bool(x.patterns))

    def live(self, holder: str) -> tuple[LeaseRows, Sequence[Damage]]:
        """The live leases (``LeaseRows``, with this person) and, of what was read, the damage."""
        # The store's lines know nothing of what has been decided on top of it.
        if isinstance(self.records, RowRecords) and not self.changes.leases:
            return self.records.live(holder)
        live = (x for x in self.every_lease() if x.state is State.ACTIVE)
        return LeaseRows.of(live), self.damage()

    def every_lease(self) -> list[Lease]:
        """All readable records; damaged ones are passed over (see ``damage``)."""
        read = (x for x in self.records.every() if isinstance(x, Lease))
        return self._as_changed(read, lambda _: True)

    def damage(self) -> list[Damage]:
        """Every record that cannot be read."""
        return [x for x in self.records.every() if isinstance(x, Damage)]

    def notes(self, resource: Resource) -> tuple[Note, ...]:
        resource = self.spelt(resource)
        changed = self.changes.notes.get(resource.key)
        return self.records.notes(resource) if changed is None else changed[1]

    def setback(self, resource: Resource) -> Setback | None:
        """Why a task is not to be handed out; None without a reason, or if it cannot be read.

        It waits for a person only as long as the record stands with which its worker stopped. Older
        versions go by the note alone.
        """
        try:
            notes = self.notes(resource)
            if not any(WAITS in note.id for note in notes):
                return setback(notes, ("",))
            kept = [x.operation for x in self.leases_of(resource) if is_kept(x)]
        except Invalid:
            return None
        return setback(notes, kept)

    def notices(self, holder: str) -> tuple[Notice, ...]:
        changed = self.changes.notices.get(person_key(holder))
        return self.records.notices(holder) if changed is None else changed[1]

    def losses(self, holder: str) -> list[Notice]:
        """Those of the notices that are about the end of a lease."""
        return [notice for notice in self.notices(holder) if notice.what != NOTED]

    def tickets(self, resource: Resource) -> tuple[Ticket, ...]:
        """The tickets for a resource; none if they cannot be read, since they may block nobody."""
        resource = self.spelt(resource)
        changed = self.changes.tickets.get(resource.key)
        if changed is not None:
            return changed[1]
        try:
            return self.records.tickets(resource)
        except Invalid:
            return ()

    def every_ticket(self) -> list[Ticket]:
        """The tickets for all resources, as far as they can be read."""
        changed = self.changes.tickets
        found = [t for t in self.records.every_ticket() if t.resource.key not in changed]
        return found + [t for _, tickets in changed.values() for t in tickets]

    def tickets_damage(self, resource: Resource) -> str | None:
        """Why the tickets for a resource cannot be read; None if they can."""
        try:
            self.records.tickets(resource)
        except Invalid as damage:
            return damage.message
        return None

    def with_header(self, header: Header) -> Ledger:
        return replace(self, header=header)

    def put(self, lease: Lease) -> Ledger:
        """With this record, in the place of any other of its resource and scope."""
        return self._set(lease, lease)

    def remove(self, lease: Lease) -> Ledger:
        """Without this record."""
        return self._set(lease, None)

    def with_notes(self, resource: Resource, notes: tuple[Note, ...]) -> Ledger:
        """With these notes on a resource; the oldest beyond the limit are dropped."""
        kept = {**self.changes.notes, resource.key: (resource, notes[-NOTES_KEPT:])}
        return replace(self, changes=replace(self.changes, notes=kept))

    def with_notices(self, holder: str, notices: tuple[Notice, ...]) -> Ledger:
        """With these notices for a holder; the oldest beyond the limit are dropped."""
        # First those about a person's own doing, who may end many leases: a takeover by another is
        # to be told all the same.
        by_self = [n.id for n in notices if same_person(n.by, n.to)]
        over = set(by_self[: max(0, len(notices) - NOTICES_KEPT)])
        last = tuple(n for n in notices if n.id not in over)[-NOTICES_KEPT:]
        known = self.changes.notices
        # A notice is a courtesy: beyond what one step may hold there are none.
        if len(known) >= HOLDERS_TOLD and person_key(holder) not in known:
            return self
        kept = {**known, person_key(holder): (last[0].to if last else holder, last)}
        return replace(self, changes=replace(self.changes, notices=kept))

    def with_tickets(self, resource: Resource, tickets: tuple[Ticket, ...]) -> Ledger:
        """With these tickets for a resource, in the place of all that were there."""
        kept = {**self.changes.tickets, resource.key: (resource, tickets)}
        return replace(self, changes=replace(self.changes, tickets=kept))

    def drop(self, files: Iterable[str]) -> Ledger:
        """Without these damaged files."""
        dropped = (*self.changes.dropped, *files)
        return replace(self, changes=replace(self.changes, dropped=dropped))

    def _set(self, lease: Lease, value: Lease | None) -> Ledger:
        # As the store has it: what is written is the difference from that.
        before = self._record(lease.resource, lease.key, 0)
        leases = {**self.changes.leases, lease.key: (before, value)}
        return replace(self, changes=replace(self.changes, leases=leases))

    def _record(self, resource: Resource, key: LeaseKey, now: int) -> Lease | None:
        # Before the changes, or ``now``.
        if key in self.changes.leases:
            return self.changes.leases[key][now]
        return next((x for x in self.records.of(resource) if x.key == key), None)

    def _as_changed(self, read: Iterable[Lease], wanted: Callable[[Lease], bool]) -> list[Lease]:
        leases, changes = list(read), self.changes.leases
        if changes:
            leases = [x for x in leases if x.key not in changes]
            leases += (new for _, new in changes.values() if new is not None and wanted(new))
        return sorted(leases, key=lambda lease: lease.key) if len(leases) > 1 else leases


def count_token(header: Header) -> Header:
    """The header after one more grant: tokens only ever grow (S4)."""
    # One more would be the first of the next epoch, which another past may have given.
    if header.sequence + 1 >= EPOCH_SIZE:
        raise Invalid("the ledger has no fencing tokens left in this epoch")
    return replace(header, sequence=header.sequence + 1)
