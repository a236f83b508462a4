"""One ledger behind a gateway: a session for each request, and what its clients need besides.

The holder of a session is whoever its token says, never what a request says of itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from gitlease.core.errors import GitleaseError, LeaseLost
from gitlease.core.expiry import Moment, holder_has
from gitlease.core.lease import Actor, Lease, State, same_person
from gitlease.core.moves.operations import Operation, Renew, grant_of
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource
from gitlease.engine.answers import Answer
from gitlease.engine.edges import EdgeRules, Edges
from gitlease.engine.hold import renew
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import Clock, LedgerStore, Snapshot, TaskFiles
from gitlease.engine.transaction import fresh_id
from gitlease.gateway.joiner import MOST, Joiner
from gitlease.gateway.session import JoinedSteps, NoInbox, RequestClock, SharedStore

FRESH = 2 / 3  # of its time that a lease must have left for a renewal to change nothing
MOST_RENEWALS = 10_000  # that are remembered to go along
WORTHWHILE = 0.9  # of its time below which a renewal goes along with that of another


class Gateway:
    """The ledger of one layer, as the clients of a gateway use it together.

    ``actor`` is the gateway's own, ``files`` gives the project's task files, which are read here
    and never written: an assignment stands in the ledger's record.
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
        self.on_head: Callable[[Snapshot], None] = lambda _head: None
        """Is told each head that a step of the gateway's made."""
        self._ttl, self._ttl_is_default = default_ttl, ttl_is_default
        self.joiner = Joiner(store, clock=clock, actor=actor, layer=layer, on_step=self._stepped)
        self._renewals = _Renewals()

    def session(
        self,
        holder: str,
        session: str | None = None,
        *,
        key: str | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> LedgerSession:
        """The session of a request: of a holder, and of one of its runs.

        ``key`` is that of its operations, so that a request which is sent again is known; ``check``
        is asked before each step, and raises where it may not be done any more.
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
        """The caller's leases of a resource that it may act on now, by what the remote has."""
        found = self.held(session.actor.holder, resource, scope)
        return [x for x in found if x.answers_to(session.actor)]

    def held(self, holder: str, resource: Resource, scope: str | None = None) -> list[Lease]:
        """What a person has of a resource now; that it is nothing is said by a new look."""
        for look in (self.store.fetch, self.store.follow):
            head = look(self.layer)
            moment = Moment(now=self.clock.now(), seen=head.seen)
            found = [
                x
                for x in (head.ledger.leases_of(resource) if head.ledger else ())
                if x.state is State.ACTIVE
                and same_person(x.holder, holder)
                and (scope is None or fold(x.scope) == fold(scope))
                and holder_has(x, moment)
            ]
            if found:
                return found
        return []

    def check_token(
        self, session: LedgerSession, resource: Resource, token: int, scope: str | None = None
    ) -> None:
        """LeaseLost where the caller's lease of a resource has another token by now.

        Whoever has none, or another one's, is told so by the verb itself.
        """
        holder = session.actor.holder
        if any(x.token == token for x in self.held(holder, resource, scope)):
            return
        self.store.follow(self.layer)  # or it was claimed just now, elsewhere
        found = self.held(holder, resource, scope)
        if found and not any(x.token == token for x in found):
            raise LeaseLost(
                f"you do not hold {resource} with token {token}",
                resource=resource.text,
                scope=scope,
                hints=("read it again, and stop what you did under it",),
            )

    def renew(
        self,
        session: LedgerSession,
        resources: Sequence[Resource],
        *,
        scope: str | None = None,
        ttl: int | None = None,
    ) -> Answer:
        """Bump the expiry of what is named; what is not the caller's is refused before anything is.

        Where two thirds of its time are left to all of it, the record answers, and nothing is
        pushed; it goes along with the next renewal that is. A lease without a session is bound to
        that of who renews it: this is pushed.
        """
        own = [self.own(session, resource, scope) for resource in resources]
        for resource in (r for r, some in zip(resources, own, strict=True) if not some):
            renew(session, [resource], scope=scope)  # says why not
        now, leases = self.clock.now().wall_ms, [lease for some in own for lease in some]
        fresh = all(_left(x, now) >= FRESH and not x.parked for x in leases)
        binds = session.actor.session is not None and any(x.session is None for x in leases)
        if ttl is None and all(own) and fresh and not binds:
            for lease in leases:
                self._renewals.remember(lease, session.actor, now)
            head = self.store.known(self.layer)
            views = session.views_in(head, leases) if head else ()
            return Answer(status="renewed", leases=views, changed=False)
        self._renew_others(now)
        return renew(session, resources, scope=scope, ttl=ttl)

    def _renew_others(self, now: int) -> None:
        """Have the renewals go along that were answered by the record: one push does for all."""
        operations = self._renewals.take(now)
        for start in range(0, len(operations), MOST - 1):
            some = operations[start : start + MOST - 1]
            answer = self.joiner.ask(some[0].actor, some, together=False, what="renew")
            answer.add_done_callback(lambda done: done.exception())  # nobody waits for it

    def _stepped(self, head: Snapshot) -> None:
        self.store.adopt(head)
        try:
            self.on_head(head)
        except Exception:  # what landed has landed, whoever fails to listen
            logging.getLogger("gitlease").exception("telling of a step")

    def close(self) -> None:
        """Answer what was asked, and take nothing more."""
        self.joiner.close()

    def settle(self) -> None:
        """Forget what an earlier process did not find out: its clients ask again by their keys."""
        for pending in list(self.store.inner.pending(self.layer)):
            try:
                self.store.inner.settle(pending, self.store.fetch(self.layer))
            except GitleaseError:
                return  # the remote cannot be asked now


class _Renewals:
    """What was asked to be renewed and had time enough."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[Lease, Actor, int]] = {}
        self._lock = threading.Lock()

    def remember(self, lease: Lease, actor: Actor, now: int) -> None:
        with self._lock:
            self._asked[lease.lease_id] = lease, actor, now
            if len(self._asked) > MOST_RENEWALS:
                good = {x: y for x, y in self._asked.items() if _goes_along(y[0], y[2], now)}
                self._asked = good if len(good) <= MOST_RENEWALS else {}  # it is a courtesy

    def take(self, now: int) -> list[Operation]:
        """All of it that is worth a push of others, as operations; it is remembered no more."""
        with self._lock:
            asked, self._asked = self._asked, {}
        return [
            Renew(id=fresh_id(), actor=actor, grants=(grant_of(lease),))
            for lease, actor, at in asked.values()
            if _left(lease, now) < WORTHWHILE and _goes_along(lease, at, now)
        ]


def _goes_along(lease: Lease, at: int, now: int) -> bool:
    """Whether its holder was heard of not long ago, and it is not over."""
    return _left(lease, now) > 0 and now - at < (1 - FRESH) * lease.duration_ms


def _left(lease: Lease, now: int) -> float:
    """How much of its time a lease has left, as a part of it."""
    return (lease.expires_at - now) / max(1, lease.duration_ms)
