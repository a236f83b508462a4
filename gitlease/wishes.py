"""What may be waited for: that a claim is granted, or only that it would be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gitlease.answers import Answer
from gitlease.domain.errors import CacheDamaged, GitleaseError, LeaseHeld
from gitlease.domain.frozen import dataclass
from gitlease.domain.lapse import Moment
from gitlease.domain.lease import Actor
from gitlease.domain.operations import Claim
from gitlease.domain.resource import Resource
from gitlease.domain.transitions import apply
from gitlease.edges import Planned
from gitlease.polling import Lookout
from gitlease.ports import Clock, Snapshot
from gitlease.swapping import Swapper, with_views


@dataclass(frozen=True, slots=True)
class Turn:
    """How a claim stands in line: its ticket, and how many who wait longer it may pass over.

    Without a number it does not stand in line at all.
    """

    ticket: str | None = None
    passing: int | None = None


NO_TURN = Turn()


class Wish(Protocol):
    """What is waited for; ``in_line``: those who wait for the same are let go first."""

    resources: Sequence[Resource]
    scope: str
    in_line: bool

    def refusal(self, head: Snapshot, turn: Turn) -> LeaseHeld | None:
        """What stands in the way in this state; None where an attempt is worth it."""

    def attempt(self, turn: Turn, *, looked: bool) -> Answer:
        """Have it, or raise LeaseHeld from fresh knowledge.

        ``looked``: what this clone knows is fresh already.
        """


Asked = Callable[[Turn], tuple[Sequence[Planned], Sequence[Claim]]]
"""Plans a claim on the task files as they are now."""


class Decider:
    """Decides claims on a known state, and carries nothing out."""

    def __init__(self, asked: Asked, swapper: Swapper, *, actor: Actor, clock: Clock) -> None:
        self._asked, self._swapper = asked, swapper
        self._actor, self._clock = actor, clock

    def decide(self, head: Snapshot, turn: Turn) -> None:
        """Raise whatever refusal the claim would get in this state."""
        _, claims = self._asked(turn)
        moment = Moment(now=self._clock.now(), seen=head.seen)
        try:
            apply(self._swapper.ledger_of(head), claims, moment)
        except GitleaseError as refusal:
            raise with_views(refusal, head, self._actor, moment) from None

    def refusal(self, head: Snapshot, turn: Turn) -> LeaseHeld | None:
        """What stands in the way; what waiting does not change is left for an attempt to say."""
        try:
            self.decide(head, turn)
        except LeaseHeld as held:
            return held
        except CacheDamaged:
            raise
        except GitleaseError:
            return None
        return None


class ToClaim:
    """That a claim is granted."""

    in_line = True

    def __init__(
        self,
        decider: Decider,
        claim: Callable[[Turn], Answer],
        *,
        resources: Sequence[Resource],
        scope: str,
    ) -> None:
        self.resources, self.scope = resources, scope
        self._claim = claim
        self.refusal = decider.refusal

    def attempt(self, turn: Turn, *, looked: bool) -> Answer:
        return self._claim(turn)


class ToBeFree:
    """That a claim would be granted: nothing is claimed, and nobody stands in line for it."""

    in_line = False

    def __init__(
        self, decider: Decider, lookout: Lookout, *, resources: Sequence[Resource], scope: str
    ) -> None:
        self.resources, self.scope = resources, scope
        self._decider, self._lookout = decider, lookout
        self.refusal = decider.refusal

    def attempt(self, turn: Turn, *, looked: bool) -> Answer:
        known = self._lookout.refresh()
        head = known if looked and known is not None else self._lookout.look()
        self._decider.decide(head, Turn())
        return Answer(status="free", changed=False, warnings=head.warnings)
