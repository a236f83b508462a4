"""The task queue with the ledger: claimable tasks, the caller's own, and the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache

from gitlease.core.edge import Progress, Task
from gitlease.core.errors import GitleaseError, Invalid, NothingLeft, shown
from gitlease.core.frozen import replace
from gitlease.core.instant import MS
from gitlease.core.lease import Lease, Moment, State, same_person
from gitlease.core.ledger import Note
from gitlease.core.moves.claiming import ParkedMeanwhile
from gitlease.core.moves.operations import Claim, Event
from gitlease.core.policy import DEFAULT_POLICY, Issues
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource
from gitlease.core.view import LeaseView
from gitlease.engine.answers import Answer, ClaimOptions, FoundTask, QueueReading, Taken
from gitlease.engine.assignment import with_records
from gitlease.engine.claim import left_to, pick
from gitlease.engine.edges import Planned, find_task, without_numbers
from gitlease.engine.ledger_session import LedgerSession, Look
from gitlease.engine.ports import TaskList
from gitlease.engine.queue.order import (
    Carried,
    Carry,
    Entry,
    Surroundings,
    carrying,
    entry_of,
    hand_out,
    nothing_left,
    survey,
)

AT_ONCE = 32  # tasks from which one step picks the first free one
PLANNED_AGAIN = 4  # times a pick is planned again on fresh knowledge
PROBLEMS_SHOWN = 10
LOOKED_BACK = 500  # events of the audit trail that a briefing reads
RECENT = 7 * 86_400  # seconds for which a briefing shows losses
NO_TASKS = "no task files found"


class _PlanAnew(Exception):
    """A task became claimable after the pick was planned."""

    def __init__(self, warnings: tuple[str, ...]) -> None:
        super().__init__("plan anew")
        self.warnings = warnings


class TaskQueue:
    """The tasks of one work tree, or of a ref, as the session's actor may take them."""

    def __init__(
        self,
        session: LedgerSession,
        others: Callable[[], Sequence[LedgerSession]] = lambda: (),
    ) -> None:
        """``others`` are the same actor's sessions of the other layers in use."""
        self._session, self._edges, self._others = session, session.edges, others

    def queue(self, *, ref: str | None = None, cached: bool = False) -> QueueReading:
        """Every task in the order of the queue, each with whether it may be claimed.

        One connection, or none with ``cached``. NotFound for an unknown ref.
        """
        look = self._session.look(cached=cached)  # first: it may finish what was left undone
        return self._reading(self._tasks(ref), look)

    def mine(self, *, ref: str | None = None, cached: bool = False) -> QueueReading:
        """Like ``queue``, with what is carried in the other layers too."""
        look = self._session.look(cached=cached)
        reading = self._reading(self._tasks(ref), look)
        others, said = self._looks(cached=cached)
        return self._with_others(reading, others, said)

    def brief(self, *, ref: str | None = None, cached: bool = False) -> QueueReading:
        """A briefing at the start of work: like ``mine``, with losses, notes and others' leases."""
        look = self._session.look(cached=cached)
        return self._brief(look, *self._looks(cached=cached), ref)

    def known_brief(self) -> QueueReading | None:
        """Like ``brief``, from this clone's copy alone; None if it has no ledger."""
        look = self._session.known_look()
        if look is None or look.head.ledger is None:
            return None
        known = [(x, y) for x in self._others() if (y := x.known_look()) is not None]
        return self._brief(look, known, (), None)

    def next_task(self, *, ref: str | None = None, cached: bool = False) -> QueueReading:
        """Like ``queue``; raises NothingLeft if no task may be handed out."""
        reading = self.queue(ref=ref, cached=cached)
        if ref is None:
            reading = self._claimable(reading, sure=not cached)
        if not reading.next_up:
            raise nothing_left(reading.entries, reading.warnings)
        return reading

    def find(self, resource: Resource, *, ref: str | None = None) -> FoundTask:
        """The task of a resource, by this clone's copy of the ledger, without a connection.

        Raises NotFound for an unknown ref; an unusable task file is only a warning.
        """
        if resource.is_path and ref is None:
            return FoundTask()
        try:
            found = self._tasks(ref)
            task = find_task(found, resource)
        except Invalid as error:
            return FoundTask(warnings=(error.message,))
        if task is None:
            return FoundTask()
        look = self._session.known_look()
        (task,) = self._with_records([task], look)
        entry = entry_of(task, found.tasks, self._around(look))
        if look is None or entry.lease is None:
            return FoundTask(entry)
        return FoundTask(entry, self._session.views(look, [entry.lease])[0])

    def claim_next(
        self, options: ClaimOptions, *, skip: Collection[str] = ()
    ) -> tuple[Answer, Task]:
        """Claim the first free task, decided in the step that takes it.

        However many workers ask at once, each gets a different task, or NothingLeft. Tasks that the
        caller parked come first, and one of its runs resumes them. ``skip`` names tasks to avoid.
        """
        passed_by = frozenset(map(fold, skip))
        self._session.settle()
        said: tuple[str, ...] = ()  # on the way to a plan that held: it is told only once
        for _ in range(PLANNED_AGAIN):
            try:
                answer, task = self._claim_next(options, passed_by)
                return _with_warnings(answer, said), task
            except (_PlanAnew, ParkedMeanwhile) as again:
                said += again.warnings
        answer, task = self._claim_next(options, passed_by, last=True)
        return _with_warnings(answer, said), task

    def _claim_next(
        self, options: ClaimOptions, skip: frozenset[str], *, last: bool = False
    ) -> tuple[Answer, Task]:
        tasks = self._tasks()
        look = self._session.known_look() or self._session.look()
        reading = _without(self._reading(tasks, look), skip)
        waiting = [entry.task for entry in reading.next_up]
        scopes = {e.task.resource: x.scope for e in reading.next_up if e.parked and (x := e.lease)}
        parked = frozenset(x.key for x in look.leases if x.parked)
        among = frozenset(
            t.resource.key
            for t in tasks.tasks
            if not (last or t.is_done or t.progress is Progress.OTHER or t.ref)
            and t.resource.key not in skip
        )
        passed: tuple[str, ...] = ()
        for some in _chunks(reading.next_up):
            plans, said = self._writable([entry.task for entry in some], options)
            passed += said
            alive = self._activity_warnings(some[0], sure=True) if plans else ()
            passed += alive
            if alive or not plans:
                continue
            abandoned = some[0].abandoned
            try:
                answer = pick(
                    self._session,
                    [p.alone for p in plans] if abandoned else plans,
                    options,
                    scopes=scopes,
                    abandoned=abandoned,
                    among=among,
                    parked=parked,
                )
            except NothingLeft:
                continue
            picked = answer.leases[0].resource
            task = next(p.task for p in plans if p.task and p.resource.text == picked)
            return _with_warnings(answer, reading.warnings + passed), task
        fresh = _without(self.queue(), skip)
        if not last and any(entry.task not in waiting for entry in fresh.next_up):
            raise _PlanAnew(fresh.warnings + passed)
        raise nothing_left(fresh.entries, fresh.warnings + passed)

    def _claimable(self, reading: QueueReading, *, sure: bool) -> QueueReading:
        # Drops tasks at the head whose files cannot be written, or whose assignees are at work.
        said: tuple[str, ...] = ()
        for number, entry in enumerate(reading.next_up):
            _, passed = self._writable([entry.task], ClaimOptions(commit=False))
            passed += self._activity_warnings(entry, sure=sure)
            said += passed
            if not passed:
                return replace(
                    reading, next_up=reading.next_up[number:], warnings=reading.warnings + said
                )
        return replace(reading, next_up=(), warnings=reading.warnings + said)

    # --- how ----------------------------------------------------------------------------------

    def _tasks(self, ref: str | None = None) -> TaskList:
        return self._edges.everywhere() if ref is None else self._edges.read(ref)

    def _looks(self, *, cached: bool) -> tuple[list[tuple[LedgerSession, Look]], tuple[str, ...]]:
        looks, said = [], []
        for session in self._others():
            try:
                looks.append((session, session.look(cached=cached)))
            except GitleaseError as error:
                said.append(f"layer {session.layer} is left out: {error.message}")
        return looks, tuple(said)

    def _brief(
        self,
        look: Look,
        others: Sequence[tuple[LedgerSession, Look]],
        said: tuple[str, ...],
        ref: str | None,
    ) -> QueueReading:
        reading = self._reading(self._tasks(ref), look)
        taken, notes = self._recent_losses(look, reading.carried), _notes(look, reading)
        reading = self._with_others(reading, others, said)
        held: list[LeaseView] = []
        for session, one in ((self._session, look), *others):
            held += (
                x
                for x in session.views(one, one.leases)
                if x.state == State.ACTIVE.value and not same_person(x.holder, session.actor.holder)
            )
        held.sort(key=lambda x: x.expires_at)
        return replace(reading, taken=taken, notes=notes, others=tuple(held))

    def _with_others(
        self,
        reading: QueueReading,
        others: Sequence[tuple[LedgerSession, Look]],
        said: tuple[str, ...],
    ) -> QueueReading:
        # A live lease in another layer replaces the entry of an edge without one.
        carried, views, said = list(reading.carried), dict(reading.views), reading.warnings + said
        tasks = {c.task.resource.key: c.task for c in carried if c.task is not None}
        for session, look in others:
            found = carrying((), self._around(look))
            kept = {x.lease.resource.key for x in found if x.lease and x.state is Carried.LIVE}
            carried = [
                c
                for c in carried
                if c.state is Carried.LIVE or c.task is None or c.task.resource.key not in kept
            ]
            carried += [replace(c, task=tasks.get(c.lease.resource.key)) for c in found if c.lease]
            leases = [c.lease for c in found if c.lease]
            seen = session.views(look, leases)
            views |= {x.lease_id: v for x, v in zip(leases, seen, strict=True)}
            said += look.warnings
        said = tuple(dict.fromkeys(said))
        return replace(reading, carried=tuple(carried), views=views, warnings=said)

    def _writable(
        self, tasks: Sequence[Task], options: ClaimOptions
    ) -> tuple[list[Planned], tuple[str, ...]]:
        edges = self._edges
        plans, against = edges.writable(
            tasks, lambda some: [edges.claim_of(task) for task in some], commit=options.commit
        )
        return plans, tuple(f"passed over: {error.message}" for _, error in against)

    def _activity_warnings(self, entry: Entry, *, sure: bool) -> tuple[str, ...]:
        if not entry.abandoned or entry.lease is None or entry.lease.picked:
            return ()
        from gitlease.engine.abandonment import is_alive, last_seen, told

        holder = entry.lease.holder
        seen = last_seen(self._session, entry.task, [holder], sure=sure)
        if not is_alive(self._session, seen):
            return ()
        said = f"passed over: {entry.task.resource} is assigned to {holder}"
        return (f"{said}; {'; '.join(told(seen))}",)

    def _around(self, look: Look | None) -> Surroundings:
        losses = cache(self._losses)  # read only if asked for
        return Surroundings(
            actor=self._session.actor,
            people=self._edges.rules.people,
            leases=look.leases if look else (),
            policy=look.policy if look else DEFAULT_POLICY,
            moment=look.moment if look else Moment(now=self._session.clock.now()),
            was_taken=lambda key: any(taken == key for taken, _ in losses()),
            left_to=waiters(self._session, look),
        )

    def _with_records(self, tasks: Sequence[Task], look: Look | None) -> list[Task]:
        if look is None:
            return list(tasks)
        held: dict[str, list[Lease]] = {}
        for lease in look.leases:
            if lease.edge:
                held.setdefault(lease.resource.key, []).append(lease)
        people, policy, moment = self._edges.rules.people, look.policy, look.moment
        return [
            with_records(task, records, people, policy, moment)
            if (records := held.get(task.resource.key))
            else task
            for task in tasks
        ]

    def _losses(self) -> Mapping[tuple[str, str], Event]:
        session, holder = self._session, self._session.actor.holder
        last: dict[tuple[str, str], Event] = {}
        for event in session.store.history(session.layer, LOOKED_BACK):
            if event.resource and event.kind in ABOUT and same_person(event.holder or "", holder):
                last.setdefault((fold(event.resource), event.scope or ""), event)
        return {
            key: event
            for key, event in last.items()
            if event.kind in TAKEN and not same_person(event.by, holder)
        }

    def _reading(self, tasks: TaskList, look: Look) -> QueueReading:
        found = tasks if look.policy.issues is Issues.NONE else without_numbers(tasks)
        around = self._around(look)
        shown = self._with_records(found.tasks, look)
        entries = survey(shown, around)
        carried = carrying(shown, around)
        leases = {
            x.lease_id: x for part in (entries, carried) for e in part if (x := e.lease) is not None
        }
        views = self._session.views(look, list(leases.values()))
        next_up = tuple(hand_out(entries))
        said = look.warnings + _problems(found)
        return QueueReading(
            entries=tuple(entries),
            next_up=next_up,
            carried=tuple(carried),
            views=dict(zip(leases, views, strict=True)),
            warnings=said if next_up else said + unknown_statuses(found.tasks),
        )

    def _recent_losses(self, look: Look, carried: Iterable[Carry]) -> tuple[Taken, ...]:
        since = look.moment.now.wall_ms - RECENT * MS
        back = {fold(c.resource) for c in carried if c.state is Carried.LIVE}
        return tuple(
            Taken(
                resource=event.resource or "",
                scope=event.scope or "",
                what=TAKEN[event.kind],
                by=event.by,
                at=event.at,
                reason=event.reason,
                lapsed=event.kind == "displaced" and event.detail is not None,
            )
            for (key, _), event in self._losses().items()
            if event.at >= since and key not in back
        )


def waiters(session: LedgerSession, look: Look | None) -> Callable[[Task], str | None]:
    """Tell of each task of which waiter's it is for now, if nobody holds it."""
    ledger = look.head.ledger if look else None
    if ledger is None or not ledger.every_ticket():
        return lambda _task: None

    def of(task: Task) -> str | None:
        wanted = Claim(
            id="",
            actor=session.actor,
            resource=task.resource,
            lease_id="",
            paths=task.paths,
        )
        waiting, passing = left_to(session, wanted)
        return waiting[passing].holder if len(waiting) > passing else None

    return of


def _chunks(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    # One step picks from each chunk; abandoned tasks are tried one by one.
    usual = [entry for entry in entries if not entry.abandoned]
    for start in range(0, len(usual), AT_ONCE):
        yield usual[start : start + AT_ONCE]
    yield from ([entry] for entry in entries if entry.abandoned)


def _without(reading: QueueReading, skip: frozenset[str]) -> QueueReading:
    kept = tuple(x for x in reading.next_up if x.task.resource.key not in skip)
    return replace(reading, next_up=kept)


TAKEN = {"displaced": "taken_over", "revoked": "revoked", "retired": "retired"}
# The events that decide the state of a claim: a later one supersedes those before it.
ABOUT = frozenset({*TAKEN, "claimed", "released", "completed"})


def _notes(look: Look, reading: QueueReading) -> tuple[Note, ...]:
    ledger = look.head.ledger
    if ledger is None:
        return ()
    owned = [c.task or c.lease for c in reading.carried]
    wanted = [own.resource for own in owned if own is not None]
    wanted += [e.task.resource for e in reading.next_up[:1]]
    notes: list[Note] = []
    for resource in dict.fromkeys(wanted):
        try:
            notes += ledger.notes(resource)
        except Invalid:
            continue  # lists report the damage; a briefing goes on without it
    return tuple(notes)


def unknown_statuses(tasks: Iterable[Task]) -> tuple[str, ...]:
    """A warning that names the status words of tasks which no setting knows."""
    counted = Counter(t.status.strip() for t in tasks if t.progress is Progress.OTHER)
    if not counted:
        return ()
    named = [f"{shown(word)} ({many})" for word, many in counted.most_common(PROBLEMS_SHOWN)]
    more = f" and {len(counted) - len(named)} more" if len(counted) > len(named) else ""
    return (
        f"statuses that tasks.statuses in .gitlease.yaml lacks, so that their tasks cannot be "
        f"claimed: {', '.join(named)}{more}",
    )


def problem_messages(found: TaskList) -> tuple[str, ...]:
    """The task files that cannot be used, each with what is wrong."""
    said = [p.message for p in found.problems[:PROBLEMS_SHOWN]]
    if len(found.problems) > PROBLEMS_SHOWN:
        said.append(f"and {len(found.problems) - PROBLEMS_SHOWN} more task files cannot be used")
    return tuple(said)


def _problems(found: TaskList) -> tuple[str, ...]:
    if not found.tasks and not found.problems:
        return (found.nothing or NO_TASKS,)
    return problem_messages(found)


def _with_warnings(answer: Answer, said: Sequence[str]) -> Answer:
    return replace(answer, warnings=tuple(dict.fromkeys((*said, *answer.warnings))))
