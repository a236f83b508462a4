"""What may be retired of stale claims, by the policy of the project, and what came of that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote

from gitlease.check.rules import LEASE_ON_DONE, LEASE_ON_GONE
from gitlease.check.stale.facts import Held, by_resource
from gitlease.check.stale.found import Board
from gitlease.check.stale.idle import Idle
from gitlease.core.edge import EdgeEdit, printable
from gitlease.core.errors import GitleaseError
from gitlease.core.finding import Finding
from gitlease.core.frozen import dataclass, field, replace
from gitlease.core.instant import rfc3339
from gitlease.core.lease import same_person
from gitlease.core.moves.operations import MAX_REASON, Retirement, grant_of
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource
from gitlease.core.view import LeaseView
from gitlease.engine.answers import Answer
from gitlease.engine.edges import Planned
from gitlease.engine.end import RetirePlan
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import Written
from gitlease.engine.sessions import AT_ONCE

NOT_ALLOWED = "only its holder may retire it, since stale.release is not true"
LIVE = "it is live: its holder ends it, or an admin revokes it"
BY_HAND = "that is for a person to decide"
OTHER_LAYER = "its lease lies in the layer {0}, and is retired there: --layer {0}"
_WHY = {LEASE_ON_DONE: "the task is done", LEASE_ON_GONE: "its task file is gone"}


@dataclass(frozen=True, slots=True)
class Fixable:
    """What may be retired of one resource, and the findings that go with it."""

    findings: tuple[Finding, ...]
    wish: RetirePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """What was found, the worst first. ``stays`` says why nothing here may retire the others.

    ``unread`` is what could not be looked at, records of the ledgers and what this clone lacks: it
    is no pass then.
    """

    findings: tuple[Finding, ...] = ()
    unread: tuple[str, ...] = ()
    fixable: tuple[Fixable, ...] = ()
    stays: Mapping[Finding, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """What was retired, and the ``findings`` that stay, each with the reason.

    ``commit`` has the id of the commit of the edges. ``undone`` says of which task files the edit
    or its commit failed: the ledger has it already.
    """

    fixed: tuple[Finding, ...] = ()
    findings: tuple[Finding, ...] = ()
    leases: tuple[LeaseView, ...] = ()
    undone: tuple[str, ...] = ()
    refused: tuple[GitleaseError, ...] = ()
    commit: str | None = None
    warnings: tuple[str, ...] = ()


class Plans:
    """Plans the retirement of what was found, as the actor of a lease service may have it."""

    def __init__(self, board: Board, service: LedgerSession) -> None:
        self._board, self._layer = board, service.layer
        self._records = by_resource(board.records)
        self._holder, self._people = service.actor.holder, service.edges.rules.people
        self._parts: dict[Resource, _Part] = {}
        self._stays: dict[Finding, str] = {}

    def fixable(self) -> tuple[Fixable, ...]:
        """What may be retired, by resource."""
        return tuple(
            Fixable(tuple(part.findings), part.wish(resource, self._board))
            for resource, part in self._parts.items()
        )

    def stays(self, findings: Iterable[Finding]) -> Mapping[Finding, str]:
        """Why the rest of these is not retired."""
        planned = {finding for part in self._parts.values() for finding in part.findings}
        return {f: self._stays.get(f, BY_HAND) for f in findings if f not in planned}

    def edge(self, idle: Idle, findings: Sequence[Finding]) -> None:
        """A stale edge goes with the leases that it is left of, and all that is found of it."""
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

    def lease(self, record: Held, finding: Finding) -> None:
        """A lease that lapsed goes, a live one stays."""
        lease = record.lease
        if not record.lapsed:
            self._stays[finding] = LIVE
        elif self._may(finding, [record], own=same_person(lease.holder, self._holder)):
            ended = rfc3339(lease.expires_at)
            why, note = _WHY.get(finding.rule, f"lapsed since {ended}"), ""
            if lease.edge and finding.rule not in _WHY:
                note = f"was held by {lease.holder}, whose lease lapsed at {ended}"
            self._retire(lease.resource, [finding], [record], why, note)

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
        if not own and not self._board.rules.release:
            self._stays[finding] = NOT_ALLOWED
        elif layer is not None:
            self._stays[finding] = OTHER_LAYER.format(layer)
        return finding not in self._stays


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
        grants = map(grant_of, leases)
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


def not_fixed(finding: Finding, why: str, *steps: str) -> Finding:
    """A finding with why it was not fixed, and what to type where that differs then."""
    said = (*finding.evidence, f"not fixed: {why}")
    return replace(finding, evidence=said, next_steps=steps or finding.next_steps)


def came_of(some: Sequence[Fixable], answer: Answer) -> dict[Finding, Finding]:
    """The findings that stay after a step, each with the reason."""
    against = {fold(e.resource or ""): e for e in answer.refused}
    undone = {w.change.resource.key: w for w in answer.written if w.problem}
    left = {}
    for one in some:
        key = one.wish.item.resource.key
        for finding in one.findings:
            if key in undone:
                left[finding] = _half_done(finding, undone[key])
            elif key in against:
                left[finding] = not_fixed(finding, f"not any more: {against[key].message}")
    return left


def _half_done(finding: Finding, written: Written) -> Finding:
    """What is retired in the ledger, while the edge is not gone from the branch."""
    file, message = quote(written.change.file), quote(written.change.message)
    steps = (f"git commit -m {message} -- {file}",) if written.changed else ()
    return not_fixed(finding, unwritten(written), *steps)


def unwritten(written: Written) -> str:
    """What went wrong with the edit of a task file."""
    file = printable(written.change.file)
    edited = f"{file} is edited, but" if written.changed else f"{file}:"
    return f"{edited} {written.problem}"
