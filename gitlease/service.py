"""The lease service: one method a verb, over whatever store it is given.

Words have been parsed by the time they come here, and nothing is printed: faces do both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gitlease.domain.errors import GitleaseError, LeaseHeld, NotFound, WaitTimeout
from gitlease.domain.instant import MS
from gitlease.domain.lapse import Moment
from gitlease.domain.lease import Actor, Lease
from gitlease.domain.ledger import Damage, Fate, Note, Notice
from gitlease.domain.operations import (
    Acknowledge,
    AddNote,
    Barrier,
    Claim,
    Complete,
    DropRecord,
    Extend,
    Operation,
    Release,
    Renew,
    Revoke,
    SetPolicy,
)
from gitlease.domain.outcome import Event
from gitlease.domain.policy import DEFAULT_POLICY, Policy
from gitlease.domain.resource import WHOLE, Resource
from gitlease.domain.view import LeaseView, view_lease
from gitlease.ports import Clock, LedgerStore, Snapshot
from gitlease.swapping import PATIENCE, Step, Swapper, fresh_id

NOTICE_WITHIN = 5.0  # seconds between looks in the first minute of a wait
NOTICE_LATER = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a verb came to. ``refused`` has what could not be done of several leases.

    ``displaced`` has whose place was taken, ``notes`` those left for the next holder, ``warnings``
    what a person should know besides.
    """

    status: str
    leases: tuple[LeaseView, ...] = ()
    displaced: tuple[LeaseView, ...] = ()
    edge: str = "none"
    notes: tuple[Note, ...] = ()
    refused: tuple[GitleaseError, ...] = ()
    capped_to_max: bool = False
    max_ttl_seconds: int = 0
    changed: bool = True
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a reading verb saw. ``age`` is in seconds, for answers from what this clone knows."""

    leases: tuple[LeaseView, ...] = ()
    notes: tuple[Note, ...] = ()
    events: tuple[Event, ...] = ()
    damage: tuple[Damage, ...] = ()
    policy: Policy = DEFAULT_POLICY
    ledger_id: str | None = None
    revision: int = 0
    warnings: tuple[str, ...] = ()


class LeaseService:
    """Claims and everything after, for one actor on one layer of one store."""

    def __init__(
        self,
        store: LedgerStore,
        *,
        clock: Clock,
        actor: Actor,
        layer: str = "global",
        default_ttl: int = 900,
        ttl_is_default: bool = True,
        patience: float = PATIENCE,
        dice: random.Random | None = None,
    ) -> None:
        self.store, self.clock, self.actor, self.layer = store, clock, actor, layer
        self._default_ttl, self._ttl_is_default = default_ttl, ttl_is_default
        self._dice = dice or random.SystemRandom()
        self._swapper = Swapper(
            store, clock=clock, actor=actor, layer=layer, patience=patience, dice=self._dice
        )

    # --- verbs that change the ledger -------------------------------------------------------

    def claim(
        self,
        resources: Sequence[Resource],
        *,
        scope: str = WHOLE,
        ttl: int | None = None,
        paths: tuple[str, ...] = (),
        reason: str | None = None,
        takeover: bool = False,
        reopen: bool = False,
        wait: int | None = None,
        on_wait: Callable[[LeaseHeld], None] = lambda _held: None,
    ) -> Answer:
        """Take every resource, or none. ``wait`` blocks for at most that many seconds.

        Raises LeaseHeld, WaitTimeout, PolicyRefused, and whatever the remote gives.
        """

        def operations() -> list[Operation]:
            return [
                Claim(
                    id=fresh_id(),
                    actor=self.actor,
                    resource=resource,
                    lease_id=fresh_id(),
                    scope=scope,
                    ttl=ttl,
                    default_ttl=self._default_ttl,
                    default_fits=self._ttl_is_default,
                    paths=paths,
                    reason=reason,
                    takeover=takeover,
                    reopen=reopen,
                )
                for resource in dict.fromkeys(resources)
            ]

        if wait is None:
            return self._change("claim", operations())
        return self._wait_for(operations, wait, on_wait)

    def renew(
        self,
        resources: Sequence[Resource] = (),
        *,
        scope: str | None = None,
        ttl: int | None = None,
    ) -> Answer:
        """Bump expiry; with no resource, everything of this session, in one push.

        Raises LeaseLost or NotHolder where nothing of what was named can be renewed.
        """
        wanted: list[Resource | None] = [*dict.fromkeys(resources)] or [None]
        operations = [
            Renew(id=fresh_id(), actor=self.actor, resource=r, scope=scope, ttl=ttl) for r in wanted
        ]
        answer = self._change("renew", operations, together=False)
        if answer.refused and not answer.leases:
            raise answer.refused[0]
        return answer

    def extend(self, resource: Resource, seconds: int, *, scope: str | None = None) -> Answer:
        """Stretch a lease to at least now + ``seconds``; capped to the policy's maximum."""
        op = Extend(
            id=fresh_id(), actor=self.actor, resource=resource, seconds=seconds, scope=scope
        )
        return self._change("extend", [op])

    def release(
        self, resources: Sequence[Resource], *, scope: str | None = None, note: str | None = None
    ) -> Answer:
        """Drop one's leases of these resources; all or none, and none at all is fine."""
        return self._change(
            "release",
            [
                Release(id=fresh_id(), actor=self.actor, resource=r, scope=scope, note=note)
                for r in dict.fromkeys(resources)
            ],
        )

    def complete(self, resource: Resource, *, scope: str | None = None) -> Answer:
        """Finish: the lease ends completed."""
        op = Complete(
            id=fresh_id(), actor=self.actor, resource=resource, lease_id=fresh_id(), scope=scope
        )
        return self._change("done", [op])

    def revoke(
        self,
        resource: Resource,
        *,
        reason: str,
        scope: str | None = None,
        expect_holder: str | None = None,
    ) -> Answer:
        """End someone else's lease; for the ledger's admins."""
        op = Revoke(
            id=fresh_id(),
            actor=self.actor,
            resource=resource,
            reason=reason,
            scope=scope,
            expect_holder=expect_holder,
        )
        return self._change("revoke", [op])

    def drop_record(self, file: str, *, reason: str) -> Answer:
        """Remove a record that cannot be read; for the ledger's admins."""
        return self._change(
            "revoke", [DropRecord(id=fresh_id(), actor=self.actor, file=file, reason=reason)]
        )

    def note(self, resource: Resource, text: str) -> Answer:
        """Leave a note for the next holder."""
        op = AddNote(id=fresh_id(), actor=self.actor, resource=resource, text=text)
        return self._change("note", [op], notes_of=[resource])

    def set_policy(self, changes: dict[str, str]) -> Answer:
        """Change the ledger's policy, making the ledger where there is none."""
        op = SetPolicy(id=fresh_id(), actor=self.actor, changes=tuple(changes.items()))
        return self._change("config", [op])

    # --- verbs that read --------------------------------------------------------------------

    def read(self, *, resource: Resource | None = None, cached: bool = False) -> Reading:
        """The leases of the ledger, or of one resource, as this actor sees them.

        ``cached`` answers from what this clone knows, and says how old that is. Raises Invalid
        when the one resource asked for has a damaged record.
        """
        head = self._head(cached=cached)
        if head is None or head.ledger is None:
            return Reading(warnings=self._warnings(head, cached))
        ledger = head.ledger
        leases = ledger.every_lease() if resource is None else ledger.leases_of(resource)
        damage = tuple(ledger.damage()) if resource is None else ()
        return Reading(
            leases=self._views(head, leases),
            notes=() if resource is None else ledger.notes(resource),
            damage=damage,
            policy=ledger.header.policy,
            ledger_id=ledger.header.ledger_id,
            revision=ledger.header.revision,
            warnings=self._warnings(head, cached) + self._told(head) + _of_damage(damage),
        )

    def log(
        self, *, resource: Resource | None = None, limit: int = 100, cached: bool = False
    ) -> Reading:
        """The audit trail, newest first; of one resource where one is named."""
        head = self._head(cached=cached)
        events = self.store.history(self.layer, 100_000 if resource else limit) if head else ()
        if resource is not None:
            wanted = resource.text.casefold()
            events = tuple(e for e in events if (e.resource or "").casefold() == wanted)[:limit]
        return Reading(events=events, warnings=self._warnings(head, cached))

    def confirm(self) -> Reading:
        """Accept the ledger that the remote has now; makes one where there is none."""
        head = self.store.confirm(self.layer)
        if head.ledger is None:
            self._change("init", [Barrier(id=fresh_id(), actor=self.actor)])
            head = self.store.known(self.layer) or head
        policy = head.ledger.header.policy if head.ledger else DEFAULT_POLICY
        return Reading(
            policy=policy,
            ledger_id=head.ledger.header.ledger_id if head.ledger else None,
            revision=head.ledger.header.revision if head.ledger else 0,
            warnings=self._warnings(head, False),
        )

    # --- how ----------------------------------------------------------------------------------

    def _change(
        self,
        what: str,
        operations: Sequence[Operation],
        *,
        together: bool = True,
        notes_of: Sequence[Resource] = (),
    ) -> Answer:
        said = self._settle_pending()
        known = self.store.known(self.layer)
        told = self._told(known)
        batch = [*operations, *self._acknowledged(known)]
        step = self._swapper.carry_out(batch, together=together, what=_named(what, operations))
        told += self._told(step.head) if step.head is not known else ()
        return self._answer(step, operations, said + told, notes_of)

    def _answer(
        self,
        step: Step,
        operations: Sequence[Operation],
        warnings: tuple[str, ...],
        notes_of: Sequence[Resource],
    ) -> Answer:
        ids = {op.id for op in operations}
        outcomes = [o for o in step.applied.outcomes if o.operation in ids]
        refused = [r for r in step.applied.results if isinstance(r, GitleaseError)]
        refused += [r for o in outcomes for r in o.refused]
        ledger = step.applied.ledger
        moment = Moment(now=self.clock.now(), seen=step.moment.seen)
        head = replace(step.head, ledger=ledger)
        for refusal in refused:
            refusal.views = self._views(head, refusal.conflicts, moment)
        leases = [lease for o in outcomes for lease in o.leases]
        named = [op.resource for op in operations if isinstance(op, Claim)] or list(notes_of)
        notes = tuple(n for r in dict.fromkeys(named) for n in ledger.notes(r))
        statuses = [o.status for o in outcomes]
        return Answer(
            status=_overall(statuses),
            leases=self._views(head, leases, moment),
            displaced=self._views(head, [x for o in outcomes for x in o.displaced], moment),
            notes=notes,
            refused=tuple(refused),
            capped_to_max=any(o.capped_to_max for o in outcomes),
            max_ttl_seconds=ledger.header.policy.ttl_max,
            changed=step.applied.changed,
            warnings=self.store.warnings + step.head.warnings + warnings,
        )

    def _wait_for(
        self,
        operations: Callable[[], list[Operation]],
        wait: int,
        on_wait: Callable[[LeaseHeld], None],
    ) -> Answer:
        began = self.clock.now()
        while True:
            try:
                return self._change("claim", operations())
            except LeaseHeld as held:
                waited = began.elapsed_at_most(self.clock.now()) / MS
                if waited >= wait:
                    timeout = WaitTimeout(
                        f"waited {wait}s: {held.message}",
                        resource=held.resource,
                        scope=held.scope,
                        conflicts=held.conflicts,
                        free_at=held.free_at,
                    )
                    timeout.views = held.views
                    raise timeout from None
                on_wait(held)
                self.clock.sleep(self._nap(held, waited, wait))

    def _nap(self, held: LeaseHeld, waited: float, wait: int) -> float:
        """Until it may be free, at most until the next look, and never past the end of the wait."""
        look = NOTICE_WITHIN if waited < 60 else NOTICE_LATER
        nap = look * self._dice.uniform(0.7, 1.3)
        if held.free_at is not None:
            until_free = (held.free_at - self.clock.now().wall_ms) / MS
            nap = min(nap, max(until_free, 0.0) + self._dice.uniform(0.05, 0.3))
        return max(0.05, min(nap, wait - waited))

    def _head(self, *, cached: bool) -> Snapshot | None:
        if cached:
            known = self.store.known(self.layer)
            if known is None:
                raise NotFound(
                    "this clone knows nothing of the ledger yet",
                    hints=("ask once without --cached",),
                )
            return known
        self._settle_pending()
        return self.store.fetch(self.layer)

    def _views(
        self, head: Snapshot, leases: Sequence[Lease], moment: Moment | None = None
    ) -> tuple[LeaseView, ...]:
        when = moment or Moment(now=self.clock.now(), seen=head.seen)
        policy = head.ledger.header.policy if head.ledger else DEFAULT_POLICY
        return tuple(
            view_lease(x, layer=head.layer, actor=self.actor, policy=policy, moment=when)
            for x in leases
        )

    def _warnings(self, head: Snapshot | None, cached: bool) -> tuple[str, ...]:
        said = self.store.warnings + (head.warnings if head else ())
        if cached and head is not None:
            age = head.received.elapsed_at_most(self.clock.now()) // MS
            said += (f"from what this clone knew {age}s ago",)
        return said

    def _told(self, head: Snapshot | None) -> tuple[str, ...]:
        """What happened to this holder's leases behind its back, said once in this clone."""
        notices = head.ledger.notices(self.actor.holder) if head and head.ledger else ()
        if not notices:
            return ()
        before = self.store.shown(self.layer, [n.id for n in notices])
        return tuple(_words(n) for n in notices if n.id not in before)

    def _acknowledged(self, head: Snapshot | None) -> list[Operation]:
        notices = head.ledger.notices(self.actor.holder) if head and head.ledger else ()
        if not notices:
            return []
        ids = tuple(n.id for n in notices)
        return [Acknowledge(id=fresh_id(), actor=self.actor, notices=ids)]

    def _settle_pending(self) -> tuple[str, ...]:
        """Find out about changes whose outcome an earlier command could not know."""
        waiting = list(self.store.pending(self.layer))
        if not waiting:
            return ()
        head, said = self.store.fetch(self.layer), []
        for pending in waiting:
            if self.store.settle(pending, head) is Fate.APPLIED:
                said.append(f"{pending.what}, whose outcome was not known, had reached the remote")
        return tuple(said)


def _named(what: str, operations: Sequence[Operation]) -> str:
    """What a change is, for messages: ``claim of F001 and 2 more``."""
    resources = [str(r) for op in operations if (r := getattr(op, "resource", None)) is not None]
    if not resources:
        return f"this {what}"
    more = f" and {len(resources) - 1} more" if len(resources) > 1 else ""
    return f"{what} of {resources[0]}{more}"


def _overall(statuses: Sequence[str]) -> str:
    """One word for several: what is rarest and matters most comes first."""
    for status in ("taken_over", "claimed"):
        if status in statuses:
            return status
    return statuses[0] if statuses else "renewed"


def _words(notice: Notice) -> str:
    done = "taken over" if notice.what == "taken_over" else notice.what
    scope = "" if notice.scope == WHOLE else f" (scope {notice.scope})"
    session = f", session {notice.session}" if notice.session else ""
    why = f': "{notice.reason}"' if notice.reason else ""
    return f"your lease of {notice.resource}{scope}{session} was {done} by {notice.by}{why}"


def _of_damage(damage: Sequence[Damage]) -> tuple[str, ...]:
    return tuple(f"{d.file} cannot be read: {d.problem}" for d in damage)
