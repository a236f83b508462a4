"""What the library says of the queue: the engine's answers with leases and times for programs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from gitlease.core.edge import Task
from gitlease.core.frozen import dataclass
from gitlease.core.instant import moment_of
from gitlease.core.view import Lease
from gitlease.engine import answers
from gitlease.engine.queue import order
from gitlease.engine.queue.order import Carried, WhyNot


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """A task in the queue. ``why_not`` None: the caller may claim it.

    ``who`` is the holder or assignee in the way, and ``lease`` the one that matters: that in the
    way, or the caller's own. ``waits_for`` has its open dependencies, as written, and ``depth`` how
    many of these come one after the other. ``parked``: the caller parked it, and resumes it by a
    claim of the scope of ``lease``. ``abandoned``: it is handed out last, as long as nobody was
    seen at work on it.
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
    """Something that a person carries: by the task's file, by a lease, or both.

    ``by`` has the lease: it was taken over, or is that of somebody who is assigned as well, or who
    came after a release that the file here does not know of.
    """

    resource: str
    state: Carried
    task: Task | None
    lease: Lease | None
    by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenLease:
    """What was taken from the caller, by whom and when.

    ``what``: it was ``taken_over`` or ``revoked``, or had lapsed and was ``retired``.
    """

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
    """What whoever begins should know. ``entries`` are all tasks in the order of the queue.

    ``next_up`` is what is handed out, best first; ``others`` what others hold, in every layer in
    use; ``notes`` are those of what is carried or next.
    """

    entries: tuple[QueueEntry, ...]
    next_up: tuple[QueueEntry, ...]
    carried: tuple[CarriedTask, ...]
    taken: tuple[TakenLease, ...]
    notes: tuple[LeftNote, ...]
    others: tuple[Lease, ...]
    warnings: tuple[str, ...]


# In the house these names are the engine's; to programs they are these, in help and reprs too.
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


def _entry(found: order.Entry, views: Mapping[str, Lease]) -> QueueEntry:
    return QueueEntry(**vars(found) | {"lease": _seen(found, views)})


def _carried(found: order.Carry, views: Mapping[str, Lease]) -> CarriedTask:
    return CarriedTask(**vars(found) | {"lease": _seen(found, views)})


def _seen(found: order.Entry | order.Carry, views: Mapping[str, Lease]) -> Lease | None:
    return None if found.lease is None else views[found.lease.lease_id]
