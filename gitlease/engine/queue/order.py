"""The queue of tasks: which may be claimed, in which order, and why not the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum

from gitlease.core.edge import People, Progress, Task
from gitlease.core.errors import NothingLeft
from gitlease.core.frozen import dataclass
from gitlease.core.lease import Actor, Lease, Moment, Relation, State, holder_has, relation
from gitlease.core.moves.claiming import finishing
from gitlease.core.policy import Policy
from gitlease.core.resources import pattern
from gitlease.core.resources.pattern import fold

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

Pathy = tuple[Lease, list[pattern.Pattern]]  # what is leased, with the paths that it covers


class WhyNot(Enum):
    """Why a task is not handed out."""

    DONE = "done"
    STATUS = "status"
    ASSIGNED = "assigned"
    HELD = "held"
    YOURS = "yours"
    ELSEWHERE = "elsewhere"
    WAITED_FOR = "waited_for"


@dataclass(frozen=True, slots=True)
class Entry:
    """A task in the queue. ``why_not`` None: the caller may claim it.

    ``who`` is the holder or assignee in the way, and ``lease`` the record in the way, or the
    caller's own. ``waits_for`` has its open dependencies, as written. ``parked``: the caller parked
    it, and resumes it by claiming the scope of ``lease``. ``abandoned``: it is handed out last, if
    nobody was seen at work on it.
    """

    task: Task
    why_not: WhyNot | None = None
    who: str | None = None
    lease: Lease | None = None
    waits_for: tuple[str, ...] = ()
    depth: int = 0
    parked: bool = False
    abandoned: bool = False

    @property
    def claimable(self) -> bool:
        return self.why_not is None


class Carried(Enum):
    """The state of the lease of a carried task."""

    LIVE = "live"
    PARKED = "parked"
    LAPSED = "lapsed"
    TAKEN_OVER = "taken_over"
    THEIRS = "theirs"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Carry:
    """A resource that a person carries by an edge, by a lease, or both.

    ``by`` is another holder of the lease: it was taken over, or is that of another assignee, or of
    somebody who claimed it after a release that the file here lacks.
    """

    resource: str
    state: Carried
    task: Task | None = None
    lease: Lease | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """An actor, and the records of a ledger at one moment.

    ``was_taken`` tells by the audit trail whether others took a task (folded name) from the actor,
    and ``left_to`` for whom a free task is left, who has waited for it in line.
    """

    actor: Actor
    people: People
    leases: Sequence[Lease]
    policy: Policy
    moment: Moment
    was_taken: Callable[[str], bool] = lambda _key: False
    left_to: Callable[[Task], str | None] = lambda _task: None

    def relation(self, lease: Lease) -> Relation:
        return relation(lease, self.actor, self.policy, self.moment)

    def by_resource(self) -> Mapping[str, list[Lease]]:
        found: dict[str, list[Lease]] = {}
        for lease in self.leases:
            found.setdefault(lease.resource.key, []).append(lease)
        return found


def survey(tasks: Sequence[Task], around: Surroundings) -> list[Entry]:
    """Every task in the order of the queue: priority, then open dependencies, then age.

    Tasks that the caller parked come first. An open or missing dependency only affects the order,
    and never refuses a claim.
    """
    return sorted(_entries(tasks, tasks, around), key=_order)


def entry_of(task: Task, tasks: Sequence[Task], around: Surroundings) -> Entry:
    """The queue entry of one of the tasks."""
    return _entries([task], tasks, around)[0]


def _entries(some: Sequence[Task], tasks: Sequence[Task], around: Surroundings) -> list[Entry]:
    held = around.by_resource()
    done = {t.resource.key for t in tasks if t.is_done}
    done |= {key for key, leases in held.items() if _finished(leases, around)}
    depths = _depths(tasks, done)
    pathy = [
        (x, [pattern.parse(text) for text in x.patterns])
        for x in around.leases
        if x.patterns and around.relation(x) in _LIVE_RIVALS
    ]
    return [_entry(t, held.get(t.resource.key, ()), pathy, done, depths, around) for t in some]


def hand_out(entries: Iterable[Entry]) -> list[Entry]:
    """The claimable tasks, best first: parked ones, then those without open dependencies.

    Abandoned ones come last.
    """
    free = (e for e in entries if e.claimable)  # in the order of the queue, which ties keep
    return sorted(free, key=lambda e: (not e.parked, e.abandoned, e.depth))


_WHY = {
    WhyNot.DONE: "done",
    WhyNot.STATUS: "in a status that tasks.statuses lacks",
    WhyNot.ASSIGNED: "assigned to others",
    WhyNot.HELD: "held",
    WhyNot.YOURS: "yours already",
    WhyNot.ELSEWHERE: "not in this checkout",
    WhyNot.WAITED_FOR: "left to others who wait for them",
}


def nothing_left(entries: Iterable[Entry], warnings: tuple[str, ...]) -> NothingLeft:
    """The refusal, with a count of the tasks by reason."""
    entries = list(entries)
    counted = Counter(e.why_not for e in entries if e.why_not is not None)
    why = ", ".join(f"{counted[kind]} {words}" for kind, words in _WHY.items() if counted[kind])
    refusal = NothingLeft(f"nothing is left to claim{': ' + why if why else ''}")
    refusal.warnings = warnings
    refusal.away = tuple(e.task.resource.text for e in entries if e.why_not is WhyNot.ELSEWHERE)
    return refusal


def carrying(tasks: Sequence[Task], around: Surroundings) -> list[Carry]:
    """The unfinished tasks assigned to the caller, and everything it holds; parked ones first."""
    people, holder, held = around.people, around.actor.holder, around.by_resource()
    found: dict[str, Carry] = {}
    for task in tasks:
        if task.is_done:
            continue
        leases = held.get(task.resource.key, ())
        if _finished(leases, around) is not None:
            continue
        if any(people.is_mine(name, holder) for name in task.assigned):
            found[task.resource.key] = _carry(task, leases, around)
        elif any(people.is_mine(name, holder) for name in task.outdated):
            # The file here still names a holder from whom it was taken: they should learn of it.
            carry = _carry(task, leases, around)
            if carry.state is Carried.TAKEN_OVER:
                found[task.resource.key] = carry
    by_key = {t.resource.key: t for t in tasks}
    for lease in around.leases:
        own = lease.state is State.ACTIVE and lease.same_holder(around.actor)
        if own and lease.resource.key not in found:
            state = _own_state(lease, around)
            task_of = by_key.get(lease.resource.key)
            found[lease.resource.key] = Carry(lease.resource.text, state, task_of, lease)
    first = Carried.PARKED
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
    around: Surroundings,
) -> Entry:
    why, who, lease = _why_not(task, leases, pathy, around)
    if why is None and task.ref:  # no command could read it, nor an edit be written
        why, lease = WhyNot.ELSEWHERE, None
    how = None if why is not None or lease is None else around.relation(lease)
    parked, abandoned = how is Relation.PARKED, how is Relation.THEIRS_ABANDONED
    waits = () if task.is_done else tuple(d for d in task.depends_on if fold(d) not in done)
    depth = depths.get(task.resource.key, 0)
    return Entry(task, why, who, lease, waits, depth, parked, abandoned)


def _finished(leases: Sequence[Lease], around: Surroundings) -> Lease | None:
    done = (x for x in finishing(leases) if around.relation(x) is Relation.COMPLETED)
    return next(done, None)


def _why_not(
    task: Task, leases: Sequence[Lease], pathy: Sequence[Pathy], around: Surroundings
) -> tuple[WhyNot | None, str | None, Lease | None]:
    if task.is_done:
        return WhyNot.DONE, None, None
    stands = [(x, around.relation(x)) for x in leases]
    others = around.people.others(task.assigned, around.actor.holder)
    parked = next((x for x, how in stands if how is Relation.PARKED), None)
    if parked is not None and (parked.edge or not others):
        return (WhyNot.STATUS, None, None) if _is_other(task) else (None, None, parked)
    if (done := _finished(leases, around)) is not None:
        return WhyNot.DONE, done.holder, done
    for lease, how in stands:
        if how is Relation.MINE:
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
    own_paths = [pattern.parse(path) for path in task.paths] if pathy else []
    for lease, theirs in pathy if own_paths else ():
        overlaps = any(pattern.overlap(a, b) for a in own_paths for b in theirs)
        if overlaps and lease.resource != task.resource:
            return WhyNot.HELD, lease.holder, lease
    if (waiter := around.left_to(task)) is not None:
        return WhyNot.WAITED_FOR, waiter, None
    own = next((x for x, how in stands if how is Relation.MINE_LAPSED), None)
    return None, None, own or next(iter(gone), None)


def _is_other(task: Task) -> bool:
    return task.progress is Progress.OTHER


def _carry(task: Task, leases: Sequence[Lease], around: Surroundings) -> Carry:
    name, active = task.resource.text, [x for x in leases if x.state is State.ACTIVE]
    own = [x for x in active if x.same_holder(around.actor)]
    if own:
        best = min(own, key=lambda x: _STATES.index(_own_state(x, around)))
        return Carry(name, _own_state(best, around), task, best)
    for lease in active:
        if around.relation(lease) in _IN_THE_WAY:
            taken = around.was_taken(task.resource.key)
            state = Carried.TAKEN_OVER if taken else Carried.THEIRS
            return Carry(name, state, task, lease, lease.holder)
    return Carry(name, Carried.NONE, task)


def _own_state(lease: Lease, around: Surroundings) -> Carried:
    how = around.relation(lease)
    if how is Relation.PARKED:
        return Carried.PARKED
    live = how in _LIVE and holder_has(lease, around.moment)
    return Carried.LIVE if live else Carried.LAPSED


_STATES = (Carried.LIVE, Carried.PARKED, Carried.LAPSED)  # of several leases the first is shown


# --- order ------------------------------------------------------------------------------------


def rank(priority: str) -> int:
    """The rank of a priority, 0 the most urgent: words, or numbers such as ``1`` and ``P1``."""
    word = fold(priority.strip())
    number = _NUMBER.fullmatch(word)
    return int(number[1]) if number else _RANKS.get(word, MEDIUM)


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts numbers in a text by their value: ``F9`` before ``F10``."""
    parts = _DIGITS.split(fold(text))
    return tuple((0, int(p), p) if p.isdigit() and p.isascii() else (1, 0, p) for p in parts if p)


def _order(entry: Entry) -> tuple[object, ...]:
    task = entry.task
    created = task.created.strip()
    age = created if _DATE.match(created) else LAST
    first = not entry.parked, entry.abandoned, rank(task.priority)
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
