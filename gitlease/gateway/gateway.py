"""One ledger behind a gateway: a session for each request, token checks and cheap renewals.

The holder of a session comes from the caller's token, never from the request.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Sequence

from gitlease.core.errors import GitleaseError, LeaseLost
from gitlease.core.frozen import dataclass
from gitlease.core.instant import Instant
from gitlease.core.lease import Actor, Lease, Moment, State, holder_has, same_person
from gitlease.core.moves.operations import Operation, Renew, grant_of
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource
from gitlease.engine.acts import renew
from gitlease.engine.answers import Answer
from gitlease.engine.edges import EdgeRules, Edges, find_task
from gitlease.engine.ledger_session import Assigned, LedgerSession, assigned_to
from gitlease.engine.ports import Clock, LedgerStore, Snapshot, TaskFiles
from gitlease.engine.transaction import fresh_id
from gitlease.gateway.joiner import MOST, Joiner
from gitlease.gateway.session import JoinedSteps, NoInbox, RequestClock, SharedStore

FRESH = 2 / 3  # share of its time a lease must have left to be renewed from the record alone
MOST_RENEWALS = 10_000  # deferred renewals
WORTHWHILE = 0.9  # share of its time above which a deferred renewal is not pushed


class Gateway:
    """The ledger of one layer, shared by the clients of a gateway.

    ``actor`` is the gateway itself. Task files are read through ``files`` and never written: an
    assignment is kept in the ledger. ``on_head`` is called with each head that a step produces.
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
        default_ttl: int,
        ttl_is_default: bool,
    ) -> None:
        self.layer, self.clock, self.rules, self.files = layer, clock, rules, files
        self.store = SharedStore(store, clock)
        self.check_room: Callable[[], None] = lambda: None  # raises OSError without room to write
        self.on_head: Callable[[Snapshot], None] = lambda _head: None
        self._ttl, self._ttl_is_default = default_ttl, ttl_is_default
        self.joiner = Joiner(store, clock=clock, actor=actor, layer=layer, on_step=self._stepped)
        self._deferred = _DeferredRenewals()

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
            clock=RequestClock(self.clock, check),
            actor=actor,
            layer=self.layer,
            edges=Edges(self.files, self.rules, holder=holder),
            inbox=NoInbox(),
            default_ttl=self._ttl,
            ttl_is_default=self._ttl_is_default,
            carry=JoinedSteps(self.joiner, actor, key, check),
        )

    def own(
        self, session: LedgerSession, resource: Resource, scope: str | None = None
    ) -> list[Lease]:
        """The live leases of a resource that the caller may act on."""
        found = self.held(session.actor.holder, resource, scope)
        return [x for x in found if x.answers_to(session.actor)]

    def assigned_in(self, session: LedgerSession, resource: Resource) -> tuple[str, ...]:
        """The places that assign a task to the caller now: ``record``, ``file``, both or none."""
        found = self.assignees(session, resource)
        return next((x.places for x in found if same_person(x.name, session.actor.holder)), ())

    def assignees(self, session: LedgerSession, resource: Resource) -> tuple[Assigned, ...]:
        """Everyone to whom a task is assigned, by the known ledger and its task file."""
        look, people = session.known_look(), self.rules.people
        if look is None or look.head.ledger is None:
            return ()
        task = find_task(session.edges.read(), resource, lenient=True)
        records = look.head.ledger.leases_of(task.resource if task else resource)
        return assigned_to(task, records, people, look.policy, look.moment)

    def held(self, holder: str, resource: Resource, scope: str | None = None) -> list[Lease]:
        """A person's live leases of a resource."""
        head = self.store.fetch(self.layer)
        moment = Moment(now=self.clock.now(), seen=head.seen)
        return [
            x
            for x in (head.ledger.leases_of(resource) if head.ledger else ())
            if x.state is State.ACTIVE
            and same_person(x.holder, holder)
            and (scope is None or fold(x.scope) == fold(scope))
            and holder_has(x, moment)
        ]

    def check_token(
        self, session: LedgerSession, resource: Resource, token: int, scope: str | None = None
    ) -> None:
        """Raise LeaseLost if the caller's lease of a resource has another token now.

        If the caller has none, the verb itself says so.
        """
        found = self.held(session.actor.holder, resource, scope)
        if found and not any(x.token == token for x in found):
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
        joins the next one that is pushed. Binding a lease to the caller's session is always pushed.
        """
        if ttl is not None and len(resources) == 1:  # the push itself is a look
            return renew(session, resources, scope=scope, ttl=ttl)
        own = [self.own(session, resource, scope) for resource in resources]
        for resource in (r for r, some in zip(resources, own, strict=True) if not some):
            renew(session, [resource], scope=scope)  # raises the reason
        now, leases = self.clock.now(), [lease for some in own for lease in some]
        known = [self._known(lease, now) for lease in leases]
        fresh = all(x.left(now) >= FRESH and not x.lease.parked for x in known)
        binds = session.actor.session is not None and any(x.session is None for x in leases)
        if ttl is None and all(own) and fresh and not binds:
            for one in known:
                self._deferred.add(one, session.actor, now)
            head = self.store.known(self.layer)
            views = session.views_in(head, leases) if head else ()
            return Answer(status="renewed", leases=views, changed=False)
        self._push_deferred(now)
        return renew(session, resources, scope=scope, ttl=ttl)

    def _known(self, lease: Lease, now: Instant) -> _SeenLease:
        head = self.store.known(self.layer)
        seen = head.seen(lease) if head else None
        return _SeenLease(lease, (seen.since or seen.at) if seen else now)

    def _push_deferred(self, now: Instant) -> None:
        operations = self._deferred.take(now)
        for start in range(0, len(operations), MOST - 1):
            some = operations[start : start + MOST - 1]
            answer = self.joiner.ask(some[0].actor, some, together=False, what="renew")
            answer.add_done_callback(lambda done: done.exception())  # nobody waits for it

    def _stepped(self, head: Snapshot) -> None:
        self.store.adopt(head)
        try:
            self.on_head(head)
        except Exception:  # the step has landed, even if a listener fails
            logging.getLogger("gitlease").exception("reporting a step")

    def close(self) -> None:
        """Answer pending requests, and take no more."""
        self.joiner.close()

    def settle(self) -> None:
        """Settle an earlier process's pending steps: its clients repeat requests by their keys."""
        for pending in list(self.store.inner.pending(self.layer)):
            try:
                self.store.inner.settle(pending, self.store.fetch(self.layer))
            except GitleaseError:
                return  # the remote cannot be asked now


@dataclass(frozen=True, slots=True)
class _SeenLease:
    """A lease's record, and since when this gateway has seen it."""

    lease: Lease
    since: Instant

    def left(self, now: Instant) -> float:
        """The share of its time that the lease has left, by clocks of which one cannot be set."""
        wall = self.lease.expires_at - now.wall_ms
        boot = self.lease.duration_ms - self.since.elapsed_at_most(now)
        return min(wall, boot) / max(1, self.lease.duration_ms)


class _DeferredRenewals:
    """Renewals answered from the record, to be pushed along with another."""

    def __init__(self) -> None:
        self._renewals: dict[
            str, tuple[_SeenLease, Actor, Instant]
        ] = {}  # the last: of the request
        self._lock = threading.Lock()

    def add(self, known: _SeenLease, actor: Actor, now: Instant) -> None:
        with self._lock:
            self._renewals[known.lease.lease_id] = known, actor, now
            if len(self._renewals) > MOST_RENEWALS:
                live = {x: y for x, y in self._renewals.items() if _is_live(y[0], y[2], now)}
                self._renewals = live if len(live) <= MOST_RENEWALS else {}  # only a courtesy

    def take(self, now: Instant) -> list[Operation]:
        with self._lock:
            renewals, self._renewals = self._renewals, {}
        return [
            Renew(id=fresh_id(), actor=actor, grants=(grant_of(known.lease),))
            for known, actor, at in renewals.values()
            if known.left(now) < WORTHWHILE and _is_live(known, at, now)
        ]


def _is_live(known: _SeenLease, at: Instant, now: Instant) -> bool:
    """Whether a lease has time left, and its holder asked not long ago."""
    return known.left(now) > 0 and at.elapsed_at_most(now) < (1 - FRESH) * known.lease.duration_ms
