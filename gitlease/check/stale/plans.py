"""What may be retired of stale claims, by the policy of the project, and what came of that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from gitlease.check.rules import LEASE_ON_DONE, LEASE_ON_GONE
from gitlease.check.stale.facts import Edge, Held, by_resource
from gitlease.check.stale.found import Board, Left
from gitlease.check.stale.idle import Idle
from gitlease.core.edge import EdgeEdit, printable
from gitlease.core.errors import GitleaseError
from gitlease.core.finding import Finding
from gitlease.core.frozen import dataclass, replace
from gitlease.core.instant import rfc3339
from gitlease.core.lease import same_person
from gitlease.core.moves.operations import MAX_REASON, Grant, Retirement
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource
from gitlease.core.view import LeaseView
from gitlease.engine.answers import Answer
from gitlease.engine.edges import Planned
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import Written
from gitlease.engine.retirement import RetirePlan
from gitlease.engine.sessions import AT_ONCE

NOT_ALLOWED = "only its holder may retire it, since stale.release is not true"
LIVE = "it is live: only its holder ends it"
BY_HAND = "that is for a person to decide"
MEANWHILE = "not any more: {}"
_WHY = {LEASE_ON_DONE: "the task is done", LEASE_ON_GONE: "its task file is gone"}


@dataclass(frozen=True, slots=True)
class Fixable:
    """What may be retired of one resource, and the findings that go with it."""

    findings: tuple[Finding, ...]
    wish: RetirePlan


@dataclass(frozen=True, slots=True)
class Stays:
    """A finding that is not retired, and why not; ``next_steps`` has what to type, if anything."""

    finding: Finding
    why: str
    next_steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """What was found: the worst first. ``left`` are the findings that nothing here may retire.

    ``unread`` is what could not be looked at, records of the ledgers and what this clone lacks: it
    is no pass then.
    """

    findings: tuple[Finding, ...] = ()
    unread: tuple[str, ...] = ()
    fixable: tuple[Fixable, ...] = ()
    left: tuple[Stays, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """What was retired, and what stays; ``commit`` has the id of the commit of the edges.

    ``undone`` says of which task files the edit or its commit failed: the ledger has it already.
    """

    fixed: tuple[Finding, ...] = ()
    left: tuple[Stays, ...] = ()
    leases: tuple[LeaseView, ...] = ()
    undone: tuple[str, ...] = ()
    refused: tuple[GitleaseError, ...] = ()
    commit: str | None = None
    changed: bool = False
    warnings: tuple[str, ...] = ()


class Plans:
    """Plans the retirement of what was found, as the actor of a lease service may have it."""

    def __init__(self, board: Board, service: LedgerSession) -> None:
        self._board, self._layer = board, service.layer
        self._records = by_resource(board.records)
        self._holder, self._people = service.actor.holder, service.edges.rules.people
        self._parts: dict[Resource, _Part] = {}
        self._stays: list[Stays] = []

    def plan(
        self,
        findings: Sequence[Finding],
        idle: Sequence[tuple[Idle, Finding]],
        leases: Sequence[Left],
        also: Mapping[Edge, Finding],
    ) -> tuple[tuple[Fixable, ...], tuple[Stays, ...]]:
        """What may be retired, by resource, and why not the rest of the findings.

        ``also`` has findings that are settled when an edge goes.
        """
        for one, finding in idle:
            more = also.get(one.edge)
            self._edge(one, [finding] if more is None else [finding, more])
        for left in leases:
            self._lease(left)
        fixable = tuple(
            Fixable(tuple(part.findings), part.wish(resource, self._board))
            for resource, part in self._parts.items()
        )
        planned = {id(f) for one in fixable for f in one.findings}
        planned |= {id(one.finding) for one in self._stays}
        rest = (Stays(f, BY_HAND) for f in findings if id(f) not in planned)
        return fixable, (*self._stays, *rest)

    def _edge(self, idle: Idle, findings: Sequence[Finding]) -> None:
        """A stale edge goes with the leases that it is left of."""
        persons, edge = self._board.persons, idle.edge
        lapsed = [
            x
            for x in self._records.get(edge.task.resource.key, ())
            if x.lapsed and persons.stands_for(edge.name, x.lease.holder)
        ]
        if self._may(findings[0], lapsed, own=self._people.is_mine(edge.name, self._holder)):
            why = f"no sign of work since {rfc3339(idle.since)}"
            note = f"was assigned to {persons.called(edge.name)}: {why}"
            self._retire(edge.task.resource, findings, lapsed, why, note).idle.append(idle)

    def _lease(self, left: Left) -> None:
        finding, lease = left.finding, left.record.lease
        if not left.record.lapsed:
            self._stays.append(Stays(finding, LIVE))
        elif self._may(finding, [left.record], own=same_person(lease.holder, self._holder)):
            ended = rfc3339(lease.expires_at)
            why, note = _WHY.get(finding.rule, f"lapsed since {ended}"), ""
            if lease.edge and finding.rule not in _WHY:
                note = f"was held by {lease.holder}, whose lease lapsed at {ended}"
            self._retire(lease.resource, [finding], [left.record], why, note)

    def _retire(
        self,
        resource: Resource,
        findings: Sequence[Finding],
        records: Sequence[Held],
        why: str,
        note: str,
    ) -> _Part:
        part = self._parts.setdefault(resource, _Part())
        part.findings += findings
        part.records += records
        part.reasons.append(why)
        part.notes += [note] if note else []
        return part

    def _may(self, finding: Finding, records: Sequence[Held], *, own: bool) -> bool:
        """Whether it may be retired here; what stays is noted with the reason."""
        layer = next((x.layer for x in records if x.layer != self._layer), None)
        why = None if own or self._board.rules.release else NOT_ALLOWED
        if why is None and layer is not None:
            why = f"its lease lies in the layer {layer}, and is retired there: --layer {layer}"
        if why is not None:
            self._stays.append(Stays(finding, why))
        return why is None


class _Part:
    """What is to be retired of one resource."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.records: list[Held] = []
        self.idle: list[Idle] = []
        self.reasons: list[str] = []
        self.notes: list[str] = []

    def wish(self, resource: Resource, board: Board) -> RetirePlan:
        persons, names = board.persons, [x.edge.name for x in self.idle]
        leases = [record.lease for record in self.records]
        grants = (Grant(x.resource, x.scope, x.session, x.lease_id, x.token) for x in leases)
        item = Retirement(
            resource=resource,
            reason="; ".join(dict.fromkeys(self.reasons))[:MAX_REASON],
            grants=tuple(dict.fromkeys(grants)),
            assigned=True,  # it is the holder's own, or the project's policy allows it
            unassigned=tuple(map(persons.assignee, names)),
            note="; ".join(dict.fromkeys(self.notes))[:MAX_REASON] or None,
        )
        if not names:
            return RetirePlan(item)
        who = ", ".join(map(persons.called, names))
        since = rfc3339(max(x.since for x in self.idle))[:10]
        planned = Planned(
            resource=resource,
            task=self.idle[0].edge.task,
            edit=EdgeEdit(remove=tuple(names)),
            message=f"unassign {resource} from {who}: idle since {since}",
        )
        return RetirePlan(item, planned)


def chunks(fixable: Sequence[Fixable]) -> Iterator[list[Fixable]]:
    """What one step retires: no more than its line of the audit trail can tell."""
    some: list[Fixable] = []
    size = 0
    for one in fixable:
        item = one.wish.item
        more = len(item.grants) + len(item.unassigned)
        if some and size + more > AT_ONCE:
            yield some
            some, size = [], 0
        some.append(one)
        size += more
    if some:
        yield some


def joined(fixed: Fixed, asked: Sequence[Fixable], answer: Answer) -> Fixed:
    """What was fixed so far, with the answer of another step."""
    against = {fold(e.resource or ""): e for e in answer.refused}
    undone = {w.change.resource.key: w for w in answer.written if w.problem}
    done: list[Finding] = []
    left: list[Stays] = []
    for one in asked:
        key = one.wish.item.resource.key
        if key in undone:
            left += [_half_done(finding, undone[key]) for finding in one.findings]
        elif key in against:
            left += [Stays(f, MEANWHILE.format(against[key].message)) for f in one.findings]
        else:
            done += one.findings
    commits = [w.commit for w in answer.written if w.commit is not None]
    return replace(
        fixed,
        fixed=(*fixed.fixed, *done),
        left=(*fixed.left, *left),
        leases=(*fixed.leases, *answer.leases),
        undone=(*fixed.undone, *map(_unwritten, undone.values())),
        refused=(*fixed.refused, *answer.refused),
        commit=fixed.commit or next(iter(commits), None),
        changed=fixed.changed or answer.changed,
        warnings=tuple(dict.fromkeys((*fixed.warnings, *answer.warnings))),
    )


def _half_done(finding: Finding, written: Written) -> Stays:
    """What is retired in the ledger, while the edge is not gone from the branch."""
    file, message = quote(written.change.file), quote(written.change.message)
    steps = (f"git commit -m {message} -- {file}",) if written.changed else ()
    return Stays(finding, _unwritten(written), steps)


def _unwritten(written: Written) -> str:
    file = printable(written.change.file)
    edited = f"{file} is edited, but" if written.changed else f"{file}:"
    return f"{edited} {written.problem}"
