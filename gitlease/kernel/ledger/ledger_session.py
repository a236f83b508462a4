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
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TypeVar

from gitlease.kernel.ledger.answers import Answer, joined
from gitlease.kernel.ledger.chores import Chore, Mailbox, is_to
from gitlease.kernel.ledger.edges import Edges
from gitlease.kernel.ledger.messages import Messages, waiting
from gitlease.kernel.ledger.ports import (
    Clock,
    Inbox,
    LedgerStore,
    Snapshot,
)
from gitlease.kernel.ledger.transaction import PATIENCE, CarryOut, Step, Transaction
from gitlease.kernel.rules.edge import Assignee, People, Task, printable
from gitlease.kernel.rules.errors import GitleaseError, HeadGone, Invalid, NotFound, PolicyRefused
from gitlease.kernel.rules.frozen import dataclass, field, replace
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import (
    Actor,
    Lease,
    Moment,
    Policy,
    State,
    is_abandoned,
    same_person,
)
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.ledger import MAX_STEP, Damage, Ledger, Notice
from gitlease.kernel.rules.moves.holding import UNASSIGNED
from gitlease.kernel.rules.moves.operations import (
    Event,
    Operation,
)
from gitlease.kernel.rules.resources import Resource, fold

RECORD, FILE = "record", "file"
_GRANTS = frozenset({"claimed", "taken_over"})
_BY_ITSELF = frozenset({"released", UNASSIGNED})  # what a person gave back
_ENDINGS = frozenset({*_BY_ITSELF, "completed", "revoked", "displaced", "retired"})
_NOTHING_LANDED = Answer(status="completed", changed=False)
LOOKED_BACK = 5_000  # events of the audit trail that are read for decisions


@dataclass(frozen=True)
class Assigned:
    """A person to whom a task is assigned: the holder if one is known, else the file's name.

    ``places``: ``record`` if the ledger's record of a claim says so, ``file`` if a task file does.
    ``spelt`` is the name as it stands in the file, or would.
    """

    name: str
    places: tuple[str, ...]
    spelt: str


def assigned_to(
    task: Task | None, records: Iterable[Lease], people: People, policy: Policy, moment: Moment
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
    """The ledger's records and its last decisions, as one holder asks about them.

    Asks no remote.
    """

    def __init__(self, store: LedgerStore, layer: str, holder: str) -> None:
        self.holder = holder
        self._store, self._layer = store, layer
        self._mark: str | None = None
        self._events: dict[str, list[Event]] = {}
        self._older = False

    def known_records(self, resource: Resource) -> list[Lease]:
        """The records of a resource. Raises Invalid for a damaged one."""

        def read() -> list[Lease]:
            head = self._store.known(self._layer)
            ledger = None if head is None else head.ledger
            return list(ledger.leases_of(resource)) if ledger else []

        return _read_with_retry(read)

    def own_records(self, resource: Resource) -> list[Lease]:
        """Those that are unfinished and the holder's; none if one is damaged."""
        try:
            found = self.known_records(resource)
        except Invalid:  # the step that follows reports it
            return []
        return [x for x in found if x.state is State.ACTIVE and same_person(x.holder, self.holder)]

    def deepen(self) -> None:
        """Count what the first contact left out of the audit trail."""
        self._mark, self._older = None, True

    def own_at(self, task: Task) -> int | None:
        """When the ledger last granted the holder a task, or took it back, in milliseconds."""
        own = (x for x in self._of(task.resource.key) if same_person(x.holder or "", self.holder))
        return next((x.at for x in own if x.kind in _GRANTS | _BY_ITSELF), None)

    def ended_at(self, task: Task, assignee: Assignee) -> int | None:
        """When an assignee's work on a task ended, in milliseconds; None if it goes on."""
        for event in self._of(task.resource.key):
            if assignee.is_holder(event.holder or ""):
                # The newest decision counts: a grant after the end makes the name true again.
                return event.at if event.kind in _ENDINGS else None
        return None

    def _of(self, key: str) -> Sequence[Event]:
        head = self._store.known(self._layer)
        mark = "" if head is None else head.version
        # Read once for each head, however many tasks are asked about.
        if mark != self._mark:
            self._mark, self._events = mark, {}
            history, older = self._store.history, self._older
            for event in history(self._layer, LOOKED_BACK, older=older) if mark else ():
                if event.resource and event.kind in (_GRANTS | _ENDINGS):
                    self._events.setdefault(fold(event.resource), []).append(event)
        return self._events.get(key, ())


T = TypeVar("T")


@dataclass(frozen=True)
class LedgerView:
    """One state of the ledger at one moment, with all its leases."""

    head: Snapshot
    moment: Moment
    leases: tuple[Lease, ...]

    @property
    def policy(self) -> Policy:
        return self.head.policy


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who works in a session, below which run, and where messages to them are left.

    ``run_tokens`` are those of the run that this process works below, in its session. ``no_holder``
    refuses every change. ``live_runs`` gives the ids of the leases that live runs of this clone
    have. A gateway has no ``inbox``.
    """

    actor: Actor
    run_tokens: frozenset[int] = frozenset()
    no_holder: GitleaseError | None = None
    live_runs: Callable[[], frozenset[str]] = frozenset
    inbox: Inbox | None = None

    @property
    def is_below_run(self) -> bool:
        """Return whether this process works below a run, in its session."""
        return bool(self.run_tokens)

    def of_live_runs(self, leases: Iterable[Lease]) -> list[Lease]:
        """Those of some leases that a live run has, which alone ends them unless they are named."""
        live = self.live_runs()
        return [x for x in leases if x.lease_id in live or self.is_of_run_above(x)]

    def is_of_run_above(self, lease: Lease) -> bool:
        """Return whether the run has it below which this process works."""
        same = lease.session is not None and lease.session == self.actor.session
        return same and lease.token in self.run_tokens


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The default TTL of a session's claims, and how its steps are carried out.

    ``default_ttl`` is in seconds; ``ttl_source`` names the setting that it comes from, and
    ``ttl_is_default`` says that nobody set it. ``patience`` is that of a transaction. ``carry``
    carries the steps out in the place of the session's transaction, with those of others.
    """

    default_ttl: int
    ttl_is_default: bool
    ttl_source: str = ""
    patience: float = PATIENCE
    dice: random.Random = field(default_factory=random.SystemRandom)
    carry: CarryOut | None = None


class LedgerSession:
    """The ledger of one layer as one actor reads and changes it."""

    def __init__(
        self,
        store: LedgerStore,
        *,
        caller: Caller,
        clock: Clock,
        layer: str,
        edges: Edges,
        terms: Terms,
        chores: Sequence[Chore],
    ) -> None:
        self.store, self.clock, self.layer = store, clock, layer
        self.caller, self.actor = caller, caller.actor
        self.edges, self.terms = edges, terms
        self.decisions = edges.decisions
        self.is_dry = False  # whether its steps are only rehearsed
        self.chores = tuple(chores)
        self._is_settled = False  # whether the chores before the next step are done
        self.messages = Messages()
        self.mailbox = Mailbox(self, caller.inbox)

    @cached_property
    def transaction(self) -> Transaction:
        """The transaction of its steps; a reading needs none."""
        return Transaction(
            self.store,
            clock=self.clock,
            actor=self.actor,
            layer=self.layer,
            patience=self.terms.patience,
            dice=self.terms.dice,
        )

    def for_dry_run(self) -> LedgerSession:
        """The same session for a dry run: its steps are decided, and written nowhere."""
        other = copy.copy(self)
        other.is_dry = True
        other.mailbox = Mailbox(other, None)
        return other

    # --- read -----------------------------------------------------------------------------------

    def read(self, ask: Callable[[Snapshot], T], *, cached: bool = False) -> T:
        """The answer of ``ask`` for the remote's present state.

        ``cached`` uses this clone's copy, with a message that gives its age.
        """
        try:
            return self._read(ask, cached=cached)
        except HeadGone:  # the remote moved on during the repair of a damaged copy
            return self._read(ask, cached=cached)

    def look(self, *, cached: bool = False) -> LedgerView:
        """The whole ledger at one moment."""
        return self.read(self._looked_at, cached=cached)

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
        """The live leases of the caller's person, by this clone's copy."""
        ledger, holder = _read_with_retry(self.known_ledger), self.actor.holder
        return ledger.live(holder)[0].of_person(holder) if ledger else []

    def in_session(self, name: str | None, *, but: Collection[str] = ()) -> list[Lease]:
        """The caller's leases in a session, by this clone's copy; ``but`` these ids."""
        own = self.own_live()
        return [x for x in own if x.session == name and not x.parked and x.lease_id not in but]

    def known_policy(self) -> Policy | None:
        """The policy in this clone's copy, without a connection; None before the first contact."""
        ledger = _read_with_retry(self.known_ledger)
        return ledger.header.policy if ledger else None

    def views_in(
        self, head: Snapshot, leases: Sequence[Lease], moment: Moment | None = None
    ) -> tuple[LeaseView, ...]:
        """Leases of a state as this actor sees them, now or at a moment."""
        return head.views(leases, self.actor, moment or self.moment(head))

    def moment(self, head: Snapshot) -> Moment:
        """Now, with this clone's sightings of a state."""
        return Moment(now=self.clock.now(), seen=head.seen)

    def unread_notices(self) -> tuple[Notice, ...]:
        """This run's losses in this clone's copy that no answer of a step has reported."""
        ledger = self.known_ledger()
        notices = ledger.losses(self.actor.holder) if ledger else ()
        return tuple(n for n in notices if is_to(n, self.actor))

    def take_warnings(self) -> tuple[str, ...]:
        """The warnings of an answer: those of the store, and all messages that wait for one."""
        return tuple(dict.fromkeys((*self.store.warnings, *self.messages.take())))

    def warnings_of(self, head: Snapshot, *, cached: bool = False) -> tuple[str, ...]:
        """Warnings about a state and its age."""
        warnings = head.warnings + waiting(head, self.clock.now())
        if cached:
            age = head.received.elapsed_at_most(self.clock.now()) // MS
            warnings += (f"from this clone's copy, {age}s old",)
        return warnings

    def _read(self, ask: Callable[[Snapshot], T], *, cached: bool) -> T:
        if cached:
            head = self.store.known(self.layer)
        else:
            # Asked for with the ledger's ref in one connection.
            self._watch()
            head = self.store.fetch(self.layer)
            for chore in self.chores:
                self.messages.add(chore.read(self, head))
            if self.has_landed():
                self.messages.add(self.finish_landed().warnings)
                # The answer is of after that.
                head = self.store.known(self.layer) or head
        if head is None:
            raise NotFound.of_copy(self.layer)
        self.messages.add(self.warnings_of(head, cached=cached))
        self.messages.add(self.mailbox.messages(head))
        found, doubt = ask(head), self.store.doubt(head)
        self.messages.add((doubt.message,) if doubt else ())
        return found

    def _looked_at(self, head: Snapshot) -> LedgerView:
        leases = tuple(head.ledger.every_lease()) if head.ledger else ()
        return LedgerView(head, self.moment(head), leases)

    # --- step -----------------------------------------------------------------------------------

    def check_holder(self) -> None:
        """Raise Invalid where nobody is known to hold what would be claimed or changed."""
        if self.caller.no_holder is not None:
            raise self.caller.no_holder

    def step(self, what: str, operations: Sequence[Operation], *, together: bool = True) -> Step:
        """Carry out operations in one step, all or none if ``together``.

        A refusal takes the messages that wait for an answer.
        """
        self.check_holder()
        self.settle()
        self._is_settled = False
        known = self.store.known(self.layer)
        self.messages.add(self.mailbox.messages(known))
        # It goes along with a step that is made anyway; alone it would cost a push.
        read = self.mailbox.acknowledgement(known)
        # A full step leaves them to the next one.
        batch = [*operations, *read][: max(MAX_STEP, len(operations))]
        carry_out = self.terms.carry or self.transaction.carry_out
        rehearse = self.transaction.rehearse
        try:
            if self.is_dry:
                # What a real step would let go of first.
                before = [op for chore in self.chores for op in chore.rehearsed(self)]
                step = _read_with_retry(lambda: rehearse([*before, *batch], together=together))
            else:
                step = carry_out(batch, together=together, what=named(what, operations))
        except GitleaseError as refusal:
            message, source = refusal.message, self.terms.ttl_source
            if isinstance(refusal, PolicyRefused) and refusal.by_setting and source:
                message = f"{source}: {message}"
            self._add_messages_after(self.store.known(self.layer))
            raise refusal.with_(message=message, warnings=self.take_warnings()) from None
        self.mailbox.remember_holder(step.applied.results)
        self._add_messages_after(step.head)
        return step

    def _add_messages_after(self, head: Snapshot | None) -> None:
        for chore in self.chores:
            self.messages.add(chore.after(self, head))
        self.messages.add(self.mailbox.messages(head))

    # --- settle ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """Finish what earlier commands left half done, before a step is planned.

        Done once for each step.
        """
        self.learn()
        if not self._is_settled and not self.is_dry:
            self._watch()
            for chore in self.chores:
                self.messages.add(chore.before(self))
            self._is_settled = True

    def has_landed(self) -> bool:
        """Return whether the last contact may have shown that work of the caller has landed."""
        return not self.is_dry and any(chore.has_landed(self) for chore in self.chores)

    def finish_landed(
        self, resources: Iterable[Resource] | None = None, *, ended: str | None = None
    ) -> Answer:
        """End the caller's leases of work that has landed, before another verb; never fails.

        ``resources``: only leases of these, lapsed ones too; None: of all in this clone's copy.
        The run of the session ``ended`` is over. A failure is left for the next time.
        """
        done = _NOTHING_LANDED
        try:
            if resources is None:  # without reading the records of everybody else
                leases = self.own_live()
            else:
                leases = [x for one in resources for x in self.decisions.own_records(one)]
            for chore in self.chores:
                answer = chore.landed(self, leases, ended=ended)
                if answer is not None:
                    done = joined(done, answer)
        except GitleaseError as error:
            done = replace(done, warnings=error.warnings)
        usual = self.store.warnings  # of the place itself, nothing new
        return replace(done, warnings=tuple(x for x in done.warnings if x not in usual))

    def learn(self) -> None:
        """Learn what this clone lacks, for a command that asks the remote."""
        for chore in self.chores:
            chore.learn(self)

    def _watch(self) -> None:
        for chore in self.chores:
            with suppress(GitleaseError):  # what follows reports it
                chore.watch(self)


def _read_with_retry(read: Callable[[], T]) -> T:
    # The remote may have moved on during the repair of a damaged copy.
    try:
        return read()
    except HeadGone:
        return read()


DAMAGE_SHOWN = 10


def of_damage(damage: Sequence[Damage], *, shown: int = DAMAGE_SHOWN) -> tuple[str, ...]:
    """Warnings about unreadable records, at most ``shown`` of them by name."""
    messages = [f"{d.shown} cannot be read: {d.problem}" for d in damage[:shown]]
    if len(damage) > shown:
        messages.append(f"{len(damage) - shown} more records cannot be read")
    return tuple(messages)


def unread_records(head: Snapshot) -> tuple[str, ...]:
    """A check's warnings about unreadable records of a ledger."""
    damage = () if head.ledger is None else of_damage(tuple(head.ledger.damage()))
    return tuple(f"{text}: its paths are not checked" for text in damage)


def unreadable_line(ledger: Ledger, resource: Resource) -> tuple[str, ...]:
    """Report an unreadable waiting line, which keeps nobody from claiming the resource."""
    problem = ledger.tickets_damage(resource)
    return () if problem is None else (problem,)


def named(what: str, operations: Sequence[Operation]) -> str:
    """The name of a change, for messages: ``claim of F001 and 2 more``."""
    resources = [str(r) for op in operations if (r := getattr(op, "resource", None)) is not None]
    if not resources:
        return f"this {what}"
    more = f" and {len(resources) - 1} more" if len(resources) > 1 else ""
    return f"{what} of {resources[0]}{more}"
