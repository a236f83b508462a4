"""The lease service: one method a verb, over whatever store it is given.

Words have been parsed by the time they come here, and nothing is printed: faces do both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from gitlease.answers import Answer, Reading, named, overall, several
from gitlease.domain.errors import GitleaseError, Invalid, LeaseHeld
from gitlease.domain.lapse import Moment
from gitlease.domain.lease import Actor
from gitlease.domain.ledger import Note
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
from gitlease.domain.resource import WHOLE, Resource
from gitlease.ports import Clock, LedgerStore, Snapshot
from gitlease.reading import LeaseReader
from gitlease.swapping import PATIENCE, Step, Swapper, fresh_id
from gitlease.waiting import wait_until_free


class LeaseService(LeaseReader):
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
        super().__init__(store, clock=clock, actor=actor, layer=layer)
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

        wanted = several(resources)

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
                for resource in wanted
            ]

        if wait is None:
            return self._change("claim", operations())
        return wait_until_free(
            lambda: self._change("claim", operations()),
            seconds=wait,
            clock=self.clock,
            dice=self._dice,
            on_wait=on_wait,
        )

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
        wanted: list[Resource | None] = [*several(resources)] or [None]
        operations = [
            Renew(id=fresh_id(), actor=self.actor, resource=r, scope=scope, ttl=ttl) for r in wanted
        ]
        answer = self._change("renew", operations, together=False)
        if answer.refused and not answer.leases:
            answer.refused[0].warnings = answer.warnings
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
                for r in several(resources)
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

    def confirm(self) -> Reading:
        """Accept the ledger that the remote has now; makes one where there is none."""
        head = self.store.confirm(self.layer)
        if head.ledger is None:
            self._change("init", [Barrier(id=fresh_id(), actor=self.actor)])
            head = self.store.known(self.layer) or head
        warnings = self._warnings(head, False)
        if head.ledger is None:
            return Reading(warnings=warnings)
        header = head.ledger.header
        return Reading(
            policy=header.policy,
            ledger_id=header.ledger_id,
            revision=header.revision,
            warnings=warnings,
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
        return self.mended(
            lambda: self._carry_out(what, operations, together=together, notes_of=notes_of)
        )

    def _carry_out(
        self,
        what: str,
        operations: Sequence[Operation],
        *,
        together: bool,
        notes_of: Sequence[Resource],
    ) -> Answer:
        said = self._settle_pending()
        known = self.store.known(self.layer)
        said += self._told(known)
        batch = [*operations, *self._acknowledged(known)]
        try:
            step = self._swapper.carry_out(batch, together=together, what=named(what, operations))
        except GitleaseError as refusal:
            said += self._told(self.store.known(self.layer))
            refusal.warnings = self.store.warnings + said
            raise
        return self._answer(step, operations, said + self._told(step.head), notes_of)

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
        moment = Moment(now=self.clock.now(), seen=step.head.seen)
        head = replace(step.head, ledger=ledger)
        for refusal in refused:
            refusal.views = self._views(head, refusal.conflicts, moment)
        leases = [lease for o in outcomes for lease in o.leases]
        named = [op.resource for op in operations if isinstance(op, Claim)] or list(notes_of)
        notes: list[Note] = []
        for resource in dict.fromkeys(named):
            try:
                notes += ledger.notes(resource)
            except Invalid as damage:  # what was done is done, and must be said
                warnings += (damage.message,)
        statuses = [o.status for o in outcomes]
        return Answer(
            status=overall(statuses),
            leases=self._views(head, leases, moment),
            displaced=self._views(head, [x for o in outcomes for x in o.displaced], moment),
            notes=tuple(notes),
            refused=tuple(refused),
            capped_to_max=any(o.capped_to_max for o in outcomes),
            max_ttl_seconds=ledger.header.policy.ttl_max,
            changed=step.applied.changed,
            warnings=self.store.warnings + step.head.warnings + warnings,
        )

    def _acknowledged(self, head: Snapshot | None) -> list[Operation]:
        notices = head.ledger.notices(self.actor.holder) if head and head.ledger else ()
        if not notices:
            return []
        ids = tuple(n.id for n in notices)
        return [Acknowledge(id=fresh_id(), actor=self.actor, notices=ids)]
