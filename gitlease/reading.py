"""The reading side of the service: what stands in the ledger, as one actor sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from gitlease.answers import Reading
from gitlease.domain.errors import CacheDamaged, NotFound
from gitlease.domain.frozen import dataclass
from gitlease.domain.instant import MS
from gitlease.domain.lapse import Moment
from gitlease.domain.lease import Actor, Lease
from gitlease.domain.ledger import Fate, Ledger, Ticket
from gitlease.domain.pattern import fold
from gitlease.domain.policy import DEFAULT_POLICY, Policy
from gitlease.domain.resource import Resource
from gitlease.domain.tickets import line
from gitlease.domain.view import LeaseView, view_lease
from gitlease.edges import EdgeRules, Edges, NoTaskFiles
from gitlease.intents import Intents
from gitlease.notices import NoWords, of_damage, told, unread_notices, unreadable_line
from gitlease.ports import Clock, LedgerStore, Snapshot, Words

T = TypeVar("T")

MENDS = 8
MEND_PAUSE = 0.05
WHOLE_HISTORY = 100_000
BECAME = {
    Fate.APPLIED: "had reached the remote",
    Fate.LOST: "did not reach the remote, and no longer can",
    Fate.UNKNOWN: "is too long ago to be found out",
}


@dataclass(frozen=True, slots=True)
class Look:
    """One state of the ledger at one moment, with all its leases."""

    head: Snapshot
    moment: Moment
    leases: tuple[Lease, ...]
    warnings: tuple[str, ...] = ()

    @property
    def policy(self) -> Policy:
        return self.head.ledger.header.policy if self.head.ledger else DEFAULT_POLICY


class LeaseReader:
    """Reads one layer of one store for one actor."""

    def __init__(
        self,
        store: LedgerStore,
        *,
        clock: Clock,
        actor: Actor,
        layer: str,
        edges: Edges | None = None,
        words: Words | None = None,
    ) -> None:
        self.words = words or NoWords()
        self.store, self.clock, self.actor, self.layer = store, clock, actor, layer
        self.edges = edges or Edges(NoTaskFiles(), EdgeRules(), holder=actor.holder)
        self.intents = Intents(self.edges)

    def read(self, *, resource: Resource | None = None, cached: bool = False) -> Reading:
        """The leases of the ledger, or of one resource, as this actor sees them.

        ``cached`` answers from what this clone knows, and says how old that is. Raises Invalid
        when the one resource asked for has a damaged record.
        """
        return self.mended(lambda: self._read(resource, cached=cached))

    def _read(self, resource: Resource | None, *, cached: bool) -> Reading:
        head, said = self._head(cached=cached)
        said = self._warnings(head, cached) + said
        ledger = head.ledger
        if ledger is None:
            return Reading(warnings=said)
        leases = ledger.every_lease() if resource is None else ledger.leases_of(resource)
        damage = tuple(ledger.damage()) if resource is None else ()
        return Reading(
            leases=self._views(head, leases),
            notes=() if resource is None else ledger.notes(resource),
            waiting=() if resource is None else self._in_line(ledger, resource),
            damage=damage,
            policy=ledger.header.policy,
            ledger_id=ledger.header.ledger_id,
            revision=ledger.header.revision,
            warnings=said
            + self._told(head)
            + of_damage(damage)
            + unreadable_line(ledger, resource),
        )

    def _in_line(self, ledger: Ledger, resource: Resource) -> tuple[Ticket, ...]:
        return line(ledger.tickets(resource), self.clock.now().wall_ms)

    def look(self, *, cached: bool = False) -> Look:
        """The whole ledger at one moment, for whoever decides on more than its leases."""
        return self.mended(lambda: self._look(cached=cached))

    def known_look(self) -> Look | None:
        """What this clone knew last, asking nobody; None before the first contact."""
        head = self.store.known(self.layer)
        if head is None:
            return None
        leases = tuple(head.ledger.every_lease()) if head.ledger else ()
        return Look(head, Moment(now=self.clock.now(), seen=head.seen), leases)

    def _look(self, *, cached: bool) -> Look:
        head, said = self._head(cached=cached)
        said = self._warnings(head, cached) + said + self._told(head)
        leases = tuple(head.ledger.every_lease()) if head.ledger else ()
        return Look(head, Moment(now=self.clock.now(), seen=head.seen), leases, said)

    def views(self, look: Look, leases: Sequence[Lease]) -> tuple[LeaseView, ...]:
        """Leases as this actor sees them at that moment."""
        return self._views(look.head, leases, look.moment)

    def log(
        self, *, resource: Resource | None = None, limit: int = 100, cached: bool = False
    ) -> Reading:
        """The audit trail, newest first; of one resource where one is named."""
        return self.mended(lambda: self._log(resource, limit, cached=cached))

    def mended(self, act: Callable[[], T]) -> T:
        """What ``act`` gives; when this clone's copy is damaged it is made anew."""
        for again in range(MENDS):
            try:
                return act()
            except CacheDamaged:
                self.store.mend()
                self.clock.sleep(MEND_PAUSE * again)  # others of this clone may be at it as well
        return act()

    def _log(self, resource: Resource | None, limit: int, *, cached: bool) -> Reading:
        head, said = self._head(cached=cached)
        events = self.store.history(self.layer, WHOLE_HISTORY if resource else limit)
        if resource is not None:
            wanted = fold(resource.text)
            events = tuple(e for e in events if fold(e.resource or "") == wanted)[:limit]
        said = self._warnings(head, cached) + said
        return Reading(events=events, warnings=said + self._told(head))

    def _head(self, *, cached: bool) -> tuple[Snapshot, tuple[str, ...]]:
        if cached:
            known = self.store.known(self.layer)
            if known is None:
                raise NotFound(
                    "this clone knows nothing of the ledger yet",
                    hints=("ask once without --cached",),
                )
            return known, ()
        head = self.store.fetch(self.layer)
        said = self._settle_pending()
        return head, said + self._repair_edges(head)

    def _views(
        self, head: Snapshot, leases: Sequence[Lease], moment: Moment | None = None
    ) -> tuple[LeaseView, ...]:
        when = moment or Moment(now=self.clock.now(), seen=head.seen)
        policy = head.ledger.header.policy if head.ledger else DEFAULT_POLICY
        return tuple(
            view_lease(x, layer=head.layer, actor=self.actor, policy=policy, moment=when)
            for x in leases
        )

    def _warnings(self, head: Snapshot, cached: bool) -> tuple[str, ...]:
        said = self.store.warnings + head.warnings
        if cached:
            age = head.received.elapsed_at_most(self.clock.now()) // MS
            said += (f"from what this clone knew {age}s ago",)
        return said

    def _told(self, head: Snapshot | None) -> tuple[str, ...]:
        """What happened to this holder's leases behind its back, said once in this clone."""
        notices = head.ledger.notices(self.actor.holder) if head and head.ledger else ()
        unread = unread_notices(self.store, self.layer, notices, self.actor)
        return (*(told(notice) for notice in unread), *self.words.take())

    def _repair_edges(self, head: Snapshot | None = None) -> tuple[str, ...]:
        """Finish, or forget, what killed commands meant to write to task files."""
        said: list[str] = []
        left = self.intents.left_behind()
        if not left:
            return ()
        head = head or self.store.fetch(self.layer)
        open_still = {op for p in self.store.pending(self.layer) for op in p.operations}
        for intent in left:
            if not open_still.intersection(intent.operations):
                said += self.intents.repair(intent, head.ledger)
        return tuple(said)

    def _settle_pending(self) -> tuple[str, ...]:
        """Find out about changes whose outcome an earlier command could not know."""
        waiting = list(self.store.pending(self.layer))
        if not waiting:
            return ()
        head, said = self.store.fetch(self.layer), []
        for pending in waiting:
            became = BECAME.get(self.store.settle(pending, head))
            if became is not None:
                said.append(f"{pending.what}, whose outcome was not known, {became}")
        return tuple(said)
