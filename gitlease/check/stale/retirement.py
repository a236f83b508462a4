"""Which stale claims may be retired by the project's settings, and the results of doing so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote

from gitlease.check.rules import LEASE_ON_DONE, LEASE_ON_GONE
from gitlease.check.stale.facts import Held, by_resource
from gitlease.check.stale.findings import Board
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
LIVE = "it is live: only its holder or an admin can end it"
BY_HAND = "that is for a person to decide"
OTHER_LAYER = "its lease is in layer {0}: --layer {0} retires it"
_WHY = {LEASE_ON_DONE: "the task is done", LEASE_ON_GONE: "its task file is gone"}


@dataclass(frozen=True, slots=True)
class Fixable:
    """What may be retired of one resource, and the findings that this fixes."""

    findings: tuple[Finding, ...]
    plan: RetirePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """What was found, the worst first. ``stays`` says why the findings that stay are not fixable.

    ``unread`` is what could not be checked, such as unreadable records and missing commits: the
    check has not passed then.
    """

    findings: tuple[Finding, ...] = ()
    unread: tuple[str, ...] = ()
    fixable: tuple[Fixable, ...] = ()
    stays: Mapping[Finding, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """What was retired, and the ``findings`` that stay, each with the reason.

    ``commit`` is the id of the commit of the edges. ``undone`` are the failed edits of task files,
    or their failed commits: the ledger is ahead of them.
    """

    fixed: tuple[Finding, ...] = ()
    findings: tuple[Finding, ...] = ()
    leases: tuple[LeaseView, ...] = ()
    undone: tuple[str, ...] = ()
    refused: tuple[GitleaseError, ...] = ()
    commit: str | None = None
    warnings: tuple[str, ...] = ()


class Plans:
    """Plans the retirement of what was found, as far as the actor may."""

    def __init__(self, board: Board, service: LedgerSession) -> None:
        self._board, self._layer = board, service.layer
        self._records = by_resource(board.records)
        self._holder, self._people = service.actor.holder, service.edges.rules.people
        self._parts: dict[Resource, _Part] = {}
        self._stays: dict[Finding, str] = {}

    def fixable(self) -> tuple[Fixable, ...]:
        """The retirements, by resource."""
        return tuple(
            Fixable(tuple(part.findings), part.plan(resource, self._board))
            for resource, part in self._parts.items()
        )

    def stays(self, findings: Iterable[Finding]) -> Mapping[Finding, str]:
        """Why the others of these are not retired."""
        planned = {finding for part in self._parts.values() for finding in part.findings}
        return {f: self._stays.get(f, BY_HAND) for f in findings if f not in planned}

    def edge(self, idle: Idle, findings: Sequence[Finding]) -> None:
        """Retire a stale edge, with the lapsed leases that it is left from."""
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
        """Retire a lease if it lapsed."""
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
        """Whether it may be retired here; if not, note the reason."""
        layer = next((x.layer for x in records if x.layer != self._layer), None)
        if not own and not self._board.rules.release:
            self._stays[finding] = NOT_ALLOWED
        elif layer is not None:
            self._stays[finding] = OTHER_LAYER.format(layer)
        return finding not in self._stays


class _Part:
    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.records: list[Held] = []
        self.idle: list[Idle] = []
        self.reasons: list[str] = []
        self.notes: list[str] = []

    def plan(self, resource: Resource, board: Board) -> RetirePlan:
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
    """Groups that one step can retire: its line of the audit trail has a limit."""
    some: list[Fixable] = []
    size = 0
    for one in fixable:
        item = one.plan.item
        more = len(item.grants) + len(item.unassigned)
        if some and size + more > AT_ONCE:
            yield some
            some, size = [], 0
        some.append(one)
        size += more
    if some:
        yield some


def not_fixed(finding: Finding, why: str, *steps: str) -> Finding:
    """A finding with the reason why it was not fixed, and new next steps if there are any."""
    said = (*finding.evidence, f"not fixed: {why}")
    return replace(finding, evidence=said, next_steps=steps or finding.next_steps)


def unfixed(some: Sequence[Fixable], answer: Answer) -> dict[Finding, Finding]:
    """The findings that stay after a step, each with the reason."""
    against = {fold(e.resource or ""): e for e in answer.refused}
    undone = {w.change.resource.key: w for w in answer.written if w.problem}
    left = {}
    for one in some:
        key = one.plan.item.resource.key
        for finding in one.findings:
            if key in undone:
                left[finding] = _half_done(finding, undone[key])
            elif key in against:
                left[finding] = not_fixed(finding, against[key].message)
    return left


def _half_done(finding: Finding, written: Written) -> Finding:
    # It is retired in the ledger, but the edge is still on the branch.
    file, message = quote(written.change.file), quote(written.change.message)
    steps = (f"git commit -m {message} -- {file}",) if written.changed else ()
    return not_fixed(finding, unwritten(written), *steps)


def unwritten(written: Written) -> str:
    """Why the edit of a task file failed."""
    file = printable(written.change.file)
    edited = f"{file} is edited, but" if written.changed else f"{file}:"
    return f"{edited} {written.problem}"
