"""One ledger behind a gateway: a session for each request, token checks and cheap renewals.

The holder of a session comes from the caller's token, never from the request.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Lock

from gitlease.gateway.joiner import MOST, Joiner, keyed
from gitlease.kernel.ledger.acts import renew
from gitlease.kernel.ledger.answers import Answer
from gitlease.kernel.ledger.chores import in_order
from gitlease.kernel.ledger.edges import EdgeRules, Edges, find_task
from gitlease.kernel.ledger.ledger_session import (
    Assigned,
    Caller,
    Decisions,
    LedgerSession,
    Terms,
    assigned_to,
)
from gitlease.kernel.ledger.ports import (
    Clock,
    LedgerStep,
    LedgerStore,
    Pending,
    Prepared,
    Snapshot,
    Swapped,
    TaskFiles,
)
from gitlease.kernel.ledger.transaction import Step, fresh_id
from gitlease.kernel.rules.errors import GitleaseError, LeaseLost, UnknownOutcome, UsageError
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import Instant
from gitlease.kernel.rules.lease import Actor, Lease, Moment, State, holder_has, same_person
from gitlease.kernel.rules.moves.operations import (
    LeaveTicket,
    Operation,
    Outcome,
    Renew,
    TakeTicket,
    grant_of,
)
from gitlease.kernel.rules.moves.transitions import Applied
from gitlease.kernel.rules.resources import Resource, fold
from gitlease.kernel.rules.work import WorkPush

# --- a shared store with its newest head, and joined steps ------------------------------------

RecordsOf = Callable[[Resource], Sequence[Lease]]
YOUNG = 1_000  # milliseconds for which an answer of the remote counts as current
ANSWER = 90.0  # seconds to wait for a step: more than it may take


class Looks:
    """The looks at the remote that requests share, one at a time."""

    def __init__(self) -> None:
        self.turn, self.begun, self.failures = Lock(), 0, 0
        self.of_layer: dict[str, int] = {}  # the number of its last good look
        self.failure: GitleaseError | None = None  # of the last look


class SharedStore:
    """A ledger's store, shared by the sessions of a gateway; the newest head is kept in memory.

    A fetch is a look at the remote that began after the call, or in ``since_now()`` after that
    one. Whoever comes during a look shares the next one.
    """

    def __init__(self, store: LedgerStore, clock: Clock) -> None:
        self.inner, self.clock = store, clock
        self._lock = Lock()  # for the heads in memory; never held during a look
        # Set by each step of this gateway: whoever follows the ledger need not wait for a look.
        self.pushed = threading.Event()
        self._heads: dict[str, Snapshot] = {}
        self._looks = Looks()
        self._since: int | None = None  # looks with a higher number will do
        self.confirm, self.prepare = store.confirm, store.prepare
        self.settle, self.keep_pending = store.settle, store.keep_pending
        self.forget_pending, self.history = store.forget_pending, store.history
        self.steps, self.shown, self.pushes = store.steps, store.shown, store.pushes
        self.accept, self.doubt, self.admit = store.accept, store.doubt, store.admit

    def since_now(self) -> SharedStore:
        """The same store for one request, whose reads within a second share one look."""
        other = copy.copy(self)
        other._since = self._looks.begun
        return other

    def adopt(self, head: Snapshot) -> Snapshot:
        """Keep a pushed or fetched head if it is newer; return the newest."""
        with self._lock:
            known = self._heads.get(head.layer)
            if known is not None and known.ledger is not None:
                same = head.ledger and head.ledger.header.ledger_id == known.ledger.header.ledger_id
                # If the ledger was replaced or rolled back, the clone's own record decides.
                if not same or revision_of(head) < revision_of(known):
                    head = self.inner.known(head.layer) or head
            self._heads[head.layer] = head
            return head

    def newest(self, layer: str) -> Snapshot | None:
        """The newest head in memory."""
        return self._heads.get(layer)

    @property
    def place(self) -> str:
        return self.inner.place

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.inner.warnings

    def known(self, layer: str) -> Snapshot | None:
        if layer not in self._heads and (head := self.inner.known(layer)) is not None:
            self.adopt(head)
        return self.newest(layer)

    def fetch(self, layer: str, there: str = "", *, before_push: bool = False) -> Snapshot:
        looks = self._looks
        since = looks.begun if self._since is None else self._since
        failures = looks.failures
        with looks.turn:
            # Nobody is told "you hold it" from what the remote had before it was asked.
            if looks.of_layer.get(layer, 0) > since and (head := self._young(layer)) is not None:
                return head
            if looks.failure is not None and looks.failures != failures:
                # Each request gets a copy: several threads would add their tracebacks to one error.
                raise copy.copy(looks.failure)
            looks.begun += 1
            try:
                if (known := self.newest(layer)) is None:
                    head = self.inner.fetch(layer)
                else:
                    began, there = self.clock.now(), self.inner.peek([layer]).get(layer, "")
                    # Most looks find what is known: naming the head costs less than a fetch.
                    same = there == known.version
                    head = (
                        replace(known, received=began) if same else self.inner.fetch(layer, there)
                    )
            except GitleaseError as error:
                looks.failure, looks.failures = error, looks.failures + 1
                raise
            looks.failure, looks.of_layer[layer] = None, looks.begun
            return self.adopt(head)

    def _young(self, layer: str) -> Snapshot | None:
        head = self.newest(layer)
        young = head and head.received.elapsed_at_most(self.clock.now()) < YOUNG
        return head if young else None

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        """The remote's heads, at most a second old: all waiting requests share one question."""
        return {layer: (self._young(layer) or self.fetch(layer)).version for layer in layers}

    def turn(
        self, layers: Sequence[str], seconds: float, on_wait: Callable[[], None]
    ) -> AbstractContextManager[object]:
        # The joiner's one thread is the turn: requests of this process never race each other.
        return nullcontext()

    def mark(self, layer: str) -> str:
        head = self.newest(layer)
        return head.version if head else ""

    def nearby(self, layer: str) -> str:
        return ""

    def swap(
        self,
        prepared: Prepared,
        work: WorkPush | None = None,
        *,
        on_start: Callable[[], object] = lambda: None,
    ) -> Swapped:
        swapped = self.inner.swap(prepared, work, on_start=on_start)
        for head in swapped.heads.values():
            self.adopt(head)
        return swapped

    def pending(self, layer: str) -> Iterable[Pending]:
        # The joiner, which uses the inner store, settles its own steps.
        return ()


class RequestClock:
    """A request's clock, whose ``sleep`` raises once the request may not go on."""

    def __init__(self, clock: Clock, check: Callable[[], None]) -> None:
        self._clock, self._check = clock, check

    def now(self) -> Instant:
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        self._check()
        self._clock.sleep(seconds)


class JoinedSteps:
    """Carries out the steps of one request through a joiner.

    The first step that lands carries the ``key`` into the ledger, so that a repeated request is
    recognised. ``check`` raises once the request may not go on.
    """

    def __init__(
        self,
        joiner: Joiner,
        actor: Actor,
        key: str | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._joiner, self._actor, self._key, self._check = joiner, actor, key, check

    def __call__(self, operations: Sequence[Operation], *, together: bool, what: str) -> Step:
        key = None
        # A place in the wait queue is not what the request asks for, and takes no key.
        if not isinstance(operations[0], TakeTicket | LeaveTicket):
            self._check()
            key = self._key
        asked = operations if key is None else keyed(operations, key)
        answer = self._joiner.ask(self._actor, asked, together=together, what=what, key=key)
        try:
            step = answer.result(ANSWER)
        except TimeoutError:
            # So that it never begins.
            answer.cancel()
            raise UnknownOutcome(
                f"whether {what} reached the remote is unknown: it did not answer in time",
                hints=("repeat the request with the same key",) if key else (),
            ) from None
        if key is None:
            return step
        if step.applied.changed:
            self._key = None
        ids = {y.id: x.id for x, y in zip(operations, asked, strict=True)}
        results: tuple[Outcome | GitleaseError, ...] = tuple(
            replace(x, operation=ids[x.operation]) if isinstance(x, Outcome) else x
            for x in step.applied.results
        )
        applied = Applied(step.applied.ledger, results, changed=step.applied.changed)
        return Step(applied, step.head, step.moment)


def revision_of(head: Snapshot | LedgerStep) -> int:
    """The revision of a head, 0 without a ledger."""
    return head.ledger.header.revision if head.ledger else 0


# --- the gateway ------------------------------------------------------------------------------

FRESH = 2 / 3  # share of its time a lease must have left to be renewed from the record alone
FEW_RENEWALS, MOST_RENEWALS = 250, 10_000  # deferred: looked through first, and kept at most
MOST_LAYERS = 256  # of one gateway, besides its own
MOST_UNREPORTED = 50  # messages that wait for an answer to one session
MOST_LISTENERS = 1_000  # sessions for which messages wait: their names are the callers' choice
_Listener = tuple[str, str | None]  # a holder, and a session
WORTHWHILE = 0.9  # share of its time above which a deferred renewal is not pushed


class Gateway:
    """The ledger of one layer, shared by the clients of a gateway.

    ``actor`` is the gateway itself. Task files are read through ``files`` and never written: an
    assignment is kept in the ledger.
    """

    def __init__(
        self,
        store: LedgerStore,
        *,
        clock: Clock,
        actor: Actor,
        layer: str,
        files: TaskFiles,
        rules: EdgeRules,
        terms: Terms,
    ) -> None:
        self.layer, self.clock, self.rules, self.files = layer, clock, rules, files
        self.store = SharedStore(store, clock)
        self.check_room: Callable[[], None] = lambda: None  # raises OSError without room to write
        self._terms = terms
        self.lock_ttl: int | None = None  # seconds of Git LFS's locks; None: they last
        self.lfs_objects: str | None = None  # the address of the server that has its objects
        self._layers, self._unreported = _Layers(), _Unreported()
        self._begin(actor)

    def _begin(self, actor: Actor) -> None:
        self._actor, self._deferred = actor, _DeferredRenewals()
        self.joiner = Joiner(
            self.store.inner,
            clock=self.clock,
            actor=actor,
            layer=self.layer,
            on_step=self._stepped,
        )

    def in_layer(self, layer: str | None) -> Gateway:
        """The gateway to another layer of this ledger, with steps of its own; None: the same.

        Raises UsageError beyond ``MOST_LAYERS``.
        """
        if layer is None or layer == self.layer:
            return self
        with self._layers.lock:
            if (known := self._layers.opened.get(layer)) is None:
                if len(self._layers.opened) >= MOST_LAYERS:
                    raise UsageError(f"this gateway has {MOST_LAYERS} layers open: use one of them")
                known = copy.copy(self)
                known.layer = layer
                known._begin(self._actor)
                known.settle()
                self._layers.opened[layer] = known
        other = copy.copy(known)
        # What this request has seen of the remote.
        other.store = self.store
        return other

    def other_layers(self) -> list[str]:
        """The further layers that were asked for here."""
        return [x for x in self._layers.opened if x != self.layer]

    def since_now(self) -> Gateway:
        """The gateway for one request: its answers rest on looks that begin after this call."""
        other = copy.copy(self)
        other.store = self.store.since_now()
        return other

    def check_ready(self) -> None:
        """Raise GitleaseError or OSError if requests cannot be carried out now."""
        self.check_room()
        self.store.fetch(self.layer)

    def session(
        self,
        holder: str,
        session: str | None = None,
        *,
        key: str | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> LedgerSession:
        """The ledger session of a request.

        ``key`` goes into the ids of its operations, so that a repeated request is recognised;
        ``check`` is called before each step, and raises once the request may not go on.
        """
        actor = Actor(holder=holder, session=session, session_explicit=session is not None)
        return LedgerSession(
            self.store,
            caller=Caller(actor=actor),
            clock=RequestClock(self.clock, check),
            layer=self.layer,
            edges=Edges(self.files, self.rules, Decisions(self.store, self.layer, holder)),
            terms=replace(self._terms, carry=JoinedSteps(self.joiner, actor, key, check)),
            chores=in_order(),
        )

    def leave_messages(
        self, holder: str, messages: Iterable[str], *, session: str | None = None
    ) -> None:
        """Leave messages that an answer cannot report to the next answer that can.

        That is an answer to this session; without one, to any of the holder's.
        """
        # Those about the place itself come with each answer.
        usual = self.store.warnings
        self._unreported.leave((holder, session), [x for x in messages if x not in usual])

    def take_messages(self, holder: str, session: str | None = None) -> tuple[str, ...]:
        """Return the messages that were left for a holder or a session, and forget them."""
        left = self._unreported.take((holder, None))
        if session is None:
            return left
        return (*left, *self._unreported.take((holder, session)))

    def own(
        self, session: LedgerSession, resource: Resource, scope: str | None = None
    ) -> list[Lease]:
        """The live leases of a resource that the caller may act on."""
        held = self.held(session.actor.holder, resource, scope)
        return [x for x in held if x.answers_to(session.actor)]

    def assigned_in(
        self, session: LedgerSession, resource: Resource, earlier: RecordsOf | None = None
    ) -> tuple[str, ...]:
        """The places that assign a task to the caller: ``record``, ``file``, by now or earlier."""
        assigned = self.assignees(session, resource, earlier)
        return next((x.places for x in assigned if same_person(x.name, session.actor.holder)), ())

    def assignees(
        self, session: LedgerSession, resource: Resource, earlier: RecordsOf | None = None
    ) -> tuple[Assigned, ...]:
        """Everyone to whom a task is assigned, by the ledger and its task file."""
        # Without a ledger there are no records, and yet there may be names in a file.
        if (head := session.store.known(session.layer)) is None:
            return ()
        task = find_task(session.edges.read(), resource, lenient=True)
        records = (earlier or session.decisions.known_records)(task.resource if task else resource)
        if task and earlier:
            # The work of some may have ended only since then.
            task = replace(task, assigned=(*task.assigned, *task.outdated))
        return assigned_to(task, records, self.rules.people, head.policy, session.moment(head))

    def before(self, head: Snapshot, operations: Iterable[str]) -> RecordsOf:
        """The records before some operations; none if the ledger no longer knows these."""
        entries = map(head.ledger.header.entry, operations) if head.ledger else ()
        first = min((x.revision for x in entries if x), default=0)
        back, nothing = revision_of(head) - first + 2, replace(head, version="")
        past = self.store.steps(nothing, head, back) if first else ()
        ledger = next((x.ledger for x in reversed(past) if revision_of(x) < first), None)
        return ledger.leases_of if ledger else lambda _: ()

    def held(
        self, holder: str, resource: Resource | None = None, scope: str | None = None
    ) -> list[Lease]:
        """A person's live leases in all sessions, of one resource if named."""
        head = self.store.fetch(self.layer)
        if (ledger := head.ledger) is None:
            return []
        moment = Moment(now=self.clock.now(), seen=head.seen)
        return [
            x
            for x in (ledger.every_lease() if resource is None else ledger.leases_of(resource))
            if x.state is State.ACTIVE
            and same_person(x.holder, holder)
            and (scope is None or fold(x.scope) == fold(scope))
            and holder_has(x, moment)
        ]

    def check_token(
        self, session: LedgerSession, resource: Resource, token: int, scope: str | None = None
    ) -> None:
        """Raise LeaseLost if the caller's lease of a resource has another token now."""
        held = self.held(session.actor.holder, resource, scope)
        # If the caller has none, the verb itself says so.
        if held and not any(x.token == token for x in held):
            raise LeaseLost(
                f"you do not hold {resource} with token {token}",
                resource=resource.text,
                scope=scope,
                hints=("stop the work under that token, and read the lease again",),
            )

    def renew(
        self,
        session: LedgerSession,
        resources: Sequence[Resource],
        *,
        scope: str | None = None,
        ttl: int | None = None,
    ) -> Answer:
        """Renew leases, all or none.

        If all have two thirds of their time left, the answer comes from the record, and the renewal
        joins the next one that is pushed.
        """
        # The push itself is a look.
        if ttl is not None and len(resources) == 1:
            return renew(session, resources, scope=scope, ttl=ttl)
        each = [self.own(session, resource, scope) for resource in resources]
        for resource in (r for r, some in zip(resources, each, strict=True) if not some):
            renew(session, [resource], scope=scope)  # raises the reason
        now, leases = self.clock.now(), [lease for some in each for lease in some]
        head = self.store.known(self.layer)
        sightings = [head.seen(lease) if head else None for lease in leases]
        known = [
            _SeenLease(lease, (seen.since or seen.at) if seen else now)
            for lease, seen in zip(leases, sightings, strict=True)
        ]
        fresh = all(x.left(now) >= FRESH and not x.lease.parked for x in known)
        # Another session must find a lease bound at once: that is always pushed.
        binds = session.actor.session is not None and any(x.session is None for x in leases)
        if ttl is None and all(each) and fresh and not binds:
            for seen_lease in known:
                self._deferred.add(seen_lease, session.actor, now)
            views = session.views_in(head, leases) if head else ()
            return Answer(status="renewed", leases=views, changed=False)
        operations = self._deferred.take(now)
        for start in range(0, len(operations), MOST - 1):
            some = operations[start : start + MOST - 1]
            answer = self.joiner.ask(some[0].actor, some, together=False, what="renew")
            # Nobody waits for it: an exception that is never asked for would be logged.
            answer.add_done_callback(lambda done: done.exception())
        return renew(session, resources, scope=scope, ttl=ttl)

    def _stepped(self, step: Step) -> None:
        self.store.adopt(step.head)
        self.store.pushed.set()  # who follows the ledger wakes up
        done = [x for x in step.applied.results if isinstance(x, Outcome)]
        ended = (lease for x in done for lease in x.leases if lease.state is not State.ACTIVE)
        self._deferred.forget([*ended, *(lease for x in done for lease in x.displaced)])

    def close(self) -> None:
        """Answer pending requests, and take no more."""
        self.joiner.close()
        for other in list(self._layers.opened.values()):
            other.joiner.close()

    def settle(self) -> None:
        """Settle an earlier process's pending steps: its clients repeat requests by their keys."""
        for pending in list(self.store.inner.pending(self.layer)):
            try:
                self.store.inner.settle(pending, self.store.fetch(self.layer))
            except GitleaseError:
                return  # the remote cannot be asked now


class _Unreported:
    """The messages that no answer has reported yet, by holder and session.

    Git LFS, for example, has no place for them in its answers. Each session keeps its newest
    ``MOST_UNREPORTED``, and the ``MOST_LISTENERS`` that were left something last keep theirs.
    """

    def __init__(self) -> None:
        self._texts, self._lock = dict[_Listener, tuple[str, ...]](), Lock()

    def leave(self, listener: _Listener, messages: Sequence[str]) -> None:
        if not messages:
            return
        with self._lock:
            texts = dict.fromkeys((*self._texts.pop(listener, ()), *messages))
            self._texts[listener] = tuple(texts)[-MOST_UNREPORTED:]
            if len(self._texts) > MOST_LISTENERS:
                self._texts.pop(next(iter(self._texts)))

    def take(self, listener: _Listener) -> tuple[str, ...]:
        with self._lock:
            return self._texts.pop(listener, ())


class _Layers:
    """The gateways to the further layers of a ledger."""

    def __init__(self) -> None:
        self.opened, self.lock = dict[str, Gateway](), Lock()


@dataclass(frozen=True)
class _SeenLease:
    """A lease's record, and since when this gateway has seen it."""

    lease: Lease
    since: Instant

    def left(self, now: Instant) -> float:
        """The share of its time that the lease has left."""
        # By the smaller of two clocks, of which one cannot be set.
        wall = self.lease.expires_at - now.wall_ms
        boot = self.lease.duration_ms - self.since.elapsed_at_most(now)
        return min(wall, boot) / max(1, self.lease.duration_ms)


class _DeferredRenewals:
    # Renewals answered from the record, to be pushed along with another. They are only a courtesy:
    # a host asks for few pushes, and each of these leases has most of its time left.

    def __init__(self) -> None:
        # The instant is that of the request.
        self._renewals: dict[str, tuple[_SeenLease, Actor, Instant]] = {}
        self._full = FEW_RENEWALS  # so many are looked through
        self._lock = threading.Lock()

    def add(self, known: _SeenLease, actor: Actor, now: Instant) -> None:
        with self._lock:
            self._renewals[known.lease.lease_id] = known, actor, now
            if len(self._renewals) > self._full:
                # Another process of this ledger may have ended some of these leases.
                live = {x: y for x, y in self._renewals.items() if _is_live(y[0], y[2], now)}
                self._renewals = live if len(live) < MOST_RENEWALS else {}  # only a courtesy
                self._full = max(FEW_RENEWALS, min(2 * len(self._renewals), MOST_RENEWALS))

    def forget(self, leases: Iterable[Lease]) -> None:
        with self._lock:
            for lease in leases:
                self._renewals.pop(lease.lease_id, None)

    def take(self, now: Instant) -> list[Operation]:
        with self._lock:
            renewals, self._renewals = self._renewals, {}
        return [
            Renew(id=fresh_id(), actor=actor, grants=(grant_of(known.lease),))
            for known, actor, at in renewals.values()
            if known.left(now) < WORTHWHILE and _is_live(known, at, now)
        ]


def _is_live(known: _SeenLease, at: Instant, now: Instant) -> bool:
    """Return whether a lease has time left, and its holder asked not long ago."""
    return known.left(now) > 0 and at.elapsed_at_most(now) < (1 - FRESH) * known.lease.duration_ms
