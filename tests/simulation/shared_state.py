"""What lasts in a small world: the remote's refs and objects, and what each clone keeps.

Nothing of it changes: a change makes a new value, so that two ways to one state are seen to meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

from support.memory import ComparedRecords

from gitlease.kernel.ledger.ports import Change, Pending, PushRecord
from gitlease.kernel.rules.frozen import JSON, replace
from gitlease.kernel.rules.instant import MS, Instant
from gitlease.kernel.rules.lease import Lease, LeaseKey, State, person_key
from gitlease.kernel.rules.ledger import Damage, Header, Note, Notice, Ticket
from gitlease.kernel.rules.loss import Hold
from gitlease.kernel.rules.moves.operations import Grant, RunOut, Unbind
from gitlease.kernel.rules.pace import RemotePace
from gitlease.kernel.rules.resources import Resource
from gitlease.kernel.store.state import Known, StateFolder

NOON = 1_795_176_000_000  # the true time 0, in milliseconds
COMMANDS = 32  # of one client
COUNTED = 1_000  # ids of one command


# --- what the remote holds ------------------------------------------------------------------------


@dataclass(eq=False)
class Version(ComparedRecords):
    """One state of the ledger: its records, and the step that made it of ``base``.

    ``by`` and ``runs`` are who made it: the persons, and each with its session. ``at`` is their
    clock (ms). ``unbound`` and ``run_out`` are the grants that they asked to be so.
    """

    name: str
    header: Header
    leases: Mapping[LeaseKey, Lease]
    kept_notes: Mapping[str, tuple[Note, ...]]
    kept_notices: Mapping[str, tuple[Notice, ...]]
    parent: Version | None
    renewal: bool
    by: frozenset[str] = frozenset()
    runs: frozenset[tuple[str, str | None]] = frozenset()
    granted: tuple[Lease, ...] = ()
    revoked: frozenset[str] = frozenset()
    at: int = 0
    unbound: frozenset[Grant] = frozenset()
    run_out: frozenset[Grant] = frozenset()

    @property
    def operations(self) -> frozenset[str]:
        return frozenset(entry.operation for entry in self.header.ring)

    def of(self, resource: Resource) -> list[Lease]:
        return [lease for lease in self.leases.values() if lease.resource == resource]

    def with_paths(self) -> list[Lease]:
        return [lease for lease in self.leases.values() if lease.patterns]

    def every(self) -> Iterator[Lease | Damage]:
        return iter(self.leases.values())

    def notes(self, resource: Resource) -> tuple[Note, ...]:
        return self.kept_notes.get(resource.key, ())

    def notices(self, holder: str) -> tuple[Notice, ...]:
        return self.kept_notices.get(person_key(holder), ())

    def tickets(self, resource: Resource) -> tuple[Ticket, ...]:
        return ()

    def every_ticket(self) -> tuple[Ticket, ...]:
        return ()


def command_of(identity: str) -> tuple[int, int]:
    """The client, and the number of its command, that made an id."""
    return divmod(int(identity, 16) // COUNTED, COMMANDS)


class Versions:
    """Every version that any client wrote: what says the same of the same parent is the same."""

    def __init__(self) -> None:
        self.by_name: dict[str, Version] = {}
        self._by_content: dict[object, Version] = {}

    def add(self, change: Change, *, replace_tip: bool) -> Version:
        base = self.by_name.get(change.base.version)
        parent = base.parent if base is not None and replace_tip else base
        ledger, changes = change.ledger, change.ledger.changes
        leases = dict(base.leases) if base else {}
        for key, (_, lease) in changes.leases.items():
            leases.pop(key, None)
            if lease is not None:
                leases[key] = lease
        notes = {**(base.kept_notes if base else {})}
        notes |= {key: items for key, (_, items) in changes.notes.items()}
        notices = {**(base.kept_notices if base else {})}
        notices |= {key: items for key, (_, items) in changes.notices.items()}
        content = (
            ledger.header,
            frozenset(leases.values()),
            frozenset(notes.items()),
            frozenset(notices.items()),
            change.renewal,
            parent,
        )
        found = self._by_content.get(content)
        if found is None:
            applied, asked = change.decided.applied, change.decided.record.operations
            ended = {lease.lease_id for key, (lease, _) in changes.leases.items() if lease}
            found = Version(
                name=f"v{len(self.by_name)}",
                header=ledger.header,
                leases=leases,
                kept_notes=notes,
                kept_notices=notices,
                parent=parent,
                renewal=change.renewal,
                by=frozenset(op.actor.holder for op in asked),
                runs=frozenset((op.actor.holder, op.actor.session) for op in asked),
                granted=tuple(
                    x for o in applied.outcomes for x in o.leases if x.state is State.ACTIVE
                ),
                revoked=frozenset(
                    ended if any(e.kind == "revoked" for e in applied.events) else ()
                ),
                at=change.at.wall_ms,
                unbound=frozenset(g for op in asked if isinstance(op, Unbind) for g in op.grants),
                run_out=frozenset(g for op in asked if isinstance(op, RunOut) for g in op.grants),
            )
            self._by_content[content] = self.by_name[found.name] = found
        return found


class Request(NamedTuple):
    """What a client asks: ``fetch`` and ``look`` read the ledger's ref and the work's, ``push``
    moves the ledger's, with the work's where there is any, and ``land`` the work's alone.

    ``base`` is the state that a push was decided on, and ``under`` the token that its work was done
    under, 0 where none was known.
    """

    kind: str
    expected: str = ""
    new: str = ""
    base: str = ""
    work_old: str = ""
    work_new: str = ""
    under: int = 0


def serve(request: Request, ref: str, work: str) -> tuple[str, str, str]:
    """What the remote answers, and its two refs afterwards: all of a push moves, or none."""
    if request.kind == "fetch":
        return ref, ref, work
    if request.kind == "look":
        return work, ref, work
    if request.work_new and work not in (request.work_old, request.work_new):
        return "work moved", ref, work
    if request.kind == "land":
        return "done", ref, request.work_new
    if ref != request.expected:
        return "moved", ref, work
    return "done", request.new, request.work_new or work


# --- what a clone keeps ---------------------------------------------------------------------------


@dataclass(frozen=True)
class DiskImage:
    """What a clone keeps of the ledger at one instant."""

    known: Known | None = None
    shown: tuple[str, ...] = ()
    pending: tuple[Pending, ...] = ()
    asking: tuple[Hold, ...] = ()

    @property
    def key(self) -> object:
        known = self.known
        if known is None:
            return None, self.shown, self.pending, self.asking
        fields = {**vars(known)}
        fields["sighted"] = frozenset(known.sighted.items())
        fields["renewed"] = frozenset(known.renewed.items())
        return tuple(fields.values()), self.shown, self.pending, self.asking


class Disk(StateFolder):
    """A state folder that remembers how it was after each of its writes: a kill may leave any."""

    def __init__(self, image: DiskImage) -> None:
        super().__init__("")
        self.images = [image]

    def turn(self, seconds: float, on_wait: Callable[[], None]) -> AbstractContextManager[object]:
        return nullcontext()  # every guarantee holds where nobody waits for a turn

    def ask(self, name: str, what: object) -> None:
        # One heartbeat is all that a clone has here.
        self._write(asking=JSON.load(tuple[Hold, ...], what))

    def asked(self) -> list[object]:
        return [[JSON.dump(x) for x in self.kept]]

    @property
    def kept(self) -> tuple[Hold, ...]:
        return self.images[-1].asking

    def load(self) -> Known | None:
        return self.images[-1].known

    def save(self, known: Known) -> None:
        # Without the pace, which would tell apart states that are otherwise the same.
        self._write(known=replace(known.joined(self.load()), pace=RemotePace()))

    def forget(self) -> None:
        self._write(known=None)

    def mark(self) -> str:
        known = self.load()
        return known.version if known else ""

    def note_push(self, push: PushRecord) -> None:
        """Nothing is kept of what was pushed."""

    def shown(self, notices: Iterable[str]) -> frozenset[str]:
        before = self.images[-1].shown
        self._write(shown=tuple(dict.fromkeys([*before, *notices])))
        return frozenset(before)

    def add_pending(self, pending: Pending, *, abandoned: bool = False) -> None:
        self._write(pending=(*self._others(pending), pending))

    def remove_pending(self, pending: Pending) -> None:
        self._write(pending=self._others(pending))

    def pending(self, *, living: bool = False) -> list[Pending]:
        return list(self.images[-1].pending)

    def _others(self, pending: Pending) -> tuple[Pending, ...]:
        mine = pending.operations[0]
        return tuple(x for x in self.images[-1].pending if x.operations[0] != mine)

    def _write(self, **changed: Any) -> None:
        image = DiskImage(**{**vars(self.images[-1]), **changed})
        if image != self.images[-1]:
            self.images.append(image)


@dataclass(frozen=True)
class OwnTime:
    """How a machine's clocks tell the true time (seconds): ``offset`` is the wall clock's alone."""

    offset: float = 0.0
    wall_rate: float = 1.0
    boot_rate: float = 1.0

    def at(self, true: float) -> Instant:
        return Instant(
            wall_ms=NOON + round((true * self.wall_rate + self.offset) * MS),
            boot_ms=1_000_000 + round(true * self.boot_rate * MS),
            boot_id="boot",
        )
