"""One actor on one layer of a ledger: read it, carry out a step, and settle what was left open.

Every verb is made of these three; it has nothing else to do with the store.

The task file edits of a step are an intent, remembered before the ledger is changed and forgotten
when the files are written. The next command finishes or forgets one that a killed command left
behind, by the ledger, so that a lease and its edge never disagree for longer than that.

What the ledger decided last about a holder and a task outranks an older edge in any file: after a
release, an assignment that a branch still has protects nothing, until the holder claims again or
a newer commit assigns them.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from gitlease import engine
from gitlease.core.edge import Assignee, EdgeEdit, People, Task, printable
from gitlease.core.errors import GitleaseError, HeadGone, Invalid, NotFound, PolicyRefused, hint
from gitlease.core.frozen import dataclass, replace
from gitlease.core.instant import MS
from gitlease.core.lease import Actor, Lease, LeaseView, Moment, State, is_abandoned, same_person
from gitlease.core.ledger import MAX_STEP, Ledger, Notice, Setback
from gitlease.core.moves.operations import (
    Acknowledge,
    Bind,
    Claim,
    Complete,
    EndSession,
    Event,
    Operation,
    Outcome,
    Pick,
    Retire,
    RunOut,
    Unbind,
    grant_of,
)
from gitlease.core.policy import Policy
from gitlease.core.resources import WHOLE, Resource, fold
from gitlease.core.work import trailer
from gitlease.engine.answers import Settled, is_to, named, settle, told, told_by, unread_notices
from gitlease.engine.edges import Edges, Planned, changes_of
from gitlease.engine.ports import (
    Clock,
    DeadRun,
    Inbox,
    Intent,
    LandedWork,
    LedgerStore,
    Runs,
    Snapshot,
    TaskChange,
    TaskList,
    Written,
)
from gitlease.engine.transaction import PATIENCE, CarryOut, Step, Transaction, fresh_id, views_of

# Goals of an intent.
HELD, ENDED, COMPLETED, RETIRED = "held", "ended", "completed", "retired"
PART = "completed part"  # of a task, which is done with the last of several


def fulfil(
    edges: Edges, intent: Intent | None, planned: Iterable[Planned]
) -> tuple[tuple[Written, ...], tuple[str, ...]]:
    """Write the decided edits; failures are returned as warnings, and tried again later."""
    if intent is None:
        return (), ()
    try:
        written = edges.files.write(changes_of(planned), commit=intent.commit)
    except GitleaseError as error:
        written, problems = (), [error.message]
    else:
        problems = [f"{w.change.file}: {w.problem}" for w in written if w.problem]
    if not problems:
        edges.files.settled(intent)
        return written, ()
    # The ledger has changed, and that must be said: the intent stays for the next command.
    edges.files.leave(intent)
    said = "the ledger has the change, but the task file could not be updated"
    return written, tuple(f"{said}: {problem}" for problem in problems)


def repair(edges: Edges, intent: Intent, ledger: Ledger | None) -> tuple[str, ...]:
    """Finish the edits of a killed command if the ledger has its step; returns warnings."""
    files = edges.files.at(intent.root)
    confirmed = (_confirmed_part(edges.rules.people, intent, x, ledger) for x in intent.changes)
    wanted = [change for change in confirmed if change is not None]
    if files is None or not wanted:
        edges.files.settled(intent)
        return ()
    try:
        here, away = _located(files.read(), wanted)
        written = files.write(here, commit=intent.commit)
    except GitleaseError as error:
        away, written, problems = [], (), [error.message]
    else:
        problems = [f"{w.change.file}: {w.problem}" for w in written if w.problem]
    problems += [f"there is no task file of {c.resource} here ({c.message})" for c in away]
    if problems:
        edges.files.leave(intent)
    else:
        edges.files.settled(intent)
    said = [f"an interrupted command is not finished yet: {text}" for text in problems]
    return tuple(said) + tuple(
        f"finished an interrupted command: {w.change.message}, in {w.change.file}"
        for w in written
        if (w.changed or w.commit) and not w.problem
    )


def _confirmed_part(
    people: People, intent: Intent, change: TaskChange, ledger: Ledger | None
) -> TaskChange | None:
    leases = [] if ledger is None else ledger.leases_of(change.resource)
    own = [x for x in leases if same_person(x.holder, intent.holder)]
    held = any(x.state is State.ACTIVE and x.edge for x in own)
    done = any(x.state is State.COMPLETED for x in own)
    if intent.goal == HELD and held:
        # Who works on another scope stays an assignee, whoever's edge was taken over.
        live = [x.holder for x in leases if x.state is State.ACTIVE and x not in own]
        gone = tuple(
            name
            for name in change.edit.remove
            if not any(people.is_mine(name, holder) for holder in live)
        )
        return replace(change, edit=replace(change.edit, remove=gone))
    if intent.goal == RETIRED:
        # The record that was retired is gone: only its operation tells that it was.
        made = ledger is not None and any(map(ledger.header.entry, intent.operations))
        return change if made and not _claimed_again(people, change, leases) else None
    if intent.goal == ENDED and not held:
        return replace(change, edit=given_back(change.edit, leases, intent.holder))
    if intent.goal in (COMPLETED, PART) and done and not held:
        part = intent.goal == PART
        return replace(change, edit=finished(change.edit, leases, intent.holder, part=part))
    return None


def _claimed_again(people: People, change: TaskChange, leases: Iterable[Lease]) -> bool:
    active = [x.holder for x in leases if x.state is State.ACTIVE]
    names = change.edit.remove
    return any(people.is_mine(name, holder) for name in names for holder in active)


def matched(
    operations: Sequence[Operation], planned: Sequence[Planned], outcomes: Mapping[str, Outcome]
) -> Iterator[tuple[Operation, Planned]]:
    """Pair each operation with the plans that took effect.

    For a Pick, the task picked; for the end of a session, its own leases; for a retirement, the
    tasks that were retired.
    """
    if isinstance(operations[0], Pick):
        picked = outcomes[operations[0].id].leases[0].resource
        yield operations[0], next(p for p in planned if p.resource == picked)
    elif isinstance(operations[0], EndSession):
        ended = {lease.resource for lease in outcomes[operations[0].id].leases}
        yield from ((operations[0], p) for p in planned if p.resource in ended)
    elif isinstance(operations[0], Retire):
        retired = set(outcomes[operations[0].id].retired)
        yield from ((operations[0], p) for p in planned if p.resource in retired)
    else:
        about_files = (op for op in operations if not isinstance(op, Bind))
        yield from zip(about_files, planned, strict=True)


def decided(
    planned: Planned, op: Operation, outcome: Outcome, ledger: Ledger, people: People, layer: str
) -> Planned:
    """The plan adjusted to the ledger's decision: whose edges go, and whether the caller's does."""
    edit = planned.edit
    if isinstance(op, Retire):
        return planned
    if isinstance(op, Claim | Pick):
        # Edges of others that stay although the caller holds the lease: then none is added.
        add = None if outcome.assigned else edit.add
        gone = (*outcome.unassigned, *planned.outdated)
        planned = replace(planned, edit=replace(edit, remove=gone, add=add))
        if planned.task is None:
            return planned
        mine = (trailer(x, layer) for x in outcome.leases if x.resource == planned.resource)
        return replace(planned, trailer=next(mine, ""))
    leases = ledger.leases_of(planned.resource) if planned.task else []
    if any(x.state is State.ACTIVE and x.edge and x.same_holder(op.actor) for x in leases):
        return replace(planned, edit=EdgeEdit())  # another scope is held: still one's work
    # A name that stands for several people stays with whoever of them is at work.
    live = [x.holder for x in leases if x.state is State.ACTIVE]
    gone = tuple(n for n in edit.remove if not any(people.is_mine(n, who) for who in live))
    edit = replace(edit, remove=gone)
    if isinstance(op, Complete):
        part = op.scope not in (None, WHOLE)
        return replace(planned, edit=finished(edit, leases, op.actor.holder, part=part))
    return replace(planned, edit=given_back(edit, leases, op.actor.holder))


def left_to_others(planned: Sequence[Planned], outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Warnings about files that name others although the caller holds the lease."""
    files = {p.resource: p.task.file for p in planned if p.task}
    return tuple(
        f"{files.get(lease.resource, lease.resource)} is assigned to "
        f"{', '.join(map(printable, o.assigned))}, and stays so"
        for o in outcomes
        if o.assigned
        for lease in o.leases[:1]
    )


def edge_word(planned: Sequence[Planned], written: Sequence[Written]) -> str:
    """``added``, ``removed``, ``kept`` or ``none``; the first that applies to any plan."""
    changed = {w.change.file for w in written if w.changed}
    words = {_edge_word(p, changed) for p in planned if p.task is not None}
    return next((w for w in ("added", "removed", "kept") if w in words), "none")


def _edge_word(planned: Planned, changed: set[str]) -> str:
    edit, wrote = planned.edit, planned.task is not None and planned.task.file in changed
    if edit.add is not None:
        if wrote and not planned.mine:
            return "added"
        return "kept" if planned.mine else "none"
    if planned.mine and set(planned.mine) <= set(edit.remove):
        return "removed" if wrote else "none"
    return "kept" if planned.mine else "none"


def finished(
    edit: EdgeEdit, leases: Sequence[Lease], holder: str, *, part: bool = False
) -> EdgeEdit:
    """The edit for a completed lease; the status stays while others work on the task.

    A ``part`` finishes the task if it is the last of several that were claimed.
    """
    others = any(x.state is State.ACTIVE and not same_person(x.holder, holder) for x in leases)
    only = part and sum(x.state is State.COMPLETED for x in leases) < 2
    return replace(edit, status=None) if others or only else edit


def given_back(edit: EdgeEdit, leases: Sequence[Lease], holder: str) -> EdgeEdit:
    """The edit for a released lease; the status stays if a part of the task is finished."""
    some = any(x.state is State.COMPLETED for x in leases)
    return replace(edit, status=None) if some else finished(edit, leases, holder)


def _located(
    known: TaskList, wanted: Iterable[TaskChange]
) -> tuple[list[TaskChange], list[TaskChange]]:
    # A file may have been renamed meanwhile, or be on another branch.
    files = {t.resource: t.file for t in known.tasks}
    broken = {p.file for p in known.problems}
    here = [replace(c, file=files.get(c.resource, c.file)) for c in wanted]
    away = [c for c in here if c.resource not in files and c.file not in broken]
    return [c for c in here if c not in away], away


RECORD, FILE = "record", "file"
_GRANTS = frozenset({"claimed", "taken_over"})
_ENDINGS = frozenset({"released", "completed", "revoked", "displaced", "retired"})
LOOKED_BACK = 5_000  # events of the audit trail that are read for decisions


@dataclass(frozen=True, slots=True)
class Assigned:
    """A person to whom a task is assigned: the holder if one is known, else the file's name.

    ``places``: ``record`` if the ledger's record of a claim says so, ``file`` if a task file does.
    ``spelt`` is the name as it stands in the file, or would.
    """

    name: str
    places: tuple[str, ...]
    spelt: str


def assigned_to(
    task: Task | None,
    records: Iterable[Lease],
    people: People,
    policy: Policy,
    moment: Moment,
) -> tuple[Assigned, ...]:
    """Everyone to whom a task is assigned, and where that stands.

    ``task`` comes from ``Edges.read``, without assignments that the ledger outranks. ``records``
    are those of the task. What nobody came back to for too long is no assignment any more.
    """
    holders: list[str] = []
    for x in records:
        kept = x.state is State.ACTIVE and x.edge and not is_abandoned(x, policy, moment)
        if kept and not any(same_person(x.holder, known) for known in holders):
            holders.append(x.holder)
    found: list[Assigned] = []
    for name in task.assigned if task is not None else ():
        known = next((x for x in holders if people.is_mine(name, x)), None)
        if known is not None:
            holders.remove(known)
        mapped = people.holders_of(name)
        shown = known or (mapped[0] if len(mapped) == 1 else printable(name))
        found.append(Assigned(shown, (FILE,) if known is None else (RECORD, FILE), name))
    return (*found, *(Assigned(x, (RECORD,), _spelt(people, x)) for x in holders))


def _spelt(people: People, holder: str) -> str:
    try:
        return people.name_of(holder)
    except Invalid:  # the map gives that name to somebody else
        return holder


def with_records(
    task: Task, records: Iterable[Lease], people: People, policy: Policy, moment: Moment
) -> Task:
    """The task with the names of those to whom the ledger's records assign it."""
    found = assigned_to(task, records, people, policy, moment)
    return replace(task, records=tuple(x.spelt for x in found if RECORD in x.places))


class Decisions:
    """The ledger's last decisions about holders and tasks, by its audit trail."""

    def __init__(self, session: LedgerSession) -> None:
        self._session = session
        self._mark: str | None = None
        self._events: dict[str, list[Event]] = {}
        self._older = False

    def deepen(self) -> None:
        """Count what the first contact left out of the audit trail."""
        self._mark, self._older = None, True

    def outranked(self, task: Task, ref: str | None = None) -> tuple[str, ...]:
        """The names in a task's file whose assignment is older than the end of their work on it."""
        # Git is asked only about names whose work the ledger saw ending.
        ended = [(name, at) for name in task.assigned if (at := self._ended(task, name))]
        files = self._session.edges.files
        return tuple(
            name
            for name, at in ended
            if (since := files.assigned_since(task, name, ref)) is not None and since <= at
        )

    def own_at(self, task: Task) -> int | None:
        """When the ledger last granted the caller a task, or took it back, in milliseconds."""
        holder = self._session.actor.holder
        own = (x for x in self._of(task.resource.key) if same_person(x.holder or "", holder))
        return next((x.at for x in own if x.kind in (*_GRANTS, "released")), None)

    def _ended(self, task: Task, name: str) -> int | None:
        people = self._session.edges.rules.people
        assignee = Assignee(name, people.holders_of(name), people.handles)
        for event in self._of(task.resource.key):
            if assignee.is_holder(event.holder or ""):
                # The newest decision counts: a grant after the end makes the name true again.
                return event.at if event.kind in _ENDINGS else None
        return None

    def _of(self, key: str) -> Sequence[Event]:
        session = self._session
        head = session.store.known(session.layer)
        mark = "" if head is None else head.version
        # Read once for each head, however many tasks are asked about.
        if mark != self._mark:
            self._mark, self._events = mark, {}
            history, older = session.store.history, self._older
            for event in history(session.layer, LOOKED_BACK, older=older) if mark else ():
                if event.resource and event.kind in (_GRANTS | _ENDINGS):
                    self._events.setdefault(fold(event.resource), []).append(event)
        return self._events.get(key, ())


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LedgerView:
    """One state of the ledger at one moment, with all its leases."""

    head: Snapshot
    moment: Moment
    leases: tuple[Lease, ...]
    warnings: tuple[str, ...] = ()

    @property
    def policy(self) -> Policy:
        return self.head.policy


class LedgerSession:
    """The ledger of one layer as one actor reads and changes it."""

    def __init__(
        self,
        store: LedgerStore,
        *,
        clock: Clock,
        actor: Actor,
        layer: str,
        edges: Edges,
        inbox: Inbox,
        default_ttl: int,
        ttl_is_default: bool,
        ttl_source: str = "",
        patience: float = PATIENCE,
        dice: random.Random | None = None,
        landed: LandedWork | None = None,
        carry: CarryOut | None = None,
        runs: Callable[[], Runs | None] = lambda: None,
        run_tokens: frozenset[int] = frozenset(),
        no_holder: GitleaseError | None = None,
    ) -> None:
        """``ttl_source`` says where the default TTL is set. ``run_tokens`` are those of the run
        that this process works below, in its session. ``no_holder`` refuses every change.
        """
        self._no_holder = no_holder
        self._runs, self._run_tokens = runs, run_tokens
        self.landed = landed
        self.store, self.clock, self.actor, self.layer = store, clock, actor, layer
        self.edges, self.inbox = edges, inbox
        edges.outranked = lambda task, ref: self.decisions.outranked(task, ref)
        edges.own_decision = lambda task: self.decisions.own_at(task)
        edges.is_plain = lambda x: {lease.edge for lease in self.own_records(x)} == {False}
        self.default_ttl, self.ttl_is_default = default_ttl, ttl_is_default
        self._ttl_source = ttl_source
        self.dice = dice or random.SystemRandom()
        self.carry = carry
        self.transaction = Transaction(
            store,
            clock=clock,
            actor=actor,
            layer=layer,
            patience=patience,
            dice=self.dice,
            carry=carry,
        )
        self.completes_landed = False  # whether that is under way, so that it does not begin again
        self.is_dry = False  # whether its steps are only rehearsed
        self._settled: Settled | None = None
        self.decisions = Decisions(self)

    def for_dry_run(self) -> LedgerSession:
        """The same session for a dry run: its steps are decided, and written nowhere."""
        other = copy.copy(self)
        other.is_dry = True
        return other

    # --- read -----------------------------------------------------------------------------------

    def read(
        self, ask: Callable[[Snapshot], T], *, cached: bool = False
    ) -> tuple[T, tuple[str, ...]]:
        """The answer of ``ask`` for the remote's present state, with warnings.

        ``cached`` uses this clone's copy, with a warning that gives its age.
        """
        return _read_with_retry(lambda: self._read(ask, cached=cached))

    def look(self, *, cached: bool = False) -> LedgerView:
        """The whole ledger at one moment."""
        look, said = self.read(self._looked_at, cached=cached)
        return replace(look, warnings=said)

    def known_look(self) -> LedgerView | None:
        """This clone's copy, without a connection; None before the first contact."""

        def read() -> LedgerView | None:
            head = self.store.known(self.layer)
            return None if head is None else self._looked_at(head)

        return _read_with_retry(read)

    def known_ledger(self) -> Ledger | None:
        """The ledger in this clone's copy, without a connection; None where there is none."""
        head = self.store.known(self.layer)
        return None if head is None else head.ledger

    def own_live(self) -> list[Lease]:
        """The live leases of the caller's person, parked ones too, by this clone's copy."""
        ledger = _read_with_retry(self.known_ledger)
        return ledger.live()[0].of_person(self.actor.holder) if ledger else []

    def in_session(self, name: str | None, *, but: Collection[str] = ()) -> list[Lease]:
        """The caller's unparked leases in a session, by this clone's copy; ``but`` these ids."""
        own = self.own_live()
        return [x for x in own if x.session == name and not x.parked and x.lease_id not in but]

    def known_records(self, resource: Resource) -> list[Lease]:
        """The records of a resource in this clone's copy. Raises Invalid for a damaged one."""

        def read() -> list[Lease]:
            ledger = self.known_ledger()
            return list(ledger.leases_of(resource)) if ledger else []

        return _read_with_retry(read)

    def own_records(self, resource: Resource) -> list[Lease]:
        """Those that are unfinished and of the caller's person; none where one is damaged."""
        try:
            found = self.known_records(resource)
        except Invalid:  # the step that follows reports it
            return []
        return [x for x in found if x.state is State.ACTIVE and x.same_holder(self.actor)]

    def known_policy(self) -> Policy | None:
        """The policy in this clone's copy, without a connection; None before the first contact."""
        ledger = _read_with_retry(self.known_ledger)
        return ledger.header.policy if ledger else None

    def views_in(
        self, head: Snapshot, leases: Sequence[Lease], moment: Moment | None = None
    ) -> tuple[LeaseView, ...]:
        """Leases of a state as this actor sees them, now or at a moment."""
        return views_of(head, leases, self.actor, moment or self.moment(head))

    def moment(self, head: Snapshot) -> Moment:
        """Now, with this clone's sightings of a state."""
        return Moment(now=self.clock.now(), seen=head.seen)

    def news(self, head: Snapshot | None) -> tuple[str, ...]:
        """Notices about this holder's lost leases, shown once in this clone."""
        if self.is_dry:
            return ()
        notices = head.ledger.notices(self.actor.holder) if head and head.ledger else ()
        unread = unread_notices(self.store, self.layer, notices, self.actor)
        return (*(told(notice) for notice in unread), *self.inbox.take())

    def of_live_runs(self, leases: Iterable[Lease]) -> list[Lease]:
        """Those of some leases that a live run has, which alone ends them unless they are named."""
        runs = self._runs()
        live = frozenset[str]() if runs is None else runs.live(self.layer)
        return [x for x in leases if x.lease_id in live or self.is_of_run_above(x)]

    def setback_of(self, resource: Resource) -> Setback | None:
        """The failures of a task by this clone's copy, and whether its worker waits for a person.

        What the caller released or parked last is in that copy.
        """
        ledger = self.known_ledger()
        return None if ledger is None else ledger.setback(resource)

    @property
    def is_below_run(self) -> bool:
        """Return whether this process works below a run, in its session."""
        return bool(self._run_tokens)

    def is_of_run_above(self, lease: Lease) -> bool:
        """Return whether the run has it below which this process works."""
        same = lease.session is not None and lease.session == self.actor.session
        return same and lease.token in self._run_tokens

    def unread_notices(self) -> tuple[Notice, ...]:
        """This run's losses in this clone's copy that no answer of a step has reported."""
        ledger = self.known_ledger()
        notices = ledger.losses(self.actor.holder) if ledger else ()
        return tuple(n for n in notices if is_to(n, self.actor))

    def warnings_of(self, head: Snapshot, *, cached: bool = False) -> tuple[str, ...]:
        """Warnings about the store, and about a state and its age."""
        said = self.store.warnings + head.warnings
        if cached:
            age = head.received.elapsed_at_most(self.clock.now()) // MS
            said += (f"from this clone's copy, {age}s old",)
        return said

    def _read(self, ask: Callable[[Snapshot], T], *, cached: bool) -> tuple[T, tuple[str, ...]]:
        head, said = self._head(cached=cached)
        found, doubt = ask(head), self.store.doubt(head)
        elsewhere = "" if cached or doubt is not None else self.store.read_elsewhere(head)
        said = (*((doubt.message,) if doubt else ()), *((elsewhere,) if elsewhere else ()), *said)
        return found, self.warnings_of(head, cached=cached) + said + self.news(head)

    def _head(self, *, cached: bool) -> tuple[Snapshot, tuple[str, ...]]:
        if not cached:
            # Asked for with the ledger's ref in one connection.
            self._watch_main_branch()
            head = self.store.fetch(self.layer)
            said = told_by(self.store, head) + self._repair_edges(head)
            if self.is_landing_to_judge():
                said += engine.settle_landed(self).warnings
                # What has landed was completed just now: the answer is of after that.
                head = self.store.known(self.layer) or head
            return head, said
        known = self.store.known(self.layer)
        if known is None:
            raise NotFound(
                "this clone has no copy of the ledger yet",
                hints=(hint("run it once without {}", cached=True),),
            )
        return known, ()

    def _looked_at(self, head: Snapshot) -> LedgerView:
        leases = tuple(head.ledger.every_lease()) if head.ledger else ()
        return LedgerView(head, self.moment(head), leases)

    # --- step -----------------------------------------------------------------------------------

    def check_holder(self) -> None:
        """Raise Invalid where nobody is known to hold what would be claimed or changed."""
        if self._no_holder is not None:
            raise self._no_holder

    def step(
        self, what: str, operations: Sequence[Operation], *, together: bool = True
    ) -> tuple[Step, tuple[str, ...]]:
        """Carry out operations in one step, all or none if ``together``, and return warnings.

        A refusal carries the warnings itself.
        """
        self.check_holder()
        self.settle()
        settled, self._settled = self._settled or Settled(), None
        known = self.store.known(self.layer)
        said = settled.said + self.news(known)
        notices = known.ledger.notices(self.actor.holder) if known and known.ledger else ()
        ids = tuple(n.id for n in notices if is_to(n, self.actor))
        # They go along with a step that is made anyway; alone they would cost a push.
        read = [Acknowledge(id=fresh_id(), actor=self.actor, notices=ids)] if ids else []
        batch = [*operations, *read][: max(MAX_STEP, len(operations))]
        carry_out, rehearse = self.transaction.carry_out, self.transaction.rehearse
        try:
            if self.is_dry:
                # What a real step would let go of first.
                before = [end for _, ends in self._dead_runs() for end in ends]
                step = _read_with_retry(lambda: rehearse([*before, *batch], together=together))
            else:
                step = carry_out(batch, together=together, what=named(what, operations))
        except GitleaseError as refusal:
            message = refusal.message
            if isinstance(refusal, PolicyRefused) and refusal.by_setting and self._ttl_source:
                message = f"{self._ttl_source}: {message}"
            known = self.store.known(self.layer)
            after = self.outcome_messages(settled, known) + self.news(known)
            warnings = self.store.warnings + said + after
            raise refusal.with_(message=message, warnings=warnings) from None
        return step, said + self.outcome_messages(settled, step.head) + self.news(step.head)

    # --- settle ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """Finish what earlier commands left half done, before a step is planned.

        Done once for each step, whose answer carries the messages.
        """
        if self._settled is None and not self.is_dry:
            self._watch_main_branch()
            settled = self.settled()
            said = settled.said + self._repair_edges()
            self._settled = replace(settled, said=said)  # so that the next line comes here once
            self._settled = replace(settled, said=said + self._end_dead_runs())

    def is_landing_to_judge(self) -> bool:
        """Return whether the last contact may have shown that work of this holder has landed."""
        if self.landed is None or self.completes_landed or self.is_dry:
            return False
        return self.landed.is_to_judge()

    def _watch_main_branch(self) -> None:
        if self.landed is not None:
            with suppress(GitleaseError):  # what follows reports it
                self.landed.watch(lambda: any(x.edge for x in self.own_live()))

    def settled(self) -> Settled:
        """The outcomes of changes that earlier commands left open."""
        waiting = list(self.store.pending(self.layer))
        if not waiting:
            return Settled()
        return settle(self.store, waiting, self.store.fetch(self.layer))

    def _dead_runs(self) -> Iterator[tuple[DeadRun, list[Operation]]]:
        """The dead runs of this clone, and what lets go of all that they were granted or bound."""
        runs = self._runs()
        for dead in () if runs is None else runs.dead(self.layer, self.actor):
            actor, ends = replace(self.actor, session=dead.session), list[Operation]()
            known = {grant.lease_id for grant in (*dead.granted, *dead.bound)}
            # What the command of a dead run claimed in its session is nobody's any more.
            below = self.in_session(dead.session, but=known) if dead.alone else ()
            if own := (*dead.granted, *map(grant_of, below)):
                ends.append(RunOut(id=fresh_id(), actor=actor, grants=own))
            if dead.bound:
                ends.append(Unbind(id=fresh_id(), actor=actor, grants=dead.bound))
            yield dead, ends

    def _end_dead_runs(self) -> tuple[str, ...]:
        messages = list[str]()
        for dead, ends in self._dead_runs():
            step = None
            try:
                if ends:
                    step = self.transaction.carry_out(ends, together=False, what="the end of a run")
            except GitleaseError:  # the step that follows reports it
                break
            # After the step: a kill in between has the next command do it again.
            dead.forget()
            results = step.applied.results if step else ()
            freed = [x for result in results if isinstance(result, Outcome) for x in result.leases]
            messages += [
                f"{x.resource}: session {dead.session} is dead, and no longer holds it"
                for x in freed
            ]
        return tuple(messages)

    def outcome_messages(self, settled: Settled, head: Snapshot | None) -> tuple[str, ...]:
        """Messages about open changes that the head after a step decided."""
        return () if head is None else told_by(self.store, head, settled.open)

    def _repair_edges(self, head: Snapshot | None = None) -> tuple[str, ...]:
        left = self.edges.files.left_behind()
        if not left:
            return ()
        said: list[str] = []
        head = head or self.store.fetch(self.layer)
        open_still = {op for p in self.store.pending(self.layer) for op in p.operations}
        for intent in left:
            # What may still land is neither finished nor given up.
            if open_still.intersection(intent.operations):
                self.edges.files.leave(intent)
            else:
                said += repair(self.edges, intent, head.ledger)
        return tuple(said)


def _read_with_retry(read: Callable[[], T]) -> T:
    # The remote may have moved on during the repair of a damaged copy.
    try:
        return read()
    except HeadGone:
        return read()
