"""Finds claims that nobody works under any more, and releases them one by one.

Finding reads every fact once, with one connection for each layer, and changes nothing. Five rules
make cases of the facts, each with findings and what may be done about them. What cannot be known in
this clone is reported as such, and is no finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from shlex import quote

from gitlease.check import rules
from gitlease.check.rules import Case, CheckResult, finding_of, no_ledger
from gitlease.check.task_history import (
    Deleted,
    Lack,
    Past,
    TaskHistory,
    Version,
    not_checked_out,
    unknown_here,
)
from gitlease.kernel.ledger import acts
from gitlease.kernel.ledger.acts import RetirePlan
from gitlease.kernel.ledger.answers import Answer
from gitlease.kernel.ledger.edges import Planned
from gitlease.kernel.ledger.ledger_session import LedgerSession, unread_records
from gitlease.kernel.ledger.ports import Snapshot, TaskList, TaskProblem, Written
from gitlease.kernel.rules.edge import EdgeEdit, Persons, Task, printable
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import MS, humanize_duration, rfc3339
from gitlease.kernel.rules.lease import (
    MAX_REASON,
    Lease,
    Moment,
    Policy,
    State,
    has_lapsed,
    same_person,
)
from gitlease.kernel.rules.moves.claiming import completed_records
from gitlease.kernel.rules.moves.holding import RETIRED
from gitlease.kernel.rules.moves.operations import Event, Retirement, grant_of
from gitlease.kernel.rules.resources import WHOLE, fold
from gitlease.tasks.queue import natural
from gitlease.verbs.findings import CheckRule, Finding

FIX = "gitlease check --stale --fix --yes"
MAX_EVENTS = 20_000  # of the audit trail
SHORT = 10  # digits of a commit's id in messages
NOT_ALLOWED = "only its holder may release it, since stale.release is not true"
LIVE = "it is live: only its holder or an admin can end it"
KEPT = "you kept it"
OTHER_LAYER = "its lease is in layer {0}: --layer {0} releases it"
_WHY = {rules.LEASE_ON_DONE: "the task is done", rules.LEASE_ON_GONE: "its task file is gone"}


@dataclass(frozen=True, kw_only=True)
class StaleRules:
    """The project's settings for stale claims. ``after`` and ``grace`` in seconds.

    ``grace``: how long after a claim its edge may still be on its way; None: the lease's TTL.
    ``release``: anybody may release the stale claims of others.
    """

    after: int = 7 * 86_400
    grace: int | None = None
    release: bool = False


@dataclass(frozen=True)
class Record:
    """A record of a ledger, its layer, and whether it lapsed or is of completed work (``done``)."""

    lease: Lease
    layer: str
    lapsed: bool = False
    done: bool = False

    @property
    def live(self) -> bool:
        return not self.lapsed and not self.done


@dataclass(frozen=True)
class Edge:
    """A name without a live lease in the file of a task that is not done.

    ``last`` is when the ledger saw its person last, and what that was; None if it never did.
    """

    task: Task
    name: str
    last: tuple[int, str] | None = None


@dataclass(frozen=True)
class CheckCaller:
    """Who runs the check, and the only layer in which they may release claims here."""

    holder: str
    layer: str


class StaleService:
    """Finds stale claims, and releases them, for the actor of a ledger session.

    ``layers`` are checked beside the session's own; claims are only released in that.
    """

    def __init__(
        self,
        session: LedgerSession,
        history: TaskHistory,
        rules: StaleRules,
        *,
        layers: Sequence[str] = (),
    ) -> None:
        self._session, self._history, self._rules = session, history, rules
        self._layers = [layer for layer in dict.fromkeys(layers) if layer != session.layer]

    def find(self, *, cached: bool = False) -> CheckResult:
        """Everything that is stale now: one connection for each layer, none with ``cached``.

        A clone that may lack branches makes one more where that matters.
        """
        facts, heads, warnings = self._read(cached=cached)
        facts.read_commits(self._history, cached=cached)
        cases = [case for rule in RULES_OF_STALENESS for case in rule(facts)]
        cases += [Case((_of_problem(problem),)) for problem in facts.problems]
        if facts.edges and all(head.ledger is None for head in heads):
            layers = (self._session.layer, *self._layers)
            cases.append(Case((no_ledger(layers, self._session.store.place),)))
        return CheckResult(
            stale=True,
            findings=tuple(sorted((x for case in cases for x in case.findings), key=_order)),
            _cases=tuple(sorted(cases, key=lambda case: _order(case.findings[0]))),
            warnings=warnings,
            unread=(
                *(text for head in heads for text in unread_records(head)),
                *unknown_here(facts.unknown(), facts.lack or self._history.partial()),
                *not_checked_out(facts.absent),
            ),
        )

    def fix(
        self,
        result: CheckResult,
        *,
        choose: Callable[[Case], bool] = lambda _case: True,
        commit: bool = True,
    ) -> CheckResult:
        """Release what was found and chosen, each with a push and a commit of its edge.

        Without ``commit`` the task files are only edited. What was claimed meanwhile stays.
        """
        reasons: dict[Finding, tuple[str, ...]] = {}
        answers: list[Answer] = []
        failure: tuple[str, ...] = ()
        for case in result._cases:
            why = (case.stays,) if case.stays else failure or (() if choose(case) else (KEPT,))
            if not why and case.plan is not None:
                # The ledger decides once more: a claim that came in between stays.
                try:
                    answers.append(acts.retire(self._session, [case.plan], commit=commit))
                    why = _why_unfixed(answers[-1])
                except GitleaseError as error:
                    if not answers:
                        raise
                    # What was released before is reported; nothing more is tried.
                    why = failure = (error.message,)
            reasons |= dict.fromkeys(case.findings if why else (), why)
        written = [w for answer in answers for w in answer.written]
        warnings = [*result.warnings, *(x for answer in answers for x in answer.warnings)]
        warnings += [error.message for answer in answers for error in answer.refused]
        return replace(
            result,
            _cases=(),
            fixed=tuple(x for case in result._cases for x in case.findings if x not in reasons),
            findings=tuple(
                replace(
                    x,
                    evidence=(*x.evidence, f"not fixed: {reasons[x][0]}"),
                    next_steps=reasons[x][1:] or x.next_steps,
                )
                for x in result.findings
                if x in reasons
            ),
            leases=tuple(view for answer in answers for view in answer.leases),
            undone=tuple(_unwritten(w) for w in written if w.problem),
            commit=next((w.commit for w in reversed(written) if w.commit is not None), None),
            warnings=tuple(dict.fromkeys(warnings)),
        )

    def _read(self, *, cached: bool) -> tuple[Facts, list[Snapshot], tuple[str, ...]]:
        """The facts, the heads that they are of, and warnings."""
        session = self._session
        view = session.look(cached=cached)
        heads, warnings = [view.head], session.take_warnings()
        for layer in self._layers:
            head = session.store.known(layer) if cached else session.store.fetch(layer)
            if head is None:
                warnings += (f"this clone has never fetched the layer {layer}",)
            else:
                heads.append(head)
        records: list[Record] = []
        events: list[Event] = []
        for head in heads:
            if head.ledger is not None:
                moment = Moment(now=view.moment.now, seen=head.seen)
                leases = head.ledger.every_lease()
                records += records_of(leases, head.layer, head.policy, moment)
                events += session.store.history(head.layer, MAX_EVENTS, older=not cached)
        listed = session.edges.read()
        holders = dict.fromkeys((*(x.lease.holder for x in records), *(x.by for x in events)))
        names = [name for task in listed.tasks for name in task.assigned]
        people = session.edges.rules.people
        asked = [*people.names, *holders, *(x for name in names for x in people.holders_of(name))]
        persons = Persons(people)
        if asked or names:
            authors = self._history.authors()
            # The log of commits has the mailmap's addresses of its authors already.
            others = [email for email in dict.fromkeys(asked) if email not in authors]
            mailmap = {**self._history.usual(others), **authors} if others else authors
            known = dict.fromkeys((*authors, *authors.values(), *holders))
            persons = Persons(people, mailmap, known)
        facts = Facts(
            listed,
            records,
            events,
            persons=persons,
            rules=self._rules,
            required=session.edges.requires_tasks(listed),
            caller=CheckCaller(session.actor.holder, session.layer),
            now=session.clock.now().wall_ms,
        )
        return facts, heads, warnings


# --- facts ---------------------------------------------------------------------------------------


class Facts:
    """The tasks of the work tree, the records and events of the ledgers, and the persons.

    ``required``: a name must be a task. ``now`` in ms. ``read_commits`` adds what commits say.
    """

    def __init__(
        self,
        listed: TaskList,
        records: Sequence[Record],
        events: Iterable[Event],
        *,
        persons: Persons,
        rules: StaleRules,
        required: bool,
        caller: CheckCaller,
        now: int,
    ) -> None:
        self.problems = listed.problems
        self.tasks = {task.resource.key: task for task in listed.tasks}
        self.persons = persons
        self.caller = caller
        self._rules = rules
        self._required = required
        self._now = now
        self.lack: Lack | None = None
        self.absent: Sequence[str] = ()
        self.deleted: Mapping[str, Deleted] = {}
        self._pasts: Mapping[str, Past] = {}
        # Completed work is no claim, and of exempt tasks and broken files nothing is said.
        ignored = {key for problem in listed.problems for key in problem.keys}
        ignored |= {key for key, task in self.tasks.items() if task.exempt}
        self.records = [x for x in records if not x.done and x.lease.resource.key not in ignored]
        self._by_key: dict[str, list[Record]] = {}
        for record in records:
            self._by_key.setdefault(record.lease.resource.key, []).append(record)
        self._events: dict[str, list[Event]] = {}
        for event in events:
            self._events.setdefault(fold(event.resource or ""), []).append(event)
        self.edges = [*self._doubtful_edges()]
        self.hidden = [*self._hidden_leases()]

    def read_commits(self, history: TaskHistory, *, cached: bool) -> None:
        """Read what commits say of the edges and leases that they may explain."""
        nobodys = any(not self.persons.emails(edge.name) for edge in self.edges)
        words = [(task, w) for task, x in self.hidden for w in self.persons.names(x.lease.holder)]
        self._pasts = history.pasts([*((edge.task, edge.name) for edge in self.edges), *words])
        self.lack = history.lack(cached=cached, branches=nobodys or bool(self.hidden))
        self.absent = history.left_out()
        # Leased tasks without a file here may have been deleted, if a name must be a task.
        missing = (x.lease for x in self.records if self._required and self.task_of(x) is None)
        names = (x.resource for x in missing if x.edge)
        self.deleted = history.deleted(frozenset(x.key for x in names if not x.is_path))
        # The task of a lease may be in a file that a sparse checkout leaves out.
        if self.absent:
            self.records = [x for x in self.records if self.task_of(x) or not x.lease.edge]

    def last_change(self, task: Task, means: Callable[[str], bool]) -> tuple[Version | None, bool]:
        """The newest version of a task's file in which a name came or went, and whether it is."""
        return self._pasts[task.file].last_change(means)

    def unknown(self) -> list[Task]:
        """The tasks of which commits that are not here may say who works on them."""
        asked = [
            (x.task, _spells(x.name), bool(self.persons.emails(x.name))) for x in self.edges
        ] + [(task, self.means(x.lease.holder), False) for task, x in self.hidden]
        return [
            task
            for task, means, is_somebody in asked
            if (self.lack and not is_somebody) or not self.last_change(task, means)[1]
        ]

    def why_not(self, records: Sequence[Record], *, own: bool) -> str:
        """Why the caller may not release these here; ``""`` if it may."""
        layer = next((x.layer for x in records if x.layer != self.caller.layer), None)
        if not own and not self._rules.release:
            return NOT_ALLOWED
        return "" if layer is None else OTHER_LAYER.format(layer)

    def task_of(self, record: Record) -> Task | None:
        return self.tasks.get(record.lease.resource.key)

    def means(self, holder: str) -> Callable[[str], bool]:
        """Return a test of whether a name in a task file means this holder."""
        return lambda name: self.persons.stands_for(name, holder)

    def of_person(self, task: Task, name: str) -> list[Record]:
        """The records of a task whose holder this name means."""
        records = self._by_key.get(task.resource.key, ())
        return [x for x in records if self.persons.stands_for(name, x.lease.holder)]

    def is_done(self, task: Task) -> bool:
        """Return whether a task is done, by its file or by the ledger."""
        records = self._by_key.get(task.resource.key, ())
        whole = {x.lease_id for x in completed_records([record.lease for record in records])}
        return task.is_done or any(x.done and x.lease.lease_id in whole for x in records)

    def _doubtful_edges(self) -> Iterator[Edge]:
        # An edge outlives its lease: it is in doubt once the ledger has seen nothing of its person
        # for longer than ``stale.after``, or never did.
        for task in self.tasks.values():
            if task.exempt or not task.assigned or self.is_done(task):
                continue
            for name in dict.fromkeys(task.assigned):
                if any(record.live for record in self.of_person(task, name)):
                    continue
                edge = Edge(task, name, self._last_seen(task, name))
                if edge.last is None or not self.is_recent(edge.last[0]):
                    yield edge

    def _last_seen(self, task: Task, name: str) -> tuple[int, str] | None:
        """The end of the last lease, or the last event."""
        times = [
            (x.lease.expires_at, "the last lease expired")
            for x in self.of_person(task, name)
            if x.lapsed
        ]
        times += [
            (event.at, f"{event.kind.replace('_', ' ')}, says the ledger")
            for event in self._events.get(task.resource.key, ())
            # A retired edge that is here again was not touched by its person.
            if event.kind != RETIRED
            and any(x and self.persons.stands_for(name, x) for x in (event.holder, event.by))
        ]
        at, what = max(times, key=lambda time: time[0], default=(0, ""))
        # The clock of who wrote it may be ahead of this one.
        return (min(at, self._now), what) if times else None

    def is_recent(self, at: int) -> bool:
        return at >= self._now - self._rules.after * MS

    def _hidden_leases(self) -> Iterator[tuple[Task, Record]]:
        """The live leases of tasks that neither their record nor the file here assigns."""
        for record in self.records:
            lease, task = record.lease, self.task_of(record)
            # A gateway writes no file: its claims assign the task in the record, for good.
            if lease.edge:
                continue
            # The edge of a claim of just now may still be on its way to this branch.
            grace = lease.ttl if self._rules.grace is None else self._rules.grace
            late = self._now - lease.claimed_at > grace * MS
            here = task is not None and (self.assigns(task, lease.holder) or self.is_done(task))
            if record.live and late and task is not None and not here:
                yield task, record

    def assigns(self, task: Task, holder: str) -> bool:
        return any(map(self.means(holder), task.assigned))

    def _ago(self, at: int) -> str:
        """How long ago, and when: ``9d 3h, since 2026-11-12T10:00:00Z``."""
        return f"{humanize_duration((self._now - at) // MS)}, since {rfc3339(at)}"

    # --- findings --------------------------------------------------------------------------------

    def of_edge(self, edge: Edge, written: Version) -> Finding:
        """The finding about a stale edge."""
        task, emails, text = (
            edge.task,
            self.persons.emails(edge.name),
            quote(str(edge.task.resource)),
        )
        signs = [(min(written.at, self._now), f"assigned in {written.commit[:SHORT]}")]
        signs = sorted([*signs, *([edge.last] if edge.last else [])], reverse=True)
        since = signs[0][0]
        steps = [f"gitlease claim {text}", f"gitlease release {text}"]
        if not any(same_person(email, self.caller.holder) for email in emails):
            # Of another's claim a person is asked first: nothing printed here takes it from them.
            steps = [f"gitlease show {text}", f"gitlease note {text} 'still on it?'"]
            steps += [FIX] * self._rules.release
        who = f"{self.persons.called(edge.name)}, idle for {self._ago(since)}"
        return finding_of(
            rules.STALE_EDGE,
            f"{task.resource.text} is assigned to {who}",
            task,
            since=since,
            resource=task.resource.text,
            holder=emails[0] if emails else None,
            evidence=tuple(f"{rfc3339(at)}: {what}" for at, what in signs),
            next_steps=tuple(steps),
        )

    def of_nobody(self, edge: Edge, written: Version | None) -> Finding:
        """The finding about a name that is nobody's."""
        facts = [f"written in {written.commit[:SHORT]} by {written.by}"] if written else []
        facts.append("not in people, and not the name of any commit author or lease holder")
        text = edge.task.resource.text
        return finding_of(
            rules.UNKNOWN_ASSIGNEE,
            f"{text} is assigned to {printable(edge.name)}, a name that nobody here has",
            edge.task,
            since=written.at if written else None,
            resource=text,
            evidence=tuple(facts),
            next_steps=(f"gitlease show {quote(text)}",),
        )

    def of_lease(
        self, rule: CheckRule, record: Record, task: Task | None, about: str, more: str = ""
    ) -> Case:
        """The case of a lease by a rule; ``about`` follows what is held."""
        lease = record.lease
        since = lease.expires_at if record.lapsed else lease.claimed_at
        scope = "" if lease.scope == WHOLE else f" (scope {lease.scope})"
        has = "has a lapsed lease on" if record.lapsed else "holds"
        message = f"{lease.holder} {has} {lease.resource.text}{scope}, {about}"
        if rule is rules.LAPSED_LEASE:
            message = f"the lease of {lease.holder} on {lease.resource}{scope} lapsed"
            message += f" {self._ago(since)}"
        where = [f"session {lease.session}"] if lease.session else []
        where += [f"on {lease.place.host}"] if lease.host else []
        where += [f"branch {lease.branch}"] if lease.branch else []
        state = "expired at" if record.lapsed else "claimed at"
        facts = [more, f"{state} {rfc3339(since)}, token {lease.token}", ", ".join(where)]
        facts += [f"reason: {lease.reason}"] if lease.reason else []
        name, done = quote(lease.resource.text), rule is rules.LEASE_ON_DONE
        own = same_person(lease.holder, self.caller.holder)
        if own:
            verb = "claim" if rule is rules.LEASE_WITHOUT_EDGE else "done" if done else "release"
            steps = [f"gitlease {verb} {name}"]
        else:
            ask = "it is done: do you still need its lease?" if done else "still on it?"
            steps = [f"gitlease show {name}", f"gitlease note {name} '{ask}'"]
            steps += [FIX] * (record.lapsed and self._rules.release)
        finding = finding_of(
            rule,
            message,
            task,
            since=since,
            resource=lease.resource.text,
            scope=lease.scope,
            layer=record.layer,
            holder=lease.holder,
            evidence=tuple(filter(None, facts)),
            next_steps=tuple(steps),
        )
        if not record.lapsed:
            return Case((finding,), LIVE)
        ended, note = rfc3339(since), None
        if lease.edge and rule not in _WHY:
            note = f"was held by {lease.holder}, whose lease lapsed at {ended}"[:MAX_REASON]
        retirement = Retirement(
            resource=lease.resource,
            reason=_WHY.get(rule, f"lapsed since {ended}"),
            grants=(grant_of(lease),),
            assigned=True,
            note=note,
        )
        return Case((finding,), self.why_not([record], own=own), RetirePlan(retirement))


# --- the five rules ------------------------------------------------------------------------------


def stale_edges(facts: Facts) -> Iterator[Case]:
    """Edges of whose person nothing was seen for ``stale.after``; and names that are nobody's."""
    for edge in facts.edges:
        written, _ = facts.last_change(edge.task, _spells(edge.name))
        # Somebody unknown may be the author of a commit that is not here.
        is_nobodys = not facts.lack and not facts.persons.emails(edge.name)
        nobody = (facts.of_nobody(edge, written),) if is_nobodys else ()
        # An edge that nobody committed yet is not left from anything.
        if (
            written
            and any(map(_spells(edge.name), written.after))
            and not facts.is_recent(written.at)
        ):
            records = [x for x in facts.of_person(edge.task, edge.name) if x.lapsed]
            why_not = facts.why_not(
                records, own=facts.persons.people.is_mine(edge.name, facts.caller.holder)
            )
            plan = _unassign(edge, written, records, facts.persons)
            yield Case((facts.of_edge(edge, written), *nobody), why_not, plan)
        elif nobody:
            yield Case(nobody)


def leases_on_gone(facts: Facts) -> Iterator[Case]:
    """Leases of tasks whose file was deleted."""
    for record in facts.records:
        if deleted := facts.deleted.get(record.lease.resource.key):
            more = f"{printable(deleted.file)} was deleted in {deleted.commit[:SHORT]}"
            more += f" by {deleted.by}"
            yield facts.of_lease(rules.LEASE_ON_GONE, record, None, "whose task file is gone", more)


def leases_on_done(facts: Facts) -> Iterator[Case]:
    """Leases of tasks that are done."""
    for record in facts.records:
        task = facts.task_of(record)
        if task is not None and facts.is_done(task):
            yield facts.of_lease(rules.LEASE_ON_DONE, record, task, "which is done")


def lapsed_leases(facts: Facts) -> Iterator[Case]:
    """Lapsed leases of tasks that are neither done nor gone, and no longer assigned."""
    for record in facts.records:
        lease, task = record.lease, facts.task_of(record)
        if not record.lapsed or lease.resource.key in facts.deleted:
            continue
        # Where the edge is still there, that is stale, once it is.
        if task is not None and (facts.is_done(task) or facts.assigns(task, lease.holder)):
            continue
        # It lapsed so lately that its edge may still be on its way here.
        if lease.edge and facts.is_recent(lease.expires_at):
            continue
        more = "it still keeps the task assigned to its holder" if lease.edge_stays else ""
        yield facts.of_lease(rules.LAPSED_LEASE, record, task, "", more)


def leases_without_edge(facts: Facts) -> Iterator[Case]:
    """Live leases that no branch has the edge of."""
    for task, record in facts.hidden:
        means = facts.means(record.lease.holder)
        version, sure = facts.last_change(task, means)
        if sure and not facts.lack and (version is None or not any(map(means, version.after))):
            but = f"but {printable(task.file)} does not name them"
            more = "no branch known here has a commit that assigns it to them"
            yield facts.of_lease(rules.LEASE_WITHOUT_EDGE, record, task, but, more)


RULES_OF_STALENESS = (
    stale_edges,
    leases_on_gone,
    leases_on_done,
    lapsed_leases,
    leases_without_edge,
)


def records_of(
    leases: Iterable[Lease], layer: str, policy: Policy, moment: Moment
) -> Iterator[Record]:
    """The records of a layer, without completed ones that are kept no longer."""
    for lease in leases:
        if lease.state is not State.COMPLETED:
            yield Record(lease, layer, lapsed=has_lapsed(lease, policy, moment))
        elif moment.now.wall_ms < lease.renewed_at + policy.keep_completed * MS:
            yield Record(lease, layer, done=True)


def _spells(name: str) -> Callable[[str], bool]:
    return lambda other: fold(other) == fold(name)


def _of_problem(problem: TaskProblem) -> Finding:
    rule = rules.DUPLICATE_ID if problem.double else rules.BAD_TASK_FILE
    place = re.match(r":([0-9]{1,9}): ", problem.message[len(problem.file) :])
    starts = problem.message.startswith(problem.file)
    return finding_of(
        rule,
        problem.message,
        resource=next(iter(problem.keys)) if len(problem.keys) == 1 else None,
        file=problem.file,
        line=int(place[1]) if place and starts else None,
        next_steps=(f"git log -3 -- {quote(problem.file)}",),
    )


def _order(finding: Finding) -> tuple[object, ...]:
    place = natural(finding.resource or "")
    rule = (*rules.STALE_RULES, rules.NO_LEDGER).index(finding.rule)
    return -finding.level.rank, rule, place, finding.scope or ""


# --- actions -------------------------------------------------------------------------------------


def _unassign(
    edge: Edge, written: Version, records: Sequence[Record], persons: Persons
) -> RetirePlan:
    """The release of a stale edge, with the lapsed leases that it is left from."""
    resource, who = edge.task.resource, persons.called(edge.name)
    since = rfc3339(max(written.at, edge.last[0] if edge.last else 0))
    item = Retirement(
        resource=resource,
        reason=f"idle since {since}",
        grants=tuple(grant_of(record.lease) for record in records),
        # It is the holder's own, or the project's policy allows it.
        assigned=True,
        unassigned=(persons.assignee(edge.name),),
        note=f"was assigned to {who}: idle since {since}"[:MAX_REASON],
    )
    planned = Planned(
        resource=resource,
        task=edge.task,
        edit=EdgeEdit(remove=(edge.name,)),
        message=f"unassign {resource} from {who}: idle since {since[:10]}",
    )
    return RetirePlan(item, planned)


def _why_unfixed(answer: Answer) -> tuple[str, ...]:
    """Why findings stay after their release, and what to type; nothing if they are settled."""
    undone = next((w for w in answer.written if w.problem), None)
    if undone is None:
        return (answer.refused[0].message,) if answer.refused else ()
    # It is released in the ledger, but the edge is still on the branch.
    file, message = quote(undone.change.file), quote(undone.change.message)
    steps = (f"git commit -m {message} -- {file}",) if undone.changed else ()
    return _unwritten(undone), *steps


def _unwritten(written: Written) -> str:
    """Why the edit of a task file failed."""
    file = printable(written.change.file)
    edited = f"{file} is edited, but" if written.changed else f"{file}:"
    return f"{edited} {written.problem}"
