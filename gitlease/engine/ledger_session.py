"""One actor on one layer of a ledger: read it, carry out a step, and settle what was left open.

Every verb is made of these three; it has nothing else to do with the store.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from gitlease.core.errors import GitleaseError, HeadGone, Invalid, NotFound, PolicyRefused
from gitlease.core.frozen import dataclass, replace
from gitlease.core.instant import MS
from gitlease.core.lease import Actor, Lease, Moment, State
from gitlease.core.ledger import MAX_STEP, Notice
from gitlease.core.moves.operations import Acknowledge, Operation, Outcome, RunOut, Unbind, grant_of
from gitlease.core.policy import Policy
from gitlease.core.resources.resource import Resource
from gitlease.core.view import LeaseView
from gitlease.engine.answers import named
from gitlease.engine.edges import Edges
from gitlease.engine.intents import Intents
from gitlease.engine.notices import Settled, is_to, settle, told, told_by, unread_notices
from gitlease.engine.ports import (
    Clock,
    Inbox,
    LandedWork,
    LedgerStore,
    LookForLife,
    Runs,
    Snapshot,
)
from gitlease.engine.transaction import (
    PATIENCE,
    CarryOut,
    Step,
    Transaction,
    fresh_id,
    views_of,
)

if TYPE_CHECKING:
    from gitlease.engine.assignment import Decisions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Look:
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
        look_for_life: LookForLife | None = None,
        landed: LandedWork | None = None,
        carry: CarryOut | None = None,
        runs: Runs | None = None,
        run_tokens: frozenset[int] = frozenset(),
        no_holder: GitleaseError | None = None,
    ) -> None:
        """``ttl_source`` says where the default TTL is set. ``run_tokens`` are those of the run
        that this process works below, in its session. ``no_holder`` refuses every change.
        """
        self._no_holder = no_holder
        self._runs, self._run_tokens = runs, run_tokens
        self.look_for_life, self.landed = look_for_life, landed
        self.store, self.clock, self.actor, self.layer = store, clock, actor, layer
        self.edges, self.inbox = edges, inbox
        edges.outranked = lambda task, ref: self.decisions.outranked(task, ref)
        edges.own_decision = lambda task: self.decisions.own_at(task)
        edges.is_plain = self._is_plain
        self.default_ttl, self.ttl_is_default = default_ttl, ttl_is_default
        self._ttl_source = ttl_source
        self.dice = dice or random.SystemRandom()
        self.intents, self.carry = Intents(self.edges), carry
        self.transaction = Transaction(
            store,
            clock=clock,
            actor=actor,
            layer=layer,
            patience=patience,
            dice=self.dice,
            carry=carry,
        )
        self._settled: Settled | None = None

    @cached_property
    def decisions(self) -> Decisions:
        """What the ledger decided last about holders and tasks."""
        from gitlease.engine.assignment import Decisions  # most commands meet no assigned task

        return Decisions(self)

    # --- read -----------------------------------------------------------------------------------

    def read(
        self, ask: Callable[[Snapshot], T], *, cached: bool = False
    ) -> tuple[T, tuple[str, ...]]:
        """The answer of ``ask`` for the remote's present state, with warnings.

        ``cached`` uses this clone's copy, with a warning that gives its age.
        """
        return _read_with_retry(lambda: self._read(ask, cached=cached))

    def look(self, *, cached: bool = False) -> Look:
        """The whole ledger at one moment."""
        look, said = self.read(self._looked_at, cached=cached)
        return replace(look, warnings=said)

    def known_look(self) -> Look | None:
        """This clone's copy, without a connection; None before the first contact."""

        def read() -> Look | None:
            head = self.store.known(self.layer)
            return None if head is None else self._looked_at(head)

        return _read_with_retry(read)

    def in_session(self, name: str | None, *, but: Collection[str] = ()) -> list[Lease]:
        """The caller's unparked leases in a session, by this clone's copy; ``but`` these ids."""
        head = self.store.known(self.layer)
        own = head.ledger.live()[0].of_person(self.actor.holder) if head and head.ledger else []
        return [x for x in own if x.session == name and not x.parked and x.lease_id not in but]

    def known_records(self, resource: Resource) -> list[Lease]:
        """The records of a resource in this clone's copy. Raises Invalid for a damaged one."""

        def read() -> list[Lease]:
            head = self.store.known(self.layer)
            return list(head.ledger.leases_of(resource)) if head and head.ledger else []

        return _read_with_retry(read)

    def own_records(self, resource: Resource) -> list[Lease]:
        """Those that are unfinished and of the caller's person; none where one is damaged."""
        try:
            found = self.known_records(resource)
        except Invalid:  # the step that follows reports it
            return []
        return [x for x in found if x.state is State.ACTIVE and x.same_holder(self.actor)]

    def _is_plain(self, resource: Resource) -> bool:
        edges = [x.edge for x in self.own_records(resource)]
        return bool(edges) and not any(edges)

    def known_policy(self) -> Policy | None:
        """The policy in this clone's copy, without a connection; None before the first contact."""

        def read() -> Policy | None:
            head = self.store.known(self.layer)
            return head.policy if head and head.ledger else None

        return _read_with_retry(read)

    def views(self, look: Look, leases: Sequence[Lease]) -> tuple[LeaseView, ...]:
        """Leases as this actor sees them at that moment."""
        return self.views_in(look.head, leases, look.moment)

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
        notices = head.ledger.notices(self.actor.holder) if head and head.ledger else ()
        unread = unread_notices(self.store, self.layer, notices, self.actor)
        return (*(told(notice) for notice in unread), *self.inbox.take())

    def of_live_runs(self, leases: Iterable[Lease]) -> list[Lease]:
        """Those of some leases that a live run has, which alone ends them unless they are named."""
        live = self._runs.live() if self._runs is not None else frozenset()
        return [x for x in leases if x.lease_id in live or self.is_of_run_above(x)]

    @property
    def is_below_run(self) -> bool:
        """Whether this process works below a run, in its session."""
        return bool(self._run_tokens)

    def is_of_run_above(self, lease: Lease) -> bool:
        """Whether the run has it below which this process works."""
        same = lease.session is not None and lease.session == self.actor.session
        return same and lease.token in self._run_tokens

    def untold(self) -> tuple[Notice, ...]:
        """This run's losses in this clone's copy that no answer of a step has reported."""
        head = self.store.known(self.layer)
        notices = head.ledger.notices(self.actor.holder) if head and head.ledger else ()
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
            head = self.store.fetch(self.layer)
            return head, told_by(self.store, head) + self._repair_edges(head)
        known = self.store.known(self.layer)
        if known is None:
            raise NotFound(
                "this clone has no copy of the ledger yet",
                hints=("run it once without --cached",),
            )
        return known, ()

    def _looked_at(self, head: Snapshot) -> Look:
        leases = tuple(head.ledger.every_lease()) if head.ledger else ()
        return Look(head, self.moment(head), leases)

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
        batch = [*operations, *self._acknowledged()][: max(MAX_STEP, len(operations))]
        try:
            step = self.transaction.carry_out(
                batch, together=together, what=named(what, operations)
            )
        except GitleaseError as refusal:
            if isinstance(refusal, PolicyRefused) and refusal.by_setting and self._ttl_source:
                refusal.message = f"{self._ttl_source}: {refusal.message}"
                refusal.args = (refusal.message,)
            known = self.store.known(self.layer)
            after = self.came_of(settled, known) + self.news(known)
            refusal.warnings = self.store.warnings + said + after
            raise
        return step, said + self.came_of(settled, step.head) + self.news(step.head)

    def may_land(self, operations: Sequence[str]) -> bool:
        """Whether a step that failed may be found in the ledger later."""
        return any(
            set(operations) & set(pending.operations) for pending in self.store.pending(self.layer)
        )

    def _acknowledged(self) -> list[Operation]:
        ids = tuple(n.id for n in self.untold())
        if not ids:
            return []
        return [Acknowledge(id=fresh_id(), actor=self.actor, notices=ids)]

    # --- settle ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """Finish what earlier commands left half done, before a step is planned.

        Done once for each step, whose answer carries the messages.
        """
        if self._settled is None:
            settled = self.settled()
            said = settled.said + self._repair_edges()
            self._settled = replace(settled, said=said)  # so that the next line comes here once
            self._settled = replace(settled, said=said + self._end_dead_runs())

    def settled(self) -> Settled:
        """The outcomes of changes that earlier commands left open."""
        waiting = list(self.store.pending(self.layer))
        if not waiting:
            return Settled()
        return settle(self.store, waiting, self.store.fetch(self.layer))

    def _end_dead_runs(self) -> tuple[str, ...]:
        """Let go of what dead runs of this clone were granted or have bound."""
        messages: list[str] = []
        for dead in self._runs.dead(self.actor) if self._runs is not None else ():
            actor, step = replace(self.actor, session=dead.session), None
            ends: list[Operation] = []
            known = {grant.lease_id for grant in (*dead.granted, *dead.bound)}
            below = self.in_session(dead.session, but=known) if dead.alone else ()
            if own := (*dead.granted, *map(grant_of, below)):
                ends.append(RunOut(id=fresh_id(), actor=actor, grants=own))
            if dead.bound:
                ends.append(Unbind(id=fresh_id(), actor=actor, grants=dead.bound))
            try:
                if ends:
                    step = self.transaction.carry_out(ends, together=False, what="the end of a run")
            except GitleaseError:  # the step that follows reports it
                break
            dead.forget()
            results = step.applied.results if step else ()
            freed = [x for result in results if isinstance(result, Outcome) for x in result.leases]
            messages += [
                f"{x.resource}: session {dead.session} is dead, and no longer holds it"
                for x in freed
            ]
        return tuple(messages)

    def came_of(self, settled: Settled, head: Snapshot | None) -> tuple[str, ...]:
        """Messages about open changes that the head after a step decided."""
        return () if head is None else told_by(self.store, head, settled.open)

    def _repair_edges(self, head: Snapshot | None = None) -> tuple[str, ...]:
        left = self.intents.left_behind()
        if not left:
            return ()
        said: list[str] = []
        head = head or self.store.fetch(self.layer)
        open_still = {op for p in self.store.pending(self.layer) for op in p.operations}
        for intent in left:
            if open_still.intersection(intent.operations):
                self.intents.leave(intent)
            else:
                said += self.intents.repair(intent, head.ledger)
        return tuple(said)


def _read_with_retry(read: Callable[[], T]) -> T:
    # The remote may have moved on during the repair of a damaged copy.
    try:
        return read()
    except HeadGone:
        return read()
