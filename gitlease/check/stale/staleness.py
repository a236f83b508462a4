"""Finds stale claims, and retires them on request.

Finding asks the remote once and changes nothing. What may be retired is decided by the project's
settings, and once more by the ledger at that time: a claim that came in between stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from shlex import quote

from gitlease.check.rules import BAD_TASK_FILE, DUPLICATE_ID, NO_LEDGER, STALE_RULES, no_ledger
from gitlease.check.stale.activity import GitActivity
from gitlease.check.stale.facts import Edge, FileQuery, Held, Lack, Past, held, is_among
from gitlease.check.stale.findings import (
    Board,
    gone_names,
    of_idle,
    of_leases,
    of_unknown,
    unnamed,
)
from gitlease.check.stale.idle import Judged, Signs, StaleRules, doubtful, judge, open_edges
from gitlease.check.stale.missing_history import not_checked_out, unknown_here
from gitlease.check.stale.retirement import (
    Fixed,
    Plans,
    Stale,
    chunks,
    not_fixed,
    unfixed,
    unwritten,
)
from gitlease.core.edge import Task
from gitlease.core.errors import GitleaseError
from gitlease.core.expiry import Moment
from gitlease.core.finding import Finding
from gitlease.core.frozen import dataclass, replace
from gitlease.core.lease import same_person
from gitlease.core.outcome import Event
from gitlease.core.persons import Persons
from gitlease.engine import end
from gitlease.engine.ledger_session import LedgerSession, Look
from gitlease.engine.notices import unread_records
from gitlease.engine.ports import LastSeen, Snapshot, TaskProblem
from gitlease.engine.queue.order import natural
from gitlease.git.history import Changed

MAX_EVENTS = 20_000  # of the audit trail


@dataclass(frozen=True, slots=True)
class _Scene:
    """The records and audit trails of the layers that are checked."""

    records: Sequence[Held] = ()
    events: Sequence[Event] = ()
    warnings: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    empty: bool = False  # there is no ledger at all


class StaleService:
    """Finds stale claims, and retires them, for the actor of a ledger session.

    ``layers`` are checked beside the session's own; claims are only retired in that.
    """

    def __init__(
        self,
        service: LedgerSession,
        activity: GitActivity,
        rules: StaleRules,
        *,
        layers: Sequence[str] = (),
    ) -> None:
        self._service, self._activity, self._rules = service, activity, rules
        self._layers = [layer for layer in dict.fromkeys(layers) if layer != service.layer]
        self._people = service.edges.rules.people

    @property
    def changes(self) -> Mapping[str, list[Changed]]:
        """The changes of the commits that were read, so that nobody has to read them again."""
        return self._activity.changes

    def find(self, *, cached: bool = False, sure: bool = False) -> Stale:
        """Everything that is stale now: one connection for each layer, none with ``cached``.

        A clone that may lack branches makes one more before it calls something stale, and with
        ``sure``, for use before anything is retired, so does every clone. What this clone cannot
        know is among the warnings, and not a finding.
        """
        scene = self._scene(self._service.look(cached=cached), cached=cached)
        board, problems = self._board(scene)
        edges = open_edges(board.tasks.values(), scene.records, board.persons)
        pasts = self._activity.pasts(_asked(edges, board))
        judged = self._judged(edges, pasts, scene, board)
        nobodys = [edge for edge in edges if not board.persons.emails(edge.name)]
        hidden = unnamed(board)
        doubted = judged.idle or judged.unknown or nobodys or hidden
        lack = self._activity.cut_off(cached=cached, sure=sure) if doubted else None
        if lack is not None:  # there may be work that is unknown here
            pasts = {file: replace(past, whole=False) for file, past in pasts.items()}
            unknown = {one.edge for one in judged.idle}.union(judged.unknown)
            judged = Judged(unknown=tuple(edge for edge in edges if edge in unknown))
        absent = self._activity.left_out()
        leases = [
            (record, finding)
            for record, finding in of_leases(
                board, pasts, self._activity.deleted(gone_names(board))
            )
            if not absent or not record.lease.edge or record.lease.resource.key in board.tasks
        ]
        nobody = {} if lack else {e: of_unknown(e, pasts.get(e.task.file)) for e in nobodys}
        idle = [(one, of_idle(one, board)) for one in judged.idle]
        findings = [
            *(finding for _, finding in idle),
            *(finding for _, finding in leases),
            *nobody.values(),
            *map(_of_problem, problems),
        ]
        if scene.empty and edges:
            layers = (self._service.layer, *self._layers)
            findings.append(no_ledger(layers, self._service.store.place))
        plans = Plans(board, self._service)
        for one, finding in idle:
            also = nobody.get(one.edge)
            plans.edge(one, [finding] if also is None else [finding, also])
        for record, finding in leases:
            plans.lease(record, finding)
        tasks = [edge.task for edge in (*judged.unknown, *(nobodys if lack else ()))]
        tasks += [task for task, _ in hidden if not pasts.get(task.file, Past()).whole]
        # Commits that are missing explain what is unknown of a file; else it was too long ago.
        why = lack or self._activity.partial()
        seen = {task.file for task in tasks if not why or pasts.get(task.file, Past()).whole}
        blind = [task for task in tasks if task.file not in seen]
        far = [task for task in tasks if task.file in seen]
        return Stale(
            findings=tuple(sorted(findings, key=_order)),
            fixable=plans.fixable(),
            stays=plans.stays(findings),
            warnings=scene.warnings + unknown_here(far, None),
            unread=scene.unread + unknown_here(blind, why) + not_checked_out(absent),
        )

    def fix(self, found: Stale, *, commit: bool = True) -> Fixed:
        """Retire what was found and may be retired: one push, and one commit of the edges.

        More than ``AT_ONCE`` leases and edges take more of both. Without ``commit`` the task files
        are only edited. What was claimed meanwhile stays.
        """
        left = {finding: not_fixed(finding, why) for finding, why in found.stays.items()}
        answers = []
        for some in chunks(found.fixable):
            plans = [one.plan for one in some]
            answers.append(end.retire(self._service, plans, commit=commit))
            left |= unfixed(some, answers[-1])
        written = [w for answer in answers for w in answer.written]
        asked = (finding for one in found.fixable for finding in one.findings)
        return Fixed(
            fixed=tuple(finding for finding in asked if finding not in left),
            findings=tuple(left[finding] for finding in found.findings if finding in left),
            leases=tuple(view for answer in answers for view in answer.leases),
            undone=tuple(unwritten(w) for w in written if w.problem),
            refused=tuple(refusal for answer in answers for refusal in answer.refused),
            commit=next((w.commit for w in written if w.commit is not None), None),
            warnings=tuple(dict.fromkeys(x for answer in answers for x in answer.warnings)),
        )

    def last_seen(self, task: Task, holders: Sequence[str], sure: bool) -> LastSeen:
        """The last sign of life of some holders, or of names in its file, on a task.

        Goes by what this clone knows; ``sure`` asks the remotes whether it lacks commits. Never
        raises.
        """
        try:
            return self._last_seen(task, holders, sure)
        except GitleaseError as error:
            return LastSeen(doubt=error.message)

    def _last_seen(self, task: Task, holders: Sequence[str], sure: bool) -> LastSeen:
        look = self._service.known_look()
        scene = self._scene(look, cached=True) if look else _Scene()
        persons = self._persons(scene, [*task.assigned, *holders])
        now = self._service.clock.now().wall_ms

        def is_of(name: str) -> bool:
            return any(name == one or persons.stands_for(name, one) for one in holders)

        written = [name for name in dict.fromkeys(task.assigned) if is_of(name)]
        edges = [Edge(task, name) for name in dict.fromkeys((*written, *holders))]
        pasts = self._activity.pasts([FileQuery(task, frozenset(edge.name for edge in edges))])
        past, signs = pasts.get(task.file, Past()), Signs(persons, scene.records, scene.events, now)
        if any(not is_among(past.committed or (), name) for name in written):
            return LastSeen(now, "the assignment is not committed yet")
        if any(x.live and is_of(x.lease.holder) for x in signs.of(task)):
            return LastSeen(now, "a lease is live")
        works = self._activity.works()
        seen = [x for e in edges for x in (signs.written(e, past), signs.in_ledger(e)) if x]
        seen += signs.in_commits(edges, pasts, works.commits).values()
        last = max(seen, key=lambda sign: sign.at, default=None)
        lack = self._activity.cut_off(cached=False, sure=True) if sure else None
        if sure and lack is None and not past.whole:
            lack = self._activity.partial() or Lack("commits are missing here", "git fetch")
        doubt = "" if lack is None else f"{lack.what} ({lack.way})"
        return LastSeen(doubt=doubt) if last is None else LastSeen(last.at, last.what, doubt)

    def _scene(self, look: Look, *, cached: bool) -> _Scene:
        heads, said = [look.head], look.warnings
        for layer in self._layers:
            head = self._head(layer, cached=cached)
            if head is None:
                said += (f"this clone has never fetched the layer {layer}",)
            else:
                heads.append(head)
        records: list[Held] = []
        events: list[Event] = []
        unread: list[str] = []
        for head in heads:
            if head.ledger is not None:
                ledger, moment = head.ledger, Moment(now=look.moment.now, seen=head.seen)
                policy = ledger.header.policy
                records += held(ledger.every_lease(), head.layer, policy, moment)
                events += self._service.store.history(head.layer, MAX_EVENTS, older=not cached)
                unread += unread_records(head)
        empty = all(head.ledger is None for head in heads)
        return _Scene(records, events, said, tuple(unread), empty)

    def _head(self, layer: str, *, cached: bool) -> Snapshot | None:
        store = self._service.store
        return store.known(layer) if cached else store.fetch(layer)

    def _board(self, scene: _Scene) -> tuple[Board, Sequence[TaskProblem]]:
        edges = self._service.edges
        listed = edges.read()
        board = Board(
            tasks={task.resource.key: task for task in listed.tasks},
            records=scene.records,
            persons=self._persons(scene, [name for t in listed.tasks for name in t.assigned]),
            rules=replace(self._rules, required=edges.requires_tasks(listed)),
            now=self._service.clock.now().wall_ms,
            broken=frozenset(key for problem in listed.problems for key in problem.keys),
            own=lambda holder: same_person(holder, self._service.actor.holder),
        )
        return board, listed.problems

    def _persons(self, scene: _Scene, names: Sequence[str]) -> Persons:
        holders = [x.lease.holder for x in scene.records]
        holders += dict.fromkeys(e.by for e in scene.events)
        asked = [*self._people.names, *holders]
        asked += [email for name in names for email in self._people.holders_of(name)]
        if not asked and not names:
            return Persons(self._people)
        authors = self._activity.authors()
        others = [email for email in dict.fromkeys(asked) if email not in authors]
        mailmap = {**self._activity.usual(others), **authors} if others else authors
        known = dict.fromkeys((*authors, *authors.values(), *holders))
        return Persons(self._people, mailmap, known)

    def _judged(
        self, edges: Sequence[Edge], pasts: Mapping[str, Past], scene: _Scene, board: Board
    ) -> Judged:
        signs = Signs(board.persons, scene.records, scene.events, board.now)
        after, now = self._rules.after, board.now
        asked = doubtful(edges, signs, pasts, after=after, now=now)
        if not asked:
            return Judged()
        works = self._activity.works()
        seen = signs.in_commits(asked, pasts, works.commits)
        return judge(asked, signs, pasts, seen, after=after, now=now, horizon=works.horizon)


def _asked(edges: Sequence[Edge], board: Board) -> list[FileQuery]:
    found: dict[str, tuple[FileQuery, set[str]]] = {}
    for edge in edges:
        found.setdefault(edge.task.file, (FileQuery(edge.task), set()))[1].add(edge.name)
    for task, holder in unnamed(board):
        names = found.setdefault(task.file, (FileQuery(task), set()))[1]
        names |= board.persons.names(holder)
    return [replace(one, names=frozenset(names)) for one, names in found.values()]


def _of_problem(problem: TaskProblem) -> Finding:
    rule = DUPLICATE_ID if problem.double else BAD_TASK_FILE
    place = re.match(r":([0-9]{1,9}): ", problem.message[len(problem.file) :])
    starts = problem.message.startswith(problem.file)
    return Finding(
        rule=rule,
        level=rule.level,
        message=problem.message,
        resource=next(iter(problem.keys)) if len(problem.keys) == 1 else None,
        file=problem.file,
        line=int(place[1]) if place and starts else None,
        next_steps=(f"git log -3 -- {quote(problem.file)}",),
    )


def _order(finding: Finding) -> tuple[object, ...]:
    place = natural(finding.resource or "")
    rules = (*STALE_RULES, NO_LEDGER)
    return -finding.level.rank, rules.index(finding.rule), place, finding.scope or ""
