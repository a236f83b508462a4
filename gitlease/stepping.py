"""Steps of the ledger, and the task files that go with them: the machinery below the verbs."""

from __future__ import annotations

import random
from collections.abc import Sequence

from gitlease.answers import Answer, named, overall
from gitlease.domain.errors import GitleaseError, Invalid, LeaseHeld
from gitlease.domain.frozen import replace
from gitlease.domain.lapse import Moment
from gitlease.domain.lease import Actor
from gitlease.domain.ledger import Note
from gitlease.domain.operations import Acknowledge, Claim, Operation, Pick, Release
from gitlease.domain.resource import Resource
from gitlease.domain.transitions import apply
from gitlease.edges import Edges, Planned, says_so
from gitlease.intents import decided, edge_word, left_to_others, matched
from gitlease.notices import is_to
from gitlease.ports import Clock, LedgerStore, Snapshot, Words
from gitlease.reading import LeaseReader
from gitlease.swapping import PATIENCE, Step, Swapper, fresh_id, with_views


class LeaseSteps(LeaseReader):
    """Carries operations out, each with its edges, and says what they came to."""

    def __init__(
        self,
        store: LedgerStore,
        *,
        clock: Clock,
        actor: Actor,
        layer: str,
        edges: Edges | None = None,
        words: Words | None = None,
        patience: float = PATIENCE,
        dice: random.Random | None = None,
    ) -> None:
        super().__init__(store, clock=clock, actor=actor, layer=layer, edges=edges, words=words)
        self._dice = dice or random.SystemRandom()
        self._said: tuple[str, ...] = ()
        self._swapper = Swapper(
            store, clock=clock, actor=actor, layer=layer, patience=patience, dice=self._dice
        )

    def _together(
        self,
        what: str,
        operations: Sequence[Operation],
        planned: Sequence[Planned],
        *,
        goal: str,
        commit: bool | None,
        checked: bool = False,
    ) -> Answer:
        """A step of the ledger and what it means for the task files: both, or none.

        ``planned`` has the plan of each operation; a Pick has those of all its claims, and the end
        of a session those of all its leases.
        """
        record = self.recorded(commit)
        if not checked:
            self.edges.check(planned, commit=record)
        ids = [op.id for op in operations]
        intent = self.intents.begin(planned, goal=goal, operations=ids, commit=record)
        try:
            step, said = self._stepped(what, operations)
        except GitleaseError as refusal:
            if not self._may_land(ids):
                self.intents.forget(intent)
            if isinstance(refusal, LeaseHeld) and refusal.holder and not refusal.conflicts:
                refusal.hints += says_so(planned, refusal.resource)
            raise
        outcomes = {o.operation: o for o in step.applied.outcomes}
        final = [
            decided(plan, op, outcomes[op.id], step.applied.ledger, self.edges.rules.people)
            for op, plan in matched(operations, planned, outcomes)
        ]
        written, unwritten = self.intents.fulfil(intent, final, commit=record)
        answer = self._answer(step, operations, said + unwritten, ())
        return replace(
            answer,
            edge=edge_word(final, written),
            written=written,
            warnings=answer.warnings + left_to_others(final, outcomes.values()),
        )

    def _allowed_to_end(self, planned: Planned) -> tuple[str, ...]:
        """Raise LeaseHeld where a release would be refused: what another has is left alone."""
        ask = Release(
            id=fresh_id(), actor=self.actor, resource=planned.resource, assigned=planned.others
        )
        head, said = self._head(cached=False)
        moment = Moment(now=self.clock.now(), seen=head.seen)
        try:
            apply(self._swapper.ledger_of(head), [ask], moment)
        except GitleaseError as refusal:
            raise with_views(refusal, head, self.actor, moment) from None
        return said + self._told(head)

    def _may_land(self, operations: Sequence[str]) -> bool:
        """Whether a step that failed may be found in the ledger later."""
        return any(
            set(operations) & set(pending.operations) for pending in self.store.pending(self.layer)
        )

    def recorded(self, commit: bool | None) -> bool:
        """Whether edges are recorded as a commit: as asked, else as the settings say."""
        return self.edges.rules.commit if commit is None else commit

    def settle_first(self) -> None:
        """Finish what earlier commands left half done, before anything is planned on it.

        What is to be said of it comes with the answer of the step that follows.
        """
        self._said += self._settle_pending() + self._repair_edges()

    # --- how ----------------------------------------------------------------------------------

    def _change(
        self,
        what: str,
        operations: Sequence[Operation],
        *,
        together: bool = True,
        notes_of: Sequence[Resource] = (),
    ) -> Answer:
        step, said = self._stepped(what, operations, together=together)
        return self._answer(step, operations, said, notes_of)

    def _stepped(
        self, what: str, operations: Sequence[Operation], *, together: bool = True
    ) -> tuple[Step, tuple[str, ...]]:
        return self.mended(lambda: self._carry_out(what, operations, together=together))

    def _carry_out(
        self, what: str, operations: Sequence[Operation], *, together: bool
    ) -> tuple[Step, tuple[str, ...]]:
        self.settle_first()
        said, self._said = self._said, ()
        known = self.store.known(self.layer)
        said += self._told(known)
        batch = [*operations, *self._acknowledged(known)]
        try:
            step = self._swapper.carry_out(batch, together=together, what=named(what, operations))
        except GitleaseError as refusal:
            said += self._told(self.store.known(self.layer))
            refusal.warnings = self.store.warnings + said
            raise
        return step, said + self._told(step.head)

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
        noted = list(notes_of)
        for op, outcome in zip(operations, outcomes, strict=False):
            if isinstance(op, Claim | Pick):
                noted += [lease.resource for lease in outcome.leases]
        notes: list[Note] = []
        for resource in dict.fromkeys(noted):
            try:
                notes += ledger.notes(resource)
            except Invalid as damage:  # what was done is done, and must be said
                warnings += (damage.message,)
        statuses = [o.status for o in outcomes]
        return Answer(
            status=overall(statuses),
            leases=self._views(head, leases, moment),
            displaced=self._views(head, [x for o in outcomes for x in o.displaced], moment),
            unassigned=tuple(name for o in outcomes for name in o.unassigned),
            notes=tuple(notes),
            refused=tuple(refused),
            capped_to_max=any(o.capped_to_max for o in outcomes),
            max_ttl_seconds=ledger.header.policy.ttl_max,
            max_park_seconds=ledger.header.policy.park_max,
            changed=step.applied.changed,
            at=step.moment.now if step.applied.changed else None,
            warnings=self.store.warnings + step.head.warnings + warnings,
        )

    def _acknowledged(self, head: Snapshot | None) -> list[Operation]:
        notices = head.ledger.notices(self.actor.holder) if head and head.ledger else ()
        ids = tuple(n.id for n in notices if is_to(n, self.actor))
        if not ids:
            return []
        return [Acknowledge(id=fresh_id(), actor=self.actor, notices=ids)]
