"""What may be waited for: that a claim is granted, or only that it would be."""

from __future__ import annotations

from collections.abc import Callable

from gitlease.core.errors import GitleaseError, HeadGone, LeaseHeld
from gitlease.core.resources.resource import Resource
from gitlease.engine.answers import Answer, Turn
from gitlease.engine.claim import ClaimPlan
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.notices import told_by
from gitlease.engine.ports import Snapshot
from gitlease.engine.waiting.head_watcher import HeadWatcher


class WaitCondition:
    """That a planned claim is granted; without ``claim``, that it would be.

    ``in_line``: the wait has a place in line, behind those who came earlier.
    """

    def __init__(
        self,
        session: LedgerSession,
        plan: ClaimPlan,
        claim: Callable[[Turn], Answer] | None = None,
    ) -> None:
        self._transaction, self._plan, self._claim = session.transaction, plan, claim
        self._store, self._watcher = session.store, HeadWatcher(session)
        self.in_line = claim is not None

    def paths(self, resource: Resource) -> tuple[str, ...]:
        """The paths that the claim of a resource covers, as it was planned last."""
        return self._plan.paths.get(resource, ())

    def refusal(self, head: Snapshot, turn: Turn) -> LeaseHeld | None:
        """The refusal of a claim in this state; None if an attempt is worth it."""
        try:
            self._decide(head, turn)
        except LeaseHeld as held:
            return held
        except GitleaseError:  # what waiting does not change is left for an attempt to say
            return None
        return None

    def attempt(self, turn: Turn, *, looked: bool) -> Answer:
        """Get it, or raise LeaseHeld from fresh knowledge.

        ``looked``: this clone's copy is fresh already.
        """
        if self._claim is not None:
            return self._claim(turn)
        known = self._watcher.refresh()
        head = known if looked and known is not None else self._watcher.look()
        said = told_by(self._store, head)
        try:
            said = self._free(head, turn).warnings + said
        except GitleaseError as refusal:
            refusal.warnings += said
            raise
        return Answer(status="free", changed=False, warnings=said)

    def _free(self, head: Snapshot, turn: Turn) -> Snapshot:
        try:
            return self._granted(head, turn)
        except HeadGone:
            return self._granted(self._watcher.fetch(), turn)

    def _granted(self, head: Snapshot, turn: Turn) -> Snapshot:
        while True:
            try:
                self._decide(head, turn)
            except LeaseHeld as held:
                if (further := self._plan.turn_after(held, turn)) is not None:
                    turn = further
                elif not self._plan.again(held):
                    raise
            else:
                return head

    def _decide(self, head: Snapshot, turn: Turn) -> None:
        self._transaction.decided(head, self._plan.operations(turn)[0])
