"""The queue of tasks: which may be claimed and in which order, why not the others, and the next."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from typing import Protocol

from gitlease.kernel.ledger.answers import Answer, ClaimOptions, Taken
from gitlease.kernel.ledger.claim import left_to, pick
from gitlease.kernel.ledger.edges import BY_INIT, Planned, find_task, without_numbers
from gitlease.kernel.ledger.ledger_session import LedgerSession, LedgerView, with_records
from gitlease.kernel.ledger.ports import TaskList
from gitlease.kernel.rules import resources
from gitlease.kernel.rules.edge import People, Progress, Task
from gitlease.kernel.rules.errors import GitleaseError, Invalid, NothingLeft, shown
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import MS, moment_of
from gitlease.kernel.rules.lease import (
    DEFAULT_POLICY,
    Actor,
    Lease,
    Moment,
    Policy,
    Relation,
    State,
    holder_has,
    relation,
    same_person,
)
from gitlease.kernel.rules.lease_view import LeaseView, view_lease
from gitlease.kernel.rules.ledger import Note, Setback, is_kept
from gitlease.kernel.rules.moves.claiming import completed_records
from gitlease.kernel.rules.moves.operations import Claim, Event
from gitlease.kernel.rules.resources import (
    GLOBAL_LAYER,
    Issues,
    Resource,
    fold,
    parse_resource,
    word_anywhere,
)

# Common words, most urgent first; an unknown or missing priority counts as medium.
MEDIUM = 2
_WORDS = (
    ("critical", "urgent", "highest", "blocker", "immediate"),
    ("high", "important", "major"),
    ("medium", "normal", "default", "moderate"),
    ("low", "minor"),
    ("lowest", "trivial", "someday"),
)
_RANKS = {word: rank for rank, words in enumerate(_WORDS) for word in words}
_NUMBER = re.compile(r"p?([0-9]{1,6})")
_DATE = re.compile(r"[0-9]{4}-?[0-9]{2}")
_DIGITS = re.compile(r"([0-9]+)")
LAST = "~"  # sorts behind every date

Pathy = tuple[Lease, list[resources.Pattern]]  # what is leased, with the paths that it covers


class WhyNot(Enum):
    """Why a task is not handed out."""

    DONE = "done"
    STATUS = "status"
    ASSIGNED = "assigned"
    HELD = "held"
    YOURS = "yours"
    ELSEWHERE = "elsewhere"
    WAITED_FOR = "waited_for"
    FAILED = "failed"


@dataclass(frozen=True)
class Entry:
    """A task in the queue. ``why_not`` is None if the caller may claim it.

    ``who`` is the holder or assignee in the way, ``lease`` the conflicting lease or the caller's
    own. ``waits_for`` has its open dependencies, as written, ``depth`` their longest chain.
    ``abandoned``: it is offered last. ``setback``: it failed, and is left alone or offered again.
    """

    task: Task
    why_not: WhyNot | None = None
    who: str | None = None
    lease: LeaseView | None = None
    waits_for: tuple[str, ...] = ()
    depth: int = 0
    abandoned: bool = False
    setback: Setback | None = None

    @property
    def claimable(self) -> bool:
        """Return whether the caller may claim it now."""
        return self.why_not is None


class Carried(Enum):
    """The state of the lease of a carried task."""

    LIVE = "live"
    WAITING = "waiting"
    LAPSED = "lapsed"
    TAKEN_OVER = "taken_over"
    THEIRS = "theirs"
    NONE = "none"


@dataclass(frozen=True)
class Carry:
    """A resource that a person has: by the task's file, by a lease, or both.

    ``by`` is another holder of the lease: who took it over, is assigned as well, or claimed it
    after a release that the file here does not show yet.
    """

    resource: str
    state: Carried
    task: Task | None = None
    lease: LeaseView | None = None
    by: str | None = None


@dataclass(frozen=True)
class QueueContext:
    """An actor, and the records of a ledger at one moment.

    ``was_taken`` tells by the audit trail whether others took a task (folded name) from the actor,
    and ``left_to`` for whom a free task is left, who has waited for it in line. ``setback`` tells
    how often a task failed.
    """

    actor: Actor
    people: People
    leases: Sequence[Lease]
    policy: Policy
    moment: Moment
    was_taken: Callable[[str], bool] = lambda _key: False
    left_to: Callable[[Task], str | None] = lambda _task: None
    setback: Callable[[Resource], Setback | None] = lambda _resource: None
    layer: str = GLOBAL_LAYER

    def view(self, lease: Lease | None) -> LeaseView | None:
        """The lease as the actor sees it."""
        if lease is None:
            return None
        actor, policy, moment = self.actor, self.policy, self.moment
        return view_lease(lease, layer=self.layer, actor=actor, policy=policy, moment=moment)

    def relation(self, lease: Lease) -> Relation:
        return relation(lease, self.actor, self.policy, self.moment)

    def by_resource(self) -> Mapping[str, list[Lease]]:
        found: dict[str, list[Lease]] = {}
        for lease in self.leases:
            found.setdefault(lease.resource.key, []).append(lease)
        return found


def survey(tasks: Sequence[Task], context: QueueContext) -> list[Entry]:
    """Every task in the order of the queue: priority, then open dependencies, then age.

    An open or missing dependency only affects the order, and never refuses a claim.
    """
    return sorted(_entries(tasks, tasks, context), key=_order)


def entry_of(task: Task, tasks: Sequence[Task], context: QueueContext) -> Entry:
    """The queue entry of one of the tasks."""
    return _entries([task], tasks, context)[0]


def _entries(some: Sequence[Task], tasks: Sequence[Task], context: QueueContext) -> list[Entry]:
    held = context.by_resource()
    done = {t.resource.key for t in tasks if t.is_done}
    done |= {key for key, leases in held.items() if _finished(leases, context)}
    depths = _depths(tasks, done)
    pathy = [
        (x, [resources.parse(text) for text in x.patterns])
        for x in context.leases
        if x.patterns and context.relation(x) in _LIVE_RIVALS
    ]
    return [_entry(t, held.get(t.resource.key, ()), pathy, done, depths, context) for t in some]


def hand_out(entries: Iterable[Entry]) -> list[Entry]:
    """The claimable tasks, best first: those without open dependencies, and abandoned ones last."""
    free = (e for e in entries if e.claimable)  # in the order of the queue, which ties keep
    return sorted(free, key=lambda e: (e.abandoned, e.depth))


_WHY = {
    WhyNot.DONE: "done",
    WhyNot.STATUS: "in a status that tasks.statuses lacks",
    WhyNot.ASSIGNED: "assigned to others",
    WhyNot.HELD: "held",
    WhyNot.YOURS: "yours already",
    WhyNot.ELSEWHERE: "not in this checkout",
    WhyNot.WAITED_FOR: "left to others who wait for them",
    WhyNot.FAILED: "left alone after a failure, or for a person",
}


def nothing_left(entries: Iterable[Entry], warnings: tuple[str, ...]) -> NothingLeft:
    """The refusal, with a count of the tasks by reason."""
    entries = list(entries)
    counted = Counter(e.why_not for e in entries if e.why_not is not None)
    why = ", ".join(f"{counted[kind]} {words}" for kind, words in _WHY.items() if counted[kind])
    return NothingLeft(
        f"nothing is left to claim{': ' + why if why else ''}",
        warnings=warnings,
        away=tuple(e.task.resource.text for e in entries if e.why_not is WhyNot.ELSEWHERE),
    )


def carrying(tasks: Sequence[Task], context: QueueContext) -> list[Carry]:
    """The unfinished tasks assigned to the caller, and everything it holds; waiting ones first."""
    people, holder, held = context.people, context.actor.holder, context.by_resource()
    found: dict[str, Carry] = {}
    for task in tasks:
        if task.is_done:
            continue
        leases = held.get(task.resource.key, ())
        if _finished(leases, context) is not None:
            continue
        if any(people.is_mine(name, holder) for name in task.assigned):
            found[task.resource.key] = _carry(task, leases, context)
        elif any(people.is_mine(name, holder) for name in task.outdated):
            # The file here still names a holder from whom it was taken: they should learn of it.
            carry = _carry(task, leases, context)
            if carry.state is Carried.TAKEN_OVER:
                found[task.resource.key] = carry
    by_key = {t.resource.key: t for t in tasks}
    for lease in context.leases:
        own = lease.state is State.ACTIVE and lease.same_holder(context.actor)
        if own and lease.resource.key not in found:
            state = _own_state(lease, context)
            task_of = by_key.get(lease.resource.key)
            view = context.view(lease)
            found[lease.resource.key] = Carry(lease.resource.text, state, task_of, view)
    first = Carried.WAITING
    return sorted(found.values(), key=lambda c: (c.state is not first, natural(c.resource)))


_LIVE = {Relation.MINE, Relation.MY_RUN, Relation.MY_OTHER_RUN}
_LIVE_RIVALS = {Relation.MY_RUN, Relation.MY_OTHER_RUN, Relation.THEIRS}
_IN_THE_WAY = {*_LIVE_RIVALS, Relation.THEIRS_ASSIGNED, Relation.THEIRS_ABANDONED}


def _entry(
    task: Task,
    leases: Sequence[Lease],
    pathy: Sequence[Pathy],
    done: set[str],
    depths: Mapping[str, int],
    context: QueueContext,
) -> Entry:
    why, who, lease = _why_not(task, leases, pathy, context)
    if why is None and task.ref:  # no command could read it, nor an edit be written
        why, lease = WhyNot.ELSEWHERE, None
    setback = None if why is WhyNot.DONE else context.setback(task.resource)
    if why is None and setback and setback.is_left_alone(context.moment.now.wall_ms):
        why = WhyNot.FAILED
    how = None if why is not None or lease is None else context.relation(lease)
    abandoned = how is Relation.THEIRS_ABANDONED
    waits = () if task.is_done else tuple(d for d in task.depends_on if fold(d) not in done)
    depth = depths.get(task.resource.key, 0)
    view = context.view(lease)
    return Entry(task, why, who, view, waits, depth, abandoned, setback)


def _finished(leases: Sequence[Lease], context: QueueContext) -> Lease | None:
    done = (x for x in completed_records(leases) if context.relation(x) is Relation.COMPLETED)
    return next(done, None)


def _why_not(
    task: Task, leases: Sequence[Lease], pathy: Sequence[Pathy], context: QueueContext
) -> tuple[WhyNot | None, str | None, Lease | None]:
    if task.is_done:
        return WhyNot.DONE, None, None
    stands = [(x, context.relation(x)) for x in leases]
    others = context.people.others(task.assigned, context.actor.holder)
    if (done := _finished(leases, context)) is not None:
        return WhyNot.DONE, done.holder, done
    for lease, how in stands:
        if how is Relation.MINE or _is_under_another_address(lease, context):
            return WhyNot.YOURS, lease.holder, lease
        if how is Relation.THEIRS_ASSIGNED:
            return WhyNot.ASSIGNED, lease.holder, lease
        if how in _IN_THE_WAY and how is not Relation.THEIRS_ABANDONED:
            return WhyNot.HELD, lease.holder, lease
    gone = [x for x, how in stands if how is Relation.THEIRS_ABANDONED]
    others = tuple(a for a in others if not any(a.is_holder(x.holder) for x in gone))
    if others:
        return WhyNot.ASSIGNED, others[0].known, None
    if _is_other(task):
        return WhyNot.STATUS, None, None
    own_paths = [resources.parse(path) for path in task.paths] if pathy else []
    for lease, theirs in pathy if own_paths else ():
        overlaps = any(resources.overlap(a, b) for a in own_paths for b in theirs)
        if overlaps and lease.resource != task.resource:
            return WhyNot.HELD, lease.holder, lease
    if (waiter := context.left_to(task)) is not None:
        return WhyNot.WAITED_FOR, waiter, None
    own = next((x for x, how in stands if how is Relation.MINE_LAPSED), None)
    return None, None, own or next(iter(gone), None)


def _is_other(task: Task) -> bool:
    return task.progress is Progress.OTHER


def _carry(task: Task, leases: Sequence[Lease], context: QueueContext) -> Carry:
    name, active = task.resource.text, [x for x in leases if x.state is State.ACTIVE]
    own = [x for x in active if x.same_holder(context.actor)]
    if own:
        best = min(own, key=lambda x: _STATES.index(_own_state(x, context)))
        return Carry(name, _own_state(best, context), task, context.view(best))
    for lease in active:
        if _is_under_another_address(lease, context):
            return Carry(name, Carried.LAPSED, task, context.view(lease))
        if context.relation(lease) in _IN_THE_WAY:
            taken = context.was_taken(task.resource.key)
            state = Carried.TAKEN_OVER if taken else Carried.THEIRS
            return Carry(name, state, task, context.view(lease), lease.holder)
    return Carry(name, Carried.NONE, task)


def _is_under_another_address(lease: Lease, context: QueueContext) -> bool:
    """Return whether the caller has the task by a lapsed lease of another address of theirs."""
    is_lapsed = context.relation(lease) is Relation.THEIRS_ASSIGNED
    return is_lapsed and context.people.is_same(lease.holder, context.actor.holder)


def _own_state(lease: Lease, context: QueueContext) -> Carried:
    setback = context.setback(lease.resource) if is_kept(lease) else None
    if setback is not None and setback.waits:
        return Carried.WAITING
    how = context.relation(lease)
    live = how in _LIVE and holder_has(lease, context.moment)
    return Carried.LIVE if live else Carried.LAPSED


_STATES = (Carried.LIVE, Carried.WAITING, Carried.LAPSED)  # of several leases the first is shown


# --- order ------------------------------------------------------------------------------------


def rank(priority: str) -> int:
    """The rank of a priority, 0 the most urgent: words, or numbers such as ``1`` and ``P1``."""
    word = fold(priority.strip())
    number = _NUMBER.fullmatch(word)
    # A word that nobody knows is neither urgent nor idle.
    return int(number[1]) if number else _RANKS.get(word, MEDIUM)


def is_ranked(priority: str) -> bool:
    """Return whether the rank of a priority is known."""
    word = fold(priority.strip())
    return word in _RANKS or _NUMBER.fullmatch(word) is not None


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts numbers in a text by their value: ``F9`` before ``F10``."""
    # "²" is a digit to isdigit(), but not to int().
    parts = _DIGITS.split(fold(text))
    return tuple((0, int(p), p) if p.isdigit() and p.isascii() else (1, 0, p) for p in parts if p)


def _order(entry: Entry) -> tuple[object, ...]:
    task = entry.task
    created = task.created.strip()
    # Whatever is no date would sort by its letters: it counts as the newest.
    age = created if _DATE.match(created) else LAST
    first = entry.abandoned, rank(task.priority)
    return *first, entry.depth, age, natural(task.resource.text)


def _depths(tasks: Sequence[Task], done: set[str]) -> dict[str, int]:
    # The longest chain of open dependencies before each task; a cycle counts as one more step.
    open_of = {
        t.resource.key: [key for d in t.depends_on if (key := fold(d)) not in done]
        for t in tasks
        if not t.is_done
    }
    depths: dict[str, int] = {}
    for start in open_of:
        path: list[str] = [start]
        on_path = {start}
        # Without recursion: a chain of dependencies may be as long as there are tasks.
        while path:
            here = path[-1]
            below = [k for k in open_of.get(here, ()) if k not in depths and k not in on_path]
            if below:
                path.append(below[0])
                on_path.add(below[0])
                continue
            inner = [depths.get(k, 0) for k in open_of.get(here, ())]
            depths[here] = 1 + max(inner) if inner else 0
            on_path.discard(path.pop())
    return depths


AT_ONCE = 32  # tasks from which one step picks the first free one
PLANNED_AGAIN = 4  # times a pick is planned again on fresh knowledge
PROBLEMS_SHOWN = 10
LOOKED_BACK = 500  # events of the audit trail that a briefing reads
RECENT = 7 * 86_400  # seconds for which a briefing shows losses
NO_TASKS = "no task files found"


class _PlanAnew(Exception):
    """A task became claimable after the pick was planned."""


class TaskWorktrees(Protocol):
    """Work trees that begin at ``base``, each made for one task."""

    @property
    def base(self) -> str: ...

    def tidy(self, entries: Sequence[Entry], skip: Collection[str]) -> None:
        """Remove work trees of tasks that are done, except those to skip."""

    def claim(self, task: Task, options: ClaimOptions) -> Answer | None:
        """Claim a task in a work tree made for it; None if the task was passed over."""


@dataclass(frozen=True)
class FoundTask:
    """A task in the queue, if there is one. ``warnings`` are about unusable task files."""

    entry: Entry | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class QueueReading:
    """The tasks as one actor finds them.

    ``entries`` are in the order of the queue, ``next_up`` what is handed out, best first;
    ``others`` has what others hold, in every layer in use. ``left_alone``: what failed lately, or
    waits for a person, and is not handed out.
    """

    entries: tuple[Entry, ...] = ()
    next_up: tuple[Entry, ...] = ()
    carried: tuple[Carry, ...] = ()
    taken: tuple[Taken, ...] = ()
    notes: tuple[Note, ...] = ()
    others: tuple[LeaseView, ...] = ()
    left_alone: tuple[Entry, ...] = ()
    warnings: tuple[str, ...] = ()


class TaskQueue:
    """The tasks of one work tree, or of a ref, as the session's actor may take them."""

    def __init__(
        self, session: LedgerSession, others: Callable[[], Sequence[LedgerSession]] = lambda: ()
    ) -> None:
        """``others`` are the same actor's sessions of the other layers in use."""
        self._session, self._edges, self._others = session, session.edges, others

    def queue(self, *, ref: str | None = None, cached: bool = False) -> QueueReading:
        """Every task in the order of the queue, each with whether it may be claimed.

        One connection, or none with ``cached``. NotFound for an unknown ref.
        """
        look = self._session.look(cached=cached)  # first: it may finish what was left undone
        warnings = self._session.take_warnings()
        return self._reading(self._tasks(ref), look, warnings)

    def brief(self, *, ref: str | None = None, cached: bool = False) -> QueueReading:
        """A briefing at the start of work: like ``queue``, with what is carried in other layers,
        losses, notes and others' leases."""
        look = self._session.look(cached=cached)
        warnings = self._session.take_warnings()
        others, more = self._looks(cached=cached)
        return self._brief(look, others, ref, warnings=warnings, more=more)

    def known_brief(self) -> QueueReading | None:
        """Like ``brief``, from this clone's copy alone; None if it has no ledger."""
        look = self._session.known_look()
        if look is None or look.head.ledger is None:
            return None
        known = [(x, y) for x in self._others() if (y := x.known_look()) is not None]
        return self._brief(look, known, None)

    def next_task(self, *, ref: str | None = None, cached: bool = False) -> QueueReading:
        """Like ``queue``; raises NothingLeft if no task may be handed out."""
        reading = self.queue(ref=ref, cached=cached)
        # Of a ref nothing is claimed, so its files need not be writable here.
        if ref is None:
            reading = self._claimable(reading)
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
        return FoundTask(entry_of(task, found.tasks, self._context(look)))

    def choices(self, *, ref: str | None = None, skip: Collection[str] = ()) -> QueueReading:
        """Like ``queue``, where what may be handed out next is none of the tasks ``skip``."""
        return _without(self.queue(ref=ref), frozenset(map(fold, skip)))

    def claim_next(
        self,
        options: ClaimOptions,
        *,
        skip: Collection[str] = (),
        worktrees: TaskWorktrees | None = None,
    ) -> tuple[Answer, Task]:
        """Claim the first free task, decided in the step that takes it.

        However many workers ask at once, each gets a different task, or NothingLeft. ``skip`` names
        tasks to avoid. With ``worktrees`` the tasks are those of their base, and each is claimed in
        the work tree that is made for it.
        """
        passed_by = frozenset(map(fold, skip))
        if worktrees is not None:
            return self._claim_in(worktrees, options, passed_by)
        self._session.settle()
        for _ in range(PLANNED_AGAIN):
            with suppress(_PlanAnew):
                return self._claim_next(options, passed_by)
        return self._claim_next(options, passed_by, last=True)

    def _claim_next(
        self, options: ClaimOptions, skip: frozenset[str], *, last: bool = False
    ) -> tuple[Answer, Task]:
        tasks = self._tasks()
        # Old knowledge will do: the step decides again where the ledger has moved on.
        look = self._session.known_look() or self._session.look()
        reading = _without(self._reading(tasks, look, ()), skip)
        messages = self._session.messages
        messages.add(reading.warnings)
        waiting = [entry.task for entry in reading.next_up]
        for some in _chunks(reading.next_up):
            plans, unwritable = self._writable([entry.task for entry in some], options)
            messages.add(unwritable)
            if not plans:
                continue
            abandoned = some[0].abandoned
            try:
                answer = pick(
                    self._session,
                    [p.alone for p in plans] if abandoned else plans,
                    options,
                    abandoned=abandoned,
                )
            except NothingLeft as refusal:
                messages.add(refusal.warnings)
                continue
            picked = answer.leases[0].resource
            task = next(p.task for p in plans if p.task and p.resource.text == picked)
            return answer, task
        # That nothing is left is never said from old knowledge.
        fresh = self.choices(skip=skip)
        if not last and any(entry.task not in waiting for entry in fresh.next_up):
            messages.add(fresh.warnings)
            raise _PlanAnew
        raise nothing_left(fresh.entries, fresh.warnings)

    def _claim_in(
        self, worktrees: TaskWorktrees, options: ClaimOptions, skip: frozenset[str]
    ) -> tuple[Answer, Task]:
        reading = self.choices(ref=worktrees.base, skip=skip)
        worktrees.tidy(reading.entries, skip)
        for entry in reading.next_up:
            answer = worktrees.claim(entry.task, options)
            if answer is not None:
                return answer, entry.task
        raise nothing_left(reading.entries, reading.warnings)

    def _claimable(self, reading: QueueReading) -> QueueReading:
        # Drops tasks at the head whose files cannot be written.
        warnings = reading.warnings
        for number, entry in enumerate(reading.next_up):
            _, unwritable = self._writable([entry.task], ClaimOptions(commit=False))
            warnings += unwritable
            if not unwritable:
                return replace(reading, next_up=reading.next_up[number:], warnings=warnings)
        return replace(reading, next_up=(), warnings=warnings)

    # --- how ----------------------------------------------------------------------------------

    def _tasks(self, ref: str | None = None) -> TaskList:
        return self._edges.everywhere() if ref is None else self._edges.read(ref)

    def _looks(
        self, *, cached: bool
    ) -> tuple[list[tuple[LedgerSession, LedgerView]], tuple[str, ...]]:
        looks, left_out, warnings = [], list[str](), list[str]()
        for session in self._others():
            try:
                looks.append((session, session.look(cached=cached)))
            except GitleaseError as error:
                # The other layers are of use without this one.
                left_out.append(f"layer {session.layer} is left out: {error.message}")
            else:
                warnings += session.take_warnings()
        return looks, (*left_out, *warnings)

    def _brief(
        self,
        look: LedgerView,
        others: Sequence[tuple[LedgerSession, LedgerView]],
        ref: str | None,
        *,
        warnings: tuple[str, ...] = (),
        more: tuple[str, ...] = (),
    ) -> QueueReading:
        reading = self._reading(self._tasks(ref), look, warnings)
        taken, notes = self._recent_losses(look, reading.carried), _notes(look, reading)
        reading = self._with_others(reading, others, more)
        held: list[LeaseView] = []
        for session, one in ((self._session, look), *others):
            held += (
                x
                for x in session.views_in(one.head, one.leases, one.moment)
                if x.state == State.ACTIVE.value and not same_person(x.holder, session.actor.holder)
            )
        held.sort(key=lambda x: x.expires_at)
        return replace(reading, taken=taken, notes=notes, others=tuple(held))

    def _with_others(
        self,
        reading: QueueReading,
        others: Sequence[tuple[LedgerSession, LedgerView]],
        more: tuple[str, ...],
    ) -> QueueReading:
        # A live lease in another layer replaces the entry of an edge without one.
        carried = list(reading.carried)
        tasks = {c.task.resource.key: c.task for c in carried if c.task is not None}
        for session, look in others:
            found = carrying((), replace(self._context(look), layer=session.layer))
            kept = {_resource(x).key for x in found if x.state is Carried.LIVE}
            carried = [
                c
                for c in carried
                if c.state is Carried.LIVE or c.task is None or c.task.resource.key not in kept
            ]
            carried += [replace(c, task=tasks.get(_resource(c).key)) for c in found]
        warnings = tuple(dict.fromkeys(reading.warnings + more))
        return replace(reading, carried=tuple(carried), warnings=warnings)

    def _writable(
        self, tasks: Sequence[Task], options: ClaimOptions
    ) -> tuple[list[Planned], tuple[str, ...]]:
        edges = self._edges
        plans, against = edges.writable(
            tasks, lambda some: [edges.claim_of(task) for task in some], commit=options.commit
        )
        return plans, tuple(f"passed over: {error.message}" for _, error in against)

    def _context(self, look: LedgerView | None) -> QueueContext:
        losses = cache(self._losses)  # read only if asked for
        return QueueContext(
            actor=self._session.actor,
            people=self._edges.rules.people,
            leases=look.leases if look else (),
            policy=look.policy if look else DEFAULT_POLICY,
            moment=look.moment if look else Moment(now=self._session.clock.now()),
            was_taken=lambda key: any(taken == key for taken, _ in losses()),
            left_to=waiters(self._session, look),
            setback=setbacks(look),
            layer=self._session.layer,
        )

    def _with_records(self, tasks: Sequence[Task], look: LedgerView | None) -> list[Task]:
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
                # Newest first: a loss that another claim followed is none any more.
                last.setdefault((fold(event.resource), event.scope or ""), event)
        return {
            key: event
            for key, event in last.items()
            if event.kind in TAKEN and not same_person(event.by, holder)
        }

    def _reading(
        self, tasks: TaskList, look: LedgerView, warnings: tuple[str, ...]
    ) -> QueueReading:
        found = tasks if look.policy.issues is Issues.NONE else without_numbers(tasks)
        context = self._context(look)
        shown = self._with_records(found.tasks, look)
        entries = survey(shown, context)
        next_up = tuple(hand_out(entries))
        nothing = not found.tasks and not found.problems
        problems = (found.nothing or NO_TASKS,) if nothing else problem_messages(found)
        warnings = tuple(dict.fromkeys(warnings + problems + doubt_messages(found)))
        return QueueReading(
            entries=tuple(entries),
            next_up=next_up,
            carried=tuple(carrying(shown, context)),
            left_alone=tuple(x for x in entries if x.why_not is WhyNot.FAILED),
            # A word that no setting knows may be why nothing is left.
            warnings=warnings
            if next_up
            else warnings + unknown_statuses(found.tasks, f"; {BY_INIT}"),
        )

    def _recent_losses(self, look: LedgerView, carried: Iterable[Carry]) -> tuple[Taken, ...]:
        since = look.moment.now.wall_ms - RECENT * MS
        back = {fold(c.resource) for c in carried if c.state is Carried.LIVE}
        return tuple(
            Taken(
                resource=event.resource or "",
                scope=event.scope or "",
                what=TAKEN[event.kind],
                by=event.by,
                at=moment_of(event.at),
                reason=event.reason,
                lapsed=event.kind == "displaced" and event.detail is not None,
            )
            for (key, _), event in self._losses().items()
            if event.at >= since and key not in back
        )


def waiters(session: LedgerSession, look: LedgerView | None) -> Callable[[Task], str | None]:
    """Tell of each task of which waiter's it is for now, if nobody holds it."""
    ledger = look.head.ledger if look else None
    # Mostly nobody waits, and then no task need be asked about.
    if ledger is None or not ledger.every_ticket():
        return lambda _task: None

    def of(task: Task) -> str | None:
        wanted = Claim(
            id="", actor=session.actor, resource=task.resource, lease_id="", paths=task.paths
        )
        waiting, passing = left_to(session, wanted)
        return waiting[passing].holder if len(waiting) > passing else None

    return of


def setbacks(look: LedgerView | None) -> Callable[[Resource], Setback | None]:
    """Tell of each task how often it failed."""
    ledger = look.head.ledger if look else None
    return (lambda _resource: None) if ledger is None else ledger.setback


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
ABOUT = frozenset({*TAKEN, "claimed", "released", "unassigned", "completed"})


def _resource(carry: Carry) -> Resource:
    return carry.task.resource if carry.task else parse_resource(word_anywhere(carry.resource))


def _notes(look: LedgerView, reading: QueueReading) -> tuple[Note, ...]:
    ledger = look.head.ledger
    if ledger is None:
        return ()
    wanted = [_resource(carry) for carry in reading.carried]
    wanted += [e.task.resource for e in reading.next_up[:1]]
    notes: list[Note] = []
    for resource in dict.fromkeys(wanted):
        try:
            notes += ledger.notes(resource)
        except Invalid:
            continue  # lists report the damage; a briefing goes on without it
    return tuple(notes)


def unknown_statuses(tasks: Iterable[Task], way_out: str = "") -> tuple[str, ...]:
    """A warning that names the status words of tasks which no setting knows."""
    counted = Counter(t.status.strip() for t in tasks if t.progress is Progress.OTHER)
    if not counted:
        return ()
    named = [f"{shown(word)} ({many})" for word, many in counted.most_common(PROBLEMS_SHOWN)]
    more = f" and {len(counted) - len(named)} more" if len(counted) > len(named) else ""
    return (
        f"statuses that tasks.statuses in .gitlease.yaml lacks, so that their tasks cannot be "
        f"claimed: {', '.join(named)}{more}{way_out}",
    )


def problem_messages(found: TaskList) -> tuple[str, ...]:
    """The task files that cannot be used, each with what is wrong."""
    said = [p.message for p in found.problems[:PROBLEMS_SHOWN]]
    if len(found.problems) > PROBLEMS_SHOWN:
        said.append(f"and {len(found.problems) - PROBLEMS_SHOWN} more task files cannot be used")
    return tuple(said)


def doubt_messages(found: TaskList) -> tuple[str, ...]:
    """What is unknown of the tasks on the default branch."""
    more = len(found.doubts) - PROBLEMS_SHOWN
    rest = (f"and {more} more task files there cannot be read",) if more > 0 else ()
    return (*found.doubts[:PROBLEMS_SHOWN], *rest)
