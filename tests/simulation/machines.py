"""Machines in virtual time: their clocks, disks that may lose writes, and who works there."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from support.memory import MemoryClone, MemoryState

from gitlease.kernel.git.files import Notes, Table
from gitlease.kernel.ledger.ports import Pending
from gitlease.kernel.ledger.transaction import Wish
from gitlease.kernel.rules.frozen import JSON
from gitlease.kernel.rules.instant import MS, Instant
from gitlease.kernel.rules.lease import Actor, Lease, Moment, holder_has
from gitlease.kernel.rules.moves.operations import Grant
from gitlease.kernel.store.records import lease_file
from gitlease.kernel.store.state import Known

START = 1_795_176_000  # seconds since 1970: what the true wall clock says at first
UNSYNCED = 30.0  # seconds after which what was written survives a power failure
LAYER = "global"


class Killed(BaseException):
    """The process is dead: nothing that it still does reaches anybody."""


class Host(Protocol):
    """What a machine needs of the world around it."""

    true: float

    def elapse(self, seconds: float) -> None:
        """Let true time pass."""

    def outside(self, step: str) -> None:
        """Told of every step that leaves the process. Raises Killed where it dies there."""

    def process(self) -> str:
        """The process that runs now."""

    def is_alive(self, process: str) -> bool:
        """Whether a process is under way."""

    def noted(self, pending: Pending) -> None:
        """Told of a change that is about to be sent."""

    def waits(self, machine: Machine, ask: Callable[[], None]) -> None:
        """Have another process of a clone change the ledger first, now and then, once asked."""

    def learned(self, machine: Machine) -> None:
        """Told whenever a machine knows another head, or its clocks were changed."""


@dataclass
class OwnClock:
    """A machine's clocks: each has its own rate, and the wall clock its own idea of now."""

    host: Host
    wall_offset: float
    wall_rate: float
    boot_rate: float
    boots: int = 1
    booted_at: float = 0.0
    _read_at: float = -1.0
    _read: Instant | None = None

    def now(self) -> Instant:
        true = self.host.true
        if self._read is None or self._read_at != true:
            self._read_at = true
            self._read = Instant(
                wall_ms=round((START + true * self.wall_rate + self.wall_offset) * MS),
                boot_ms=round((true - self.booted_at) * self.boot_rate * MS),
                boot_id=f"boot-{self.boots}",
            )
        return self._read

    def sleep(self, seconds: float) -> None:
        self.host.elapse(max(seconds, 0.0))
        self.host.outside("sleep")

    def when(self, wall_ms: int) -> float:
        """The true time at which the wall clock, as it runs now, will just have passed this."""
        return ((wall_ms + 1) / MS - START - self.wall_offset) / self.wall_rate

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back."""
        self.wall_offset, self._read = self.wall_offset + seconds, None

    def reboot(self) -> None:
        self.boots, self.booted_at, self._read = self.boots + 1, self.host.true, None


class MemoryNotes(Notes):
    """The notes of a clone without their file."""

    def __init__(self) -> None:
        super().__init__("")
        self._tables: dict[str, Table] = defaultdict(dict)

    def read(self) -> dict[str, Table]:
        return self._tables

    def change(self, change: Callable[[dict[str, Table]], object]) -> bool:
        change(self._tables)
        return True


class Disk(MemoryState):
    """What a clone keeps of its ledger, as its processes write it and a power failure leaves it."""

    def __init__(self, host: Host, place: str = LAYER) -> None:
        super().__init__()
        self.host, self.place, self.notes = host, place, MemoryNotes()
        self.machine: Machine | None = None
        self._writer: dict[str, str] = {}  # by operation the process that is busy with it
        self._asker: dict[str, str] = {}  # and by what is asked the process that asks it
        self._unsynced: deque[tuple[float, str, Callable[[], None]]] = deque(maxlen=8)

    def turn(self, seconds: float, on_wait: Callable[[], None]) -> AbstractContextManager[object]:
        if self.machine is not None:
            self.host.waits(self.machine, on_wait)
        return super().turn(seconds, on_wait)

    def ask(self, name: str, what: object) -> None:
        self.host.outside("before it asks")
        super().ask(name, what)
        self._asker[name] = self.host.process()
        self.host.outside("after it asked")

    def asked_by(self, process: str) -> list[str]:
        """The claims that a process asks others to make."""
        asked = (x for name, x in self._asking.items() if self._asker[name] == process)
        return [x.id for wish in JSON.load(tuple[Wish, ...], [*asked]) for x in wish.claims]

    def asked(self) -> list[object]:
        # A heartbeat asks as long as its job goes on, and whoever waits as long as it does.
        kept = [run.name for run in self.machine.runs] if self.machine is not None else []
        every = self._asking.items()
        return [x for name, x in every if name in kept or self.host.is_alive(self._asker[name])]

    def save(self, known: Known) -> None:
        self.host.outside("before known is written")
        before = self._known
        super().save(known)
        self._wrote("known", lambda: setattr(self, "_known", before))
        if self.machine is not None:
            self.machine.uses(self.place)
        if before is None or before != self._known:
            self._learned()
        self.host.outside("after known is written")

    def forget(self) -> None:
        super().forget()
        self._unsynced.clear()

    def add_pending(self, pending: Pending, *, abandoned: bool = False) -> None:
        self.host.outside("before a change is noted")
        first = pending.operations[0]
        self.host.noted(pending)
        before = self._pending.get(first)
        super().add_pending(pending, abandoned=abandoned)
        self._writer[first] = "" if abandoned else self.host.process()
        self._wrote("pending", lambda: self._put_back(first, before))
        self.host.outside("after a change is noted")

    def remove_pending(self, pending: Pending) -> None:
        first = pending.operations[0]
        before = self._pending.get(first)
        if before is None:
            return
        self.host.outside("before a note is removed")
        super().remove_pending(pending)
        self._wrote("pending", lambda: self._put_back(first, before))
        self.host.outside("after a note is removed")

    def pending(self, *, living: bool = False) -> list[Pending]:
        if living:
            return list(self._pending.values())
        mine, found = self.host.process(), []
        for first, pending in self._pending.items():
            writer = self._writer.get(first, "")
            if writer in ("", mine) or not self.host.is_alive(writer):
                found.append(pending)
        return found

    def takes_over(self, other: Disk) -> None:
        """Bring along the changes that were on their way at another place."""
        for first, pending in [*other._pending.items()]:
            self._pending[first] = pending
            self._writer[first] = other._writer.get(first, "")
            del other._pending[first]

    def power_fails(self, dice: random.Random) -> str:
        """Undo some of the last writes, and tear one file; says what was lost."""
        recent = [x for x in self._unsynced if self.host.true - x[0] < UNSYNCED]
        lost = recent[len(recent) - dice.randint(0, len(recent)) :]
        for _, _, undo in reversed(lost):
            undo()
        self._unsynced.clear()
        torn = bool(recent) and dice.random() < 0.4
        if torn and recent[-1][1] == "known":
            self._known = None
        elif torn and self._pending:
            self._pending.popitem()
        return "torn write" if torn else "lost write" if lost else "nothing lost"

    def _wrote(self, what: str, undo: Callable[[], None]) -> None:
        self._unsynced.append((self.host.true, what, undo))

    def _put_back(self, first: str, before: Pending | None) -> None:
        if before is None:
            self._pending.pop(first, None)
        else:
            self._pending[first] = before

    def _learned(self) -> None:
        if self.machine is not None:
            self.host.learned(self.machine)


@dataclass(eq=False)
class Machine:
    """One clone on a machine of its own. ``steady``: its wall clock is never set, and runs true.

    Only a steady machine may lose what it knows: after a reboot a holder has but its wall clock.
    """

    name: str
    clock: OwnClock
    disk: Disk
    steady: bool
    runs: list[Run] = field(default_factory=list)
    alive: list[Job] = field(default_factory=list)  # runs that have not given back their leases
    busy: int = 0
    seen: Known | None = None  # the last head that it took for the newest
    place: str = LAYER  # where its next command looks for the ledger
    going: str = LAYER  # and where it was led last
    used: str = LAYER  # where it has used the ledger last

    def __post_init__(self) -> None:
        self.disk.machine = self
        self.clone = MemoryClone(lambda: self.disk)
        self._disks = {self.disk.place: self.disk}

    def disk_at(self, place: str) -> Disk:
        """What it keeps of the ledger at a place."""
        if place not in self._disks:
            self._disks[place] = Disk(self.disk.host, place)
            self._disks[place].machine = self
            self._disks[place].notes = self.disk.notes
        return self._disks[place]

    def goes_to(self, place: str, *, at_once: bool) -> None:
        """A process is led to another place.

        It is remembered now, if the ledger is known to be there, or with the first head there.
        """
        self.going = place
        if at_once:
            self._goes()

    def uses(self, place: str) -> None:
        """A head was read at a place, or written there, perhaps by a process that missed a move."""
        if place == self.going:
            self._goes()
            self.used = place

    def _goes(self) -> None:
        if self.place != self.going:
            self.place, self.disk = self.going, self.disk_at(self.going)
            self.disk.host.learned(self)

    def believing(self) -> Callable[[Lease], bool]:
        """Whether the product takes a lease for its holder's at this instant, by all it knows."""
        known, now = self.disk.load(), self.clock.now()
        if known is None:
            return lambda _: False
        at = known.at(now)
        moment = Moment(now=now, seen=lambda x: at.sighting(lease_file(x)))
        return lambda lease: holder_has(lease, moment)


@dataclass(eq=False)
class Run:
    """Somebody at work in a clone. ``renounced`` are leases that it has begun to give up.

    ``own`` are the active leases of the known head that answer to it, and ``live`` those that had
    not run out when it was learnt: time only ends them, and whatever else does makes it learn anew.
    """

    name: str
    machine: Machine
    actor: Actor
    renounced: set[str] = field(default_factory=set)
    own: list[Lease] = field(default_factory=list)
    live: list[Lease] = field(default_factory=list)


@dataclass(eq=False)
class Process:
    """One command that a run carries out. ``steps_left``: outside steps before it is killed.

    ``began`` is how many rollbacks and returns from them there had been. ``session`` is the one in
    whose name it speaks at present. ``unbinds``: it gives back what is bound, and ``keeps_edges``:
    it ends a session and no edge.
    """

    number: str
    run: Run
    steps_left: int | None = None
    dead: bool = False
    began: int = 0
    verb: str = ""
    job: Job | None = None
    session: str | None = None
    unbinds: bool = False
    keeps_edges: bool = False


@dataclass(eq=False)
class Job:
    """A command that runs under leases, in the session of ``run``, as its clone remembers it.

    ``bound`` are the grants that it took over from its person, ``ours`` those that it got itself,
    and ``joined`` what its session held before.
    """

    run: Run
    bound: list[Grant]
    ours: list[Grant]
    joined: list[Grant]
    dead: bool = False
    busy: bool = False

    @property
    def grants(self) -> list[Grant]:
        return [*self.bound, *self.ours, *self.joined]
