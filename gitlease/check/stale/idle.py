"""When a claim has gone stale: an edge that nobody works under any more.

An edge outlives its lease, and that is what it is for; so it is stale only when for longer than
``stale.after`` nothing at all was seen of its assignee: no lease, no word in the ledger, no commit
that touches the task or its paths. The last of these, or the commit that wrote the edge, says since
when. If that cannot be known, it is reported as unknown, and the edge is not called stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gitlease.check.stale.facts import BranchWork, Edge, Held, Past, Sign, by_resource, is_among
from gitlease.core.edge import Task
from gitlease.core.frozen import dataclass
from gitlease.core.instant import MS
from gitlease.core.moves.conflicts import finishing
from gitlease.core.moves.retiring import RETIRED
from gitlease.core.outcome import Event
from gitlease.core.persons import Persons
from gitlease.core.resources import pattern
from gitlease.core.resources.pattern import fold

SKEW = 86_400 * MS  # how far in the future a date is still believed
SHORT = 10  # digits of a commit's id in messages


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleRules:
    """The project's settings for stale claims. ``after`` and ``grace`` in seconds.

    ``grace``: how long after a claim its edge may still be on its way; None: the lease's TTL.
    ``release``: anybody may retire the stale claims of others. ``required``: a name must be a task.
    """

    after: int = 7 * 86_400
    grace: int | None = None
    release: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True)
class Idle:
    """A stale edge: since when, and the last signs of life, the newest first."""

    edge: Edge
    since: int
    signs: tuple[Sign, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """The stale ones of some edges, and those about which too little is known here."""

    idle: tuple[Idle, ...] = ()
    unknown: tuple[Edge, ...] = ()


def open_edges(tasks: Iterable[Task], records: Sequence[Held], persons: Persons) -> list[Edge]:
    """The edges without a live lease, of tasks that are neither done nor exempt."""
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
    found = list(records)
    whole = {x.lease_id for x in finishing([record.lease for record in found])}
    return task.is_done or any(x.done and x.lease.lease_id in whole for x in found)


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
    """Which of these edges are stale, after so many seconds without a sign of life.

    ``works`` has the signs in commits; those before ``horizon`` were not read. An edge that is not
    committed is young: its author is at it.
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
            work = None  # assigning oneself is not work
        seen = [x for x in (work, signs.in_ledger(edge), written) if x is not None]
        if any(sign.at >= limit for sign in seen):
            continue
        if written is None or not past.whole or (horizon is not None and horizon >= limit):
            unknown.append(edge)
            continue
        if horizon is not None and all(sign.at < horizon for sign in seen):
            seen.append(Sign(horizon, "older commits were not read"))
        seen.sort(key=lambda sign: -sign.at)
        idle.append(Idle(edge, seen[0].at, tuple(seen)))
    return Judged(tuple(idle), tuple(unknown))


def doubtful(
    edges: Sequence[Edge], signs: Signs, pasts: Mapping[str, Past], *, after: int, now: int
) -> list[Edge]:
    """The edges that are stale unless a commit shows life: for these, commits are read."""
    found = judge(edges, signs, pasts, {}, after=after, now=now)
    return [idle.edge for idle in found.idle] + list(found.unknown)


# --- signs of life --------------------------------------------------------------------------------


class Signs:
    """The signs of life of assignees, in the ledger and in commits."""

    def __init__(
        self, persons: Persons, records: Sequence[Held], events: Iterable[Event], now: int
    ) -> None:
        self._persons, self._now = persons, now
        self._records = by_resource(records)
        self._events: dict[str, list[Event]] = {}
        for event in events:
            if event.resource is not None:
                self._events.setdefault(fold(event.resource), []).append(event)

    def of(self, task: Task) -> Sequence[Held]:
        """The records of a task."""
        return self._records.get(task.resource.key, ())

    def in_ledger(self, edge: Edge) -> Sign | None:
        """The end of the last lease, or the last event of the audit trail.

        The retirement of an edge does not count: it is still here.
        """
        key, name, stands_for = edge.task.resource.key, edge.name, self._persons.stands_for
        found = [
            Sign(self._past(x.lease.expires_at), "the last lease expired")
            for x in self._records.get(key, ())
            if x.lapsed and stands_for(name, x.lease.holder)
        ]
        found += [
            Sign(self._past(e.at), f"{e.kind.replace('_', ' ')}, says the ledger")
            for e in self._events.get(key, ())
            if e.kind != RETIRED
            and any(who is not None and stands_for(name, who) for who in (e.holder, e.by))
        ]
        return max(found, key=lambda sign: sign.at, default=None)

    def written(self, edge: Edge, past: Past) -> Sign | None:
        """The commit that wrote the edge; None if it cannot be found."""
        version = past.written(edge.name)
        if version is not None:
            what = f"assigned in {version.commit[:SHORT]}"
            return Sign(self._past(version.at), what, version.commit)
        if past.whole and past.horizon is not None:
            return Sign(self._past(past.horizon), "assigned before the oldest commit that was read")
        return None

    def in_commits(
        self, edges: Sequence[Edge], pasts: Mapping[str, Past], works: Iterable[BranchWork]
    ) -> Mapping[Edge, Sign]:
        """The last commit of each assignee that touches the task's file or its paths."""
        touches = _Touches(edges, pasts)
        whose = {edge: self._persons.persons(edge.name) for edge in edges}
        concerned = frozenset[str]().union(*whose.values()) if whose else frozenset()
        found: dict[Edge, Sign] = {}
        for work in works:
            by: dict[str, int] = {}
            for email, at in work.by:
                usual = self._persons.usual(email)
                # A date far in the future does not tell when it was.
                if usual in concerned and at <= self._now + SKEW:
                    by[usual] = max(at, by.get(usual, at))
            if not by:
                continue
            for edge in touches.of(work.paths):
                at = self._past(max((by[p] for p in whose[edge] if p in by), default=-1))
                if at >= 0 and (edge not in found or at > found[edge].at):
                    what = f"worked on it in {work.commit[:SHORT]}"
                    found[edge] = Sign(at, what, work.commit)
        return found

    def _past(self, at: int) -> int:
        return min(at, self._now)


class _Touches:
    """Finds the edges that a path belongs to, by file or by the first literal segment."""

    def __init__(self, edges: Sequence[Edge], pasts: Mapping[str, Past]) -> None:
        self._files: dict[str, list[Edge]] = {}
        self._below: dict[str | None, list[tuple[pattern.Pattern, Edge]]] = {}
        for edge in edges:
            past = pasts.get(edge.task.file)
            for file in (edge.task.file, *(past.former if past else ())):
                self._files.setdefault(file, []).append(edge)
            for text in edge.task.paths:
                parsed = pattern.parse(text)
                head = parsed.head[0] if parsed.head else None
                self._below.setdefault(head, []).append((parsed, edge))

    def of(self, paths: Iterable[str]) -> list[Edge]:
        found: dict[Edge, None] = {}
        for path in paths:
            found.update(dict.fromkeys(self._files.get(path, ())))
            for head in (fold(path.split("/", 1)[0]), None):
                for parsed, edge in self._below.get(head, ()):
                    if edge not in found and pattern.covers(parsed, path):
                        found[edge] = None
        return list(found)
