"""The lease service: one method a verb, over whatever store it is given.

Words have been parsed by the time they come here, and nothing is printed: faces do both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from gitlease.answers import Answer, Reading, Terms, several
from gitlease.domain.duration import LONGEST
from gitlease.domain.edge import Progress, Task
from gitlease.domain.errors import Invalid, LeaseHeld
from gitlease.domain.frozen import replace
from gitlease.domain.lease import Actor, LeaseKey
from gitlease.domain.operations import (
    AddNote,
    Barrier,
    Claim,
    Complete,
    DropRecord,
    Extend,
    Grant,
    Pick,
    Release,
    Renew,
    Revoke,
    SetPolicy,
)
from gitlease.domain.resource import GLOBAL_LAYER, WHOLE, Resource
from gitlease.edges import Edges, Planned, changes_of
from gitlease.intents import COMPLETED, ENDED, HELD
from gitlease.polling import Lookout
from gitlease.ports import Clock, LedgerStore, Words
from gitlease.retirement import RetireSteps
from gitlease.sessions import SessionSteps
from gitlease.swapping import PATIENCE, fresh_id
from gitlease.waiting import Waiter
from gitlease.wishes import NO_TURN, Decider, ToBeFree, ToClaim, Turn


class LeaseService(SessionSteps, RetireSteps):
    """Claims and everything after, for one actor on one layer of one store."""

    def __init__(
        self,
        store: LedgerStore,
        *,
        clock: Clock,
        actor: Actor,
        layer: str = GLOBAL_LAYER,
        edges: Edges | None = None,
        words: Words | None = None,
        default_ttl: int = 900,
        ttl_is_default: bool = True,
        patience: float = PATIENCE,
        dice: random.Random | None = None,
    ) -> None:
        super().__init__(
            store,
            clock=clock,
            actor=actor,
            layer=layer,
            edges=edges,
            words=words,
            patience=patience,
            dice=dice,
        )
        self._default_ttl, self._ttl_is_default = default_ttl, ttl_is_default

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
        any_name: bool = False,
        commit: bool | None = None,
        wait: int | None = None,
        on_wait: Callable[[LeaseHeld], None] = lambda _held: None,
    ) -> Answer:
        """Take every resource, or none, and write the edge of each that is a task.

        ``wait`` blocks for at most that many seconds; ``any_name`` lets names pass that are no
        tasks; ``commit`` records the edges as a commit (None: as the settings say).
        Raises LeaseHeld, WaitTimeout, PolicyRefused, NotFound, Invalid, and what the remote gives.
        """
        terms = Terms(
            scope=scope,
            ttl=ttl,
            paths=paths,
            reason=reason,
            takeover=takeover,
            reopen=reopen,
            any_name=any_name,
            commit=commit,
        )
        return self._claim_when_free(resources, terms, lambda _task: None, wait, on_wait)

    def start(
        self,
        resource: Resource,
        *,
        terms: Terms,
        status: str | None = None,
        wait: int | None = None,
        on_wait: Callable[[LeaseHeld], None] = lambda _held: None,
    ) -> Answer:
        """Claim a task and set its status: ``status``, else the project's word for in progress."""

        def word(task: Task) -> str | None:
            under_way = task.progress is Progress.IN_PROGRESS
            return status or (None if under_way else self.edges.rules.word(Progress.IN_PROGRESS))

        self.mended(self.settle_first)
        self.edges.task(resource)
        return self._claim_when_free([resource], terms, word, wait, on_wait)

    def pick(
        self,
        planned: Sequence[Planned],
        terms: Terms,
        *,
        scopes: Mapping[Resource, str] | None = None,
        among: frozenset[str] = frozenset(),
        parked: frozenset[LeaseKey] = frozenset(),
    ) -> Answer:
        """Claim the first of these tasks that is free, whoever else picks. NothingLeft if none is.

        The plans have been checked; ``scopes`` has those of tasks that are resumed. Raises
        ParkedMeanwhile where the caller parked one ``among`` these names that is not in ``parked``.
        """
        known = scopes or {}
        asked = [replace(terms, scope=known.get(p.resource, terms.scope)) for p in planned]
        claims = tuple(self.claim_of(p, t) for p, t in zip(planned, asked, strict=True))
        op = Pick(id=fresh_id(), actor=self.actor, claims=claims, tasks=among, parked=parked)
        return self._together("next", [op], planned, goal=HELD, commit=terms.commit, checked=True)

    def set_status(self, resource: Resource, word: str, *, commit: bool | None = None) -> Answer:
        """Set a task's status, to one that neither claims nor finishes it.

        Raises LeaseHeld where the task is another's.
        """
        self.mended(self.settle_first)
        planned = self.edges.status_of(self.edges.task(resource), word)
        record = self.recorded(commit)
        self.edges.check([planned], commit=record)
        said = self.mended(lambda: self._allowed_to_end(planned))
        written = self.edges.files.write(changes_of([planned]), commit=record)
        problem = next((w.problem for w in written if w.problem), None)
        if problem is not None:
            raise Invalid(f"{written[0].change.file}: {problem}", resource=resource.text)
        return Answer(status="set", written=written, changed=bool(written), warnings=said)

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

    def beat(self, grants: Sequence[Grant]) -> Answer:
        """Renew exactly these grants, of whichever of the holder's sessions, in one push.

        Those that are lost, or cannot be judged, are among ``refused``.
        """
        op = Renew(id=fresh_id(), actor=self.actor, grants=tuple(grants))
        return self._change("heartbeat", [op], together=False)

    def extend(self, resource: Resource, seconds: int, *, scope: str | None = None) -> Answer:
        """Stretch a lease to at least now + ``seconds``; capped to the policy's maximum."""
        op = Extend(
            id=fresh_id(), actor=self.actor, resource=resource, seconds=seconds, scope=scope
        )
        return self._change("extend", [op])

    def release(
        self,
        resources: Sequence[Resource],
        *,
        scope: str | None = None,
        note: str | None = None,
        commit: bool | None = None,
    ) -> Answer:
        """Drop one's leases of these resources and retire one's edges; all or none.

        With nothing to drop it succeeds all the same.
        """
        wanted = several(resources)
        self.mended(self.settle_first)
        planned = self.edges.plan_end(wanted)
        operations = [
            Release(
                id=fresh_id(),
                actor=self.actor,
                resource=p.resource,
                scope=scope,
                note=note,
                assigned=p.others,
            )
            for p in planned
        ]
        return self._together("release", operations, planned, goal=ENDED, commit=commit)

    def complete(
        self,
        resource: Resource,
        *,
        scope: str | None = None,
        commit: bool | None = None,
        status: str | None = None,
    ) -> Answer:
        """Finish: the lease ends completed, one's edge goes, and the task's status is done.

        ``status`` is the word for it, where it is not the project's first. It stays as it is where
        only a scope is finished, or others still work on theirs.
        """
        self.mended(self.settle_first)
        whole = scope is None or scope == WHOLE
        word = (status or self.edges.rules.word(Progress.DONE)) if whole else None
        planned = self.edges.plan_end([resource], status=word)
        op = Complete(
            id=fresh_id(),
            actor=self.actor,
            resource=planned[0].resource,
            lease_id=fresh_id(),
            scope=scope,
            assigned=planned[0].others,
            held_only=self.edges.is_unknown(planned[0]),
        )
        answer = self._together("done", [op], planned, goal=COMPLETED, commit=commit)
        if planned[0].task is None or planned[0].task.is_done:
            return answer
        if any(w.change.edit.status for w in answer.written):
            return answer
        why = "others still work on it" if whole else f"only scope {scope} is finished"
        stays = f"the status in {planned[0].task.file} stays: {why}"
        return replace(answer, warnings=(*answer.warnings, stays))

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

    # --- lease and edge together ----------------------------------------------------------------

    def _claim_when_free(
        self,
        resources: Sequence[Resource],
        terms: Terms,
        status: Callable[[Task], str | None],
        wait: int | None,
        on_wait: Callable[[LeaseHeld], None],
    ) -> Answer:
        wanted = several(resources)
        self.mended(self.settle_first)

        def asked(turn: Turn) -> tuple[Sequence[Planned], Sequence[Claim]]:
            planned = self.edges.plan_claim(
                wanted,
                unknown_too=terms.any_name,
                takeover=terms.takeover,
                reopen=terms.reopen,
                commit=self.recorded(terms.commit),
                status=status,
            )
            return planned, [self.claim_of(p, terms, turn) for p in planned]

        def claim(turn: Turn) -> Answer:
            planned, claims = asked(turn)
            return self._together("claim", claims, planned, goal=HELD, commit=terms.commit)

        if wait is None:
            return claim(Turn())
        decider = Decider(asked, self._swapper, actor=self.actor, clock=self.clock)
        wish = ToClaim(decider, claim, resources=wanted, scope=terms.scope)
        return Waiter(self, wish, seconds=wait, dice=self._dice, on_wait=on_wait).get()

    def wait(
        self,
        resources: Sequence[Resource],
        *,
        scope: str = WHOLE,
        seconds: int | None = None,
        on_wait: Callable[[LeaseHeld], None] = lambda _held: None,
    ) -> Answer:
        """Return once a claim of all of these would be granted, and claim nothing.

        ``seconds`` is the limit (None: there is none). Raises WaitTimeout, and PolicyRefused for
        completed work, which no waiting makes free.
        """
        wanted, terms = several(resources), Terms(scope=scope, any_name=True)

        def asked(turn: Turn) -> tuple[Sequence[Planned], Sequence[Claim]]:
            planned = self.edges.plan_claim(wanted, unknown_too=True)
            return planned, [self.claim_of(p, terms, turn) for p in planned]

        decider = Decider(asked, self._swapper, actor=self.actor, clock=self.clock)
        wish = ToBeFree(decider, Lookout(self), resources=wanted, scope=scope)
        limit = LONGEST if seconds is None else seconds
        return Waiter(self, wish, seconds=limit, dice=self._dice, on_wait=on_wait).get()

    def claim_of(self, planned: Planned, terms: Terms, turn: Turn = NO_TURN) -> Claim:
        """The operation that claims one planned resource."""
        return Claim(
            id=fresh_id(),
            actor=self.actor,
            resource=planned.resource,
            lease_id=fresh_id(),
            scope=terms.scope,
            ttl=terms.ttl,
            default_ttl=self._default_ttl,
            default_fits=self._ttl_is_default,
            paths=tuple(dict.fromkeys((*terms.paths, *planned.paths))),
            reason=terms.reason,
            takeover=terms.takeover,
            reopen=terms.reopen,
            edge=planned.task is not None,
            assigned=planned.others,
            ticket=turn.ticket,
            passing=turn.passing,
        )
