"""Signs of life: what was seen of assignees, in the ledger and in commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gitlease.domain import pattern
from gitlease.domain.instant import MS
from gitlease.domain.outcome import Event
from gitlease.domain.pattern import fold
from gitlease.domain.persons import Persons
from gitlease.domain.stale_facts import Edge, Held, Past, Sign, Work, by_resource

RETIRED = "retired"
SKEW = 86_400 * MS  # what a date may lie in the future before it is not believed
SHORT = 10  # digits of a commit's id that people are shown


class Signs:
    """What was seen of assignees: in the ledger, and in commits."""

    def __init__(
        self, persons: Persons, records: Sequence[Held], events: Iterable[Event], now: int
    ) -> None:
        self._persons, self._now = persons, now
        self._records = by_resource(records)
        self._events: dict[str, list[Event]] = {}
        for event in events:
            if event.resource is not None:
                self._events.setdefault(fold(event.resource), []).append(event)

    def in_ledger(self, edge: Edge) -> Sign | None:
        """The end of the last lease, or the last word of the audit trail.

        That an edge was retired is none: it is still here, so nothing came of it.
        """
        key, name, stands_for = edge.task.resource.key, edge.name, self._persons.stands_for
        found = [
            Sign(self._past(x.lease.expires_at), "the last lease ran out")
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
        """The commit that wrote the edge; None where that cannot be found."""
        version = past.written(edge.name)
        if version is not None:
            what = f"assigned in {version.commit[:SHORT]}"
            return Sign(self._past(version.at), what, version.commit)
        if past.whole and past.horizon is not None:
            return Sign(self._past(past.horizon), "assigned before what was looked at")
        return None

    def in_commits(
        self, edges: Sequence[Edge], pasts: Mapping[str, Past], works: Iterable[Work]
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
                # A date that is yet to come says nothing of when it was.
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
        """A time as it can be: nobody was seen in the future, whatever a clock said."""
        return min(at, self._now)


class _Touches:
    """Which edges a path belongs to: found by the file, or the first literal segment of a path."""

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
