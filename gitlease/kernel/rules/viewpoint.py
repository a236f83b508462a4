"""The guard's rules: which leases of others a change touches, and whether that blocks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from gitlease.kernel.rules import resources
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.lease import (
    Actor,
    Lease,
    Moment,
    Policy,
    Relation,
    State,
    relation,
    same_person,
)
from gitlease.kernel.rules.lease_view import LeaseView, view_lease
from gitlease.kernel.rules.resources import fold, scopes_overlap
from gitlease.kernel.rules.work import Authorship, Named

if TYPE_CHECKING:
    pass


class Severity(Enum):
    """The effect of a finding in guard mode ``block``."""

    BLOCK = "block"
    WARN = "warn"


# A person without a session is only warned about their own runs; so is everybody about lapsed
# leases, which may be taken.
SEVERITIES: Mapping[Relation, Severity] = {
    Relation.THEIRS: Severity.BLOCK,
    Relation.MY_OTHER_RUN: Severity.BLOCK,
    Relation.MY_RUN: Severity.WARN,
    Relation.THEIRS_ASSIGNED: Severity.WARN,
    Relation.THEIRS_ABANDONED: Severity.WARN,
    Relation.THEIRS_LAPSED: Severity.WARN,
}


@dataclass(frozen=True)
class Touched:
    """A path that a change touches, relative to the root; a rename touches both of its paths.

    ``tasks`` are the folded names of the tasks whose file it is or was. ``folder``: it includes
    everything below it, being a submodule. ``lost`` is the work that a merge drops there by
    following another side: the change concerns only those who did that work.
    """

    path: str
    tasks: frozenset[str] = frozenset()
    folder: bool = False
    lost: tuple[Authorship, ...] = ()

    def joined(self, other: Touched) -> Touched:
        """Merge two of the same path."""
        # A side without lost work is a plain change, which concerns every holder.
        lost = tuple(dict.fromkeys(self.lost + other.lost)) if self.lost and other.lost else ()
        return Touched(self.path, self.tasks | other.tasks, self.folder or other.folder, lost)

    def concerns(self, lease: Lease, actor: Actor) -> bool:
        """Tell whether it is a change to this lease, if that covers it."""
        if not self.lost:
            return True
        named = ((x.key, x.token) for work in self.lost for x in work.named)
        if (lease.resource.key, lease.token) in named:
            return True
        # Between the runs of one person only the trailers distinguish whose work a commit is.
        people = (person for work in self.lost for person in work.people)
        return not lease.same_holder(actor) and any(same_person(lease.holder, x) for x in people)


@dataclass(frozen=True)
class GuardFinding:
    """A touched path that is covered by somebody's lease; ``commit`` is the id of one of a push."""

    path: str
    lease: Lease
    severity: Severity
    commit: str = ""

    @property
    def place(self) -> str:
        """The path, with the commit of a push that touches it."""
        return f"{self.path} (commit {self.commit[:10]})" if self.commit else self.path


@dataclass(frozen=True)
class Viewpoint:
    """An actor's view of leases, by the policy of their ledger, at one moment."""

    actor: Actor
    policy: Policy
    moment: Moment

    def judge(self, touched: Sequence[Touched], leases: Iterable[Lease]) -> list[GuardFinding]:
        """Everything touched that a lease of others covers: blocking ones first, then by path.

        A lease covers its own path, those of its task, and its task's file. A path that the actor's
        own lease on another scope of the same task covers as well is free to both.
        """
        judged = [(x, self.severity(x)) for x in leases]
        against = [(x, severity) for x, severity in judged if severity is not None]
        cover = Cover([x for x, _ in against])
        names = {x.resource.key for x, _ in against}
        # Where scopes divide a task, each of its holders works on the paths of all.
        mine = [x for x, how in judged if how is None and x.resource.key in names]
        mine = [x for x in mine if self.works_under(x)]
        own_cover = Cover(mine)
        findings = [
            GuardFinding(change.path, *against[n])
            for change in touched
            for n in cover.matching(change)
            if change.concerns(against[n][0], self.actor)
            and not any(
                mine[m].resource == against[n][0].resource for m in own_cover.matching(change)
            )
        ]
        return sorted(
            # What stops the change must not be lost below a long list of warnings.
            findings,
            key=lambda f: (f.severity is not Severity.BLOCK, f.path, f.lease.key),
        )

    def severity(self, lease: Lease) -> Severity | None:
        """The severity of touching this lease; None if the actor may, as under a parent session."""
        # An agent works under what it was started under.
        if lease.is_of_parent(self.actor):
            return None
        return SEVERITIES.get(relation(lease, self.actor, self.policy, self.moment))

    def under(
        self, touched: Sequence[Touched], leases: Iterable[Lease], *, parents: bool = False
    ) -> list[Lease]:
        """The actor's own live leases that a change falls under, in the order of their resources.

        ``parents``: also those of the session that started the actor's.
        """
        mine = [x for x in leases if self.works_under(x, parents=parents)]
        cover = Cover(mine)
        matches = {n for change in touched for n in cover.matching(change)}
        return sorted((mine[n] for n in matches), key=lambda x: x.key)

    def vouches(self, named: Named, records: Iterable[Lease]) -> bool:
        """Tell whether the actor holds what a commit names, or finished it, by its records.

        Whoever holds a resource vouches for the commits of earlier leases that they push.
        """
        return any(self._answers_for(x) for x in _named_by(named, records))

    def vouching(self, named: Named, records: Iterable[Lease]) -> list[Lease]:
        """The actor's live leases by which it vouches for a commit."""
        return [x for x in _named_by(named, records) if self.works_under(x)]

    def _answers_for(self, lease: Lease) -> bool:
        if lease.state is State.COMPLETED:
            return lease.same_holder(self.actor)
        return self.works_under(lease, parents=True)

    def seen(self, lease: Lease, layer: str) -> LeaseView:
        """The lease as the actor sees it."""
        return view_lease(
            lease, layer=layer, actor=self.actor, policy=self.policy, moment=self.moment
        )

    def works_under(self, lease: Lease, *, parents: bool = False) -> bool:
        """Return whether it is the actor's own live lease, and not parked by an older version."""
        return self.as_own(lease, parents=parents) is Relation.MINE and not lease.parked

    def as_own(self, lease: Lease, *, parents: bool = False) -> Relation:
        """The lease's relation to the actor; with ``parents`` also as its parent session's own."""
        actor = self.actor
        if parents and lease.is_of_parent(actor):
            actor = replace(actor, session=lease.session)
        return relation(lease, actor, self.policy, self.moment)


def _named_by(named: Named, records: Iterable[Lease]) -> Iterable[Lease]:
    return (
        x for x in records if x.resource.key == named.key and scopes_overlap(x.scope, named.scope)
    )


class Cover:
    """An index of leases by the paths that they cover."""

    # Literal patterns are looked up by all of their segments, those with wildcards by the first: a
    # commit may have very many files, and a ledger very many leases.
    def __init__(self, leases: Sequence[Lease]) -> None:
        self._tasks: dict[str, list[int]] = {}
        self._literal: dict[tuple[str, ...], list[int]] = {}
        self._wild: dict[str | None, list[tuple[resources.Pattern, int]]] = {}
        for number, lease in enumerate(leases):
            if not lease.resource.is_path:
                self._tasks.setdefault(fold(lease.resource.text), []).append(number)
            for text in lease.patterns:
                parsed = resources.parse(text)
                if parsed.is_literal:
                    self._literal.setdefault(parsed.head, []).append(number)
                else:
                    head = parsed.head[0] if parsed.head else None
                    self._wild.setdefault(head, []).append((parsed, number))

    def matching(self, change: Touched) -> set[int]:
        """The indexes of the leases that cover a path, by pattern or as their task's file."""
        matches = {number for name in change.tasks for number in self._tasks.get(name, ())}
        segments = tuple(fold(change.path).split("/"))
        for end in range(1, len(segments) + 1) if all(segments) else ():
            matches.update(self._literal.get(segments[:end], ()))
        # A submodule is one entry of a commit: leases below it are touched, too.
        if change.folder:
            depth = len(segments)
            below = (some for head, some in self._literal.items() if head[:depth] == segments)
            matches.update(number for some in below for number in some)
        for head in (segments[0], None):
            for parsed, number in self._wild.get(head, ()):
                if number not in matches and _covers(parsed, change):
                    matches.add(number)
        return matches


def _covers(parsed: resources.Pattern, change: Touched) -> bool:
    if not change.folder:
        return resources.covers(parsed, change.path)
    try:
        return resources.overlap(parsed, resources.parse(resources.escape(change.path)))
    except resources.PatternError:
        # A name that no pattern can have may still lie below one.
        segments = fold(change.path).split("/")
        return all(a == b for a, b in zip(parsed.head, segments, strict=False))
