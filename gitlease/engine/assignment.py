"""Who is assigned to a task, by the ledger's records and its task files: all views ask here.

What the ledger decided last about a holder and a task outranks an older edge in any file: after a
release, an assignment that a branch still has protects nothing, until the holder claims again or
a newer commit assigns them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gitlease.core.edge import Assignee, People, Task, printable
from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass, replace
from gitlease.core.lease import Lease, Moment, State, is_abandoned, same_person
from gitlease.core.moves.operations import Event
from gitlease.core.policy import Policy
from gitlease.core.resources.pattern import fold

if TYPE_CHECKING:
    from gitlease.engine.ledger_session import LedgerSession

RECORD, FILE = "record", "file"
GRANTED = frozenset({"claimed", "taken_over"})
ENDED = frozenset({"released", "completed", "displaced", "retired"})
LOOKED_BACK = 5_000  # events of the audit trail that are read for decisions


@dataclass(frozen=True, slots=True)
class Assigned:
    """A person to whom a task is assigned: the holder if one is known, else the file's name.

    ``places``: ``record`` if the ledger's record of a claim says so, ``file`` if a task file does.
    ``spelt`` is the name as it stands in the file, or would.
    """

    name: str
    places: tuple[str, ...]
    spelt: str


def assigned_to(
    task: Task | None,
    records: Iterable[Lease],
    people: People,
    policy: Policy,
    moment: Moment,
) -> tuple[Assigned, ...]:
    """Everyone to whom a task is assigned, and where that stands.

    ``task`` comes from ``Edges.read``, without assignments that the ledger outranks. ``records``
    are those of the task. What nobody came back to for too long is no assignment any more.
    """
    holders: list[str] = []
    for x in records:
        kept = x.state is State.ACTIVE and x.edge and not is_abandoned(x, policy, moment)
        if kept and not any(same_person(x.holder, known) for known in holders):
            holders.append(x.holder)
    found: list[Assigned] = []
    for name in task.assigned if task is not None else ():
        known = next((x for x in holders if people.is_mine(name, x)), None)
        if known is not None:
            holders.remove(known)
        mapped = people.holders_of(name)
        shown = known or (mapped[0] if len(mapped) == 1 else printable(name))
        found.append(Assigned(shown, (FILE,) if known is None else (RECORD, FILE), name))
    return (*found, *(Assigned(x, (RECORD,), _spelt(people, x)) for x in holders))


def _spelt(people: People, holder: str) -> str:
    try:
        return people.name_of(holder)
    except Invalid:  # the map gives that name to somebody else
        return holder


def with_records(
    task: Task, records: Iterable[Lease], people: People, policy: Policy, moment: Moment
) -> Task:
    """The task with the names of those to whom the ledger's records assign it."""
    found = assigned_to(task, records, people, policy, moment)
    return replace(task, records=tuple(x.spelt for x in found if RECORD in x.places))


class Decisions:
    """What a ledger decided last about holders and tasks, by its audit trail."""

    def __init__(self, session: LedgerSession) -> None:
        self._session = session
        self._mark: str | None = None
        self._events: dict[str, list[Event]] = {}

    def deepen(self) -> None:
        """Fetch what the first contact left out of the audit trail."""
        if self._session.store.deepen(self._session.layer):
            self._mark = None

    def outranked(self, task: Task, ref: str | None = None) -> tuple[str, ...]:
        """The names in a task's file whose assignment is older than the end of their work on it."""
        ended = [(name, at) for name in task.assigned if (at := self._ended(task, name))]
        files = self._session.edges.files
        return tuple(
            name
            for name, at in ended
            if (since := files.assigned_since(task, name, ref)) is not None and since <= at
        )

    def own_at(self, task: Task) -> int | None:
        """When the ledger last granted the caller a task, or took it back, in milliseconds."""
        holder = self._session.actor.holder
        own = (x for x in self._of(task.resource.key) if same_person(x.holder or "", holder))
        return next((x.at for x in own if x.kind in (*GRANTED, "released")), None)

    def _ended(self, task: Task, name: str) -> int | None:
        people = self._session.edges.rules.people
        assignee = Assignee(name, people.holders_of(name), people.handles)
        for event in self._of(task.resource.key):
            if assignee.is_holder(event.holder or ""):
                return event.at if event.kind in ENDED else None
        return None

    def _of(self, key: str) -> Sequence[Event]:
        session = self._session
        head = session.store.known(session.layer)
        mark = "" if head is None else head.version
        if mark != self._mark:
            self._mark, self._events = mark, {}
            history = session.store.history(session.layer, LOOKED_BACK) if mark else ()
            for event in history:
                if event.resource and event.kind in (GRANTED | ENDED):
                    self._events.setdefault(fold(event.resource), []).append(event)
        return self._events.get(key, ())
