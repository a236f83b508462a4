"""When a claim has gone stale: an edge that nobody works under any more.

An edge outlives its lease, and that is what it is for; so it is stale only when for longer than
``stale.after`` nothing at all was seen of its assignee: no lease, no word in the ledger, no commit
that touches the task or its paths. The last of these, or the commit that wrote the edge, says since
when. What cannot be known is no sign of anything: it is said, and the edge is not called stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gitlease.domain.edge import Task
from gitlease.domain.frozen import dataclass
from gitlease.domain.instant import MS
from gitlease.domain.persons import Persons
from gitlease.domain.resource import WHOLE
from gitlease.domain.stale_facts import Edge, Held, Past, Sign, by_resource, is_among
from gitlease.domain.stale_signs import Signs


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleRules:
    """What the project says of stale claims. ``after`` in seconds.

    ``release``: whoever asks for it may retire the stale claims of others. ``required``: a name
    must be a task.
    """

    after: int = 7 * 86_400
    release: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True)
class Idle:
    """An edge that is stale: since when, and what shows it, the newest sign first."""

    edge: Edge
    since: int
    signs: tuple[Sign, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of some edges. ``unknown`` are those of which too little can be known here."""

    idle: tuple[Idle, ...] = ()
    unknown: tuple[Edge, ...] = ()


def open_edges(tasks: Iterable[Task], records: Sequence[Held], persons: Persons) -> list[Edge]:
    """The edges that no lease stands behind, of tasks that are neither done nor exempt."""
    of = by_resource(records)
    return [
        Edge(task, name)
        for task in tasks
        if not task.exempt and not is_done(task, of.get(task.resource.key, ()))
        for name in dict.fromkeys(task.assigned)
        if not any(
            x.live and persons.stands_for(name, x.lease.holder)
            for x in of.get(task.resource.key, ())
        )
    ]


def is_done(task: Task, records: Iterable[Held]) -> bool:
    """Whether a task is done, by its file or by the ledger."""
    return task.is_done or any(x.done and x.lease.scope == WHOLE for x in records)


def judge(
    edges: Sequence[Edge],
    signs: Signs,
    pasts: Mapping[str, Past],
    works: Mapping[Edge, Sign],
    *,
    after: int,
    now: int,
    horizon: int | None = None,
) -> Judged:
    """Which of these edges are stale, after so many seconds without a sign.

    ``works`` has what was seen in commits, of which those before ``horizon`` were not looked at.
    An edge that is not committed is young: whoever wrote it is at it.
    """
    idle: list[Idle] = []
    unknown: list[Edge] = []
    limit = now - after * MS
    for edge in edges:
        past = pasts.get(edge.task.file, Past())
        if past.committed is None or not is_among(past.committed, edge.name):
            continue
        written = signs.written(edge, past)
        work = works.get(edge)
        if work is not None and written is not None and work.commit == written.commit:
            work = None  # to assign oneself is no more than that
        seen = [x for x in (work, signs.in_ledger(edge), written) if x is not None]
        if any(sign.at >= limit for sign in seen):
            continue
        if written is None or not past.whole or (horizon is not None and horizon >= limit):
            unknown.append(edge)
            continue
        if horizon is not None and all(sign.at < horizon for sign in seen):
            seen.append(Sign(horizon, "older commits were not looked at"))
        seen.sort(key=lambda sign: -sign.at)
        idle.append(Idle(edge, seen[0].at, tuple(seen)))
    return Judged(tuple(idle), tuple(unknown))


def doubtful(
    edges: Sequence[Edge], signs: Signs, pasts: Mapping[str, Past], *, after: int, now: int
) -> list[Edge]:
    """The edges that are stale unless a commit shows life: those for which commits are read."""
    found = judge(edges, signs, pasts, {}, after=after, now=now)
    return [idle.edge for idle in found.idle] + list(found.unknown)
