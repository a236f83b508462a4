"""What may be waited for: that a claim is granted, or only that it would be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gitlease.core.errors import GitleaseError, HeadGone, LeaseHeld
from gitlease.core.moves.operations import Claim
from gitlease.engine.answers import NO_TURN, Answer, Turn
from gitlease.engine.edges import Planned
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import Snapshot
from gitlease.engine.waiting.head_watcher import HeadWatcher


class WaitCondition(Protocol):
    """What is waited for; ``in_line``: those who wait for the same are let go first."""

    in_line: bool

    def refusal(self, head: Snapshot, turn: Turn) -> LeaseHeld | None:
        """What stands in the way in this state; None where an attempt is worth it."""

    def attempt(self, turn: Turn, *, looked: bool) -> Answer:
        """Have it, or raise LeaseHeld from fresh knowledge.

        ``looked``: what this clone knows is fresh already.
        """


Asked = Callable[[Turn], tuple[Sequence[Claim], Sequence[Planned]]]
"""Plans a claim on the task files as they are now."""


class Decider:
    """Decides claims on a known state, and carries nothing out."""

    def __init__(self, session: LedgerSession, asked: Asked) -> None:
        self._transaction, self._asked = session.transaction, asked

    def decide(self, head: Snapshot, turn: Turn) -> None:
        """Raise whatever refusal the claim would get in this state."""
        self._transaction.decided(head, self._asked(turn)[0])

    def refusal(self, head: Snapshot, turn: Turn) -> LeaseHeld | None:
        """What stands in the way; what waiting does not change is left for an attempt to say."""
        try:
            self.decide(head, turn)
        except LeaseHeld as held:
            return held
        except GitleaseError:
            return None
        return None


class ToClaim:
    """That a claim is granted."""

    in_line = True

    def __init__(self, decider: Decider, claim: Callable[[Turn], Answer]) -> None:
        self.refusal, self._claim = decider.refusal, claim

    def attempt(self, turn: Turn, *, looked: bool) -> Answer:
        return self._claim(turn)


class ToBeFree:
    """That a claim would be granted: nothing is claimed, and nobody stands in line for it."""

    in_line = False

    def __init__(self, decider: Decider, watcher: HeadWatcher) -> None:
        self.refusal, self._decider, self._watcher = decider.refusal, decider, watcher

    def attempt(self, turn: Turn, *, looked: bool) -> Answer:
        known = self._watcher.refresh()
        head = known if looked and known is not None else self._watcher.look()
        try:
            self._decider.decide(head, NO_TURN)
        except HeadGone:
            head = self._watcher.fetch()
            self._decider.decide(head, NO_TURN)
        return Answer(status="free", changed=False, warnings=head.warnings)
