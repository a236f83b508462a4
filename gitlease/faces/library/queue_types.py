"""The library's types for the queue: the engine's answers with leases and times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from gitlease.core.edge import Task
from gitlease.core.frozen import dataclass
from gitlease.core.instant import moment_of
from gitlease.core.view import Lease
from gitlease.engine import answers
from gitlease.engine import queue as order
from gitlease.engine.queue import Carried, WhyNot


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """A task in the queue. ``why_not`` is None if the caller may claim it.

    ``who`` is the holder or assignee in the way, ``lease`` the conflicting lease or the caller's
    own. ``waits_for`` has its open dependencies, as written, ``depth`` their longest chain.
    ``parked``: the caller parked it, and resumes it by a claim of the scope of ``lease``.
    ``abandoned``: it is offered last.
    """

    task: Task
    why_not: WhyNot | None
    who: str | None
    lease: Lease | None
    waits_for: tuple[str, ...]
    depth: int
    parked: bool
    abandoned: bool

    @property
    def claimable(self) -> bool:
        """Whether the caller may claim it now."""
        return self.why_not is None


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedTask:
    """A task that a person has: by the task's file, by a lease, or both.

    ``by`` is another holder of the lease: who took it over, is assigned as well, or claimed it
    after a release that the file here does not show yet.
    """

    resource: str
    state: Carried
    task: Task | None
    lease: Lease | None
    by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenLease:
    """A lease taken from the caller. ``what``: ``taken_over``, ``revoked``, or ``retired``."""

    resource: str
    scope: str
    what: str
    by: str
    at: datetime
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftNote:
    """A note for the next holder of a resource."""

    resource: str
    author: str
    at: datetime
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Briefing:
    """A briefing. ``entries`` are all tasks in the order of the queue.

    ``next_up`` are the offered tasks, best first; ``others`` the leases of others in every layer in
    use; ``notes`` those of the carried and next tasks.
    """

    entries: tuple[QueueEntry, ...]
    next_up: tuple[QueueEntry, ...]
    carried: tuple[CarriedTask, ...]
    taken: tuple[TakenLease, ...]
    notes: tuple[LeftNote, ...]
    others: tuple[Lease, ...]
    warnings: tuple[str, ...]


# The engine has classes of these names; programs see these, in help and reprs too.
Entry = QueueEntry
Carry = CarriedTask
Taken = TakenLease
QueueReading = Briefing
for _name in ("Entry", "Carry", "Taken", "QueueReading"):
    globals()[_name].__name__ = globals()[_name].__qualname__ = _name


def briefing(reading: answers.QueueReading) -> Briefing:
    """All of a reading, for programs."""
    return Briefing(
        entries=entries(reading),
        next_up=tuple(_entry(x, reading.views) for x in reading.next_up),
        carried=tuple(_carried(x, reading.views) for x in reading.carried),
        taken=tuple(
            TakenLease(
                resource=x.resource,
                scope=x.scope,
                what=x.what,
                by=x.by,
                at=moment_of(x.at),
                reason=x.reason,
            )
            for x in reading.taken
        ),
        notes=tuple(
            LeftNote(resource=x.resource.text, author=x.author, at=moment_of(x.at), text=x.text)
            for x in reading.notes
        ),
        others=reading.others,
        warnings=reading.warnings,
    )


def entries(reading: answers.QueueReading) -> tuple[QueueEntry, ...]:
    """Its tasks, in their order."""
    return tuple(_entry(x, reading.views) for x in reading.entries)


def _entry(entry: order.Entry, views: Mapping[str, Lease]) -> QueueEntry:
    return QueueEntry(**vars(entry) | {"lease": _lease_of(entry, views)})


def _carried(carry: order.Carry, views: Mapping[str, Lease]) -> CarriedTask:
    return CarriedTask(**vars(carry) | {"lease": _lease_of(carry, views)})


def _lease_of(one: order.Entry | order.Carry, views: Mapping[str, Lease]) -> Lease | None:
    return None if one.lease is None else views[one.lease.lease_id]
