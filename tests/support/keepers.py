"""Agents that keep their leases for an hour and more, under a clock that is moved by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.ledger.claim import claim
from gitlease.kernel.ledger.keeping import Keeper, holds_of
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.rules.loss import Lost
from gitlease.kernel.rules.resources import parse_resource
from gitlease.wiring.workspace import Workspace, open_workspace
from support.clock import ManualClock
from support.paced import PacedHost, Tally


class KeptAgent:
    """An agent with a session of its own that claims one name, and the keeper of its lease."""

    def __init__(self, clone: Path, name: str, ttl: int, clock: ManualClock) -> None:
        session = f"agent-{name}"
        place: Workspace = open_workspace(str(clone), session=session, clock=clock, environ={})

        def as_the_person(limit: float) -> LedgerSession:
            return place.again(no_session=True, time_limit=limit, patience=2 * limit).ledger

        self.lost: list[Lost] = []
        self.keeper = Keeper(as_the_person, clock=clock, dice=random.Random(session))
        answer = claim(place.ledger, [parse_resource(name)], ClaimOptions(ttl=ttl))
        self.keeper.add(holds_of(answer))
        self._ask()

    def beat(self) -> None:
        """Do what the threads of a heartbeat do at one instant."""
        self.lost += self.keeper.overdue()
        if batch := self.keeper.batch():
            self.lost += self.keeper.settle(self.keeper.renew(batch))
        self._ask()

    def _ask(self) -> None:
        wishes = self.keeper.wishes()
        if wishes is not None:
            self.keeper.ask(wishes)


class KeptAgents:
    """Agents of one clone, which begin one after the other.

    What they ask of the host moves the clock by the time that the host takes.
    """

    def __init__(self, host: PacedHost, clone: Path, who: str) -> None:
        self._host, self._clone, self._who = host, clone, who
        self._clock = ManualClock()
        self.agents: list[KeptAgent] = []

    def begin(self, many: int, ttl: int, *, apart: float = 20.0) -> Tally:
        """Have so many agents claim a name each, so many seconds apart."""
        before = self._host.tally(self._who)
        for number in range(many):
            self._spend(partial(self._begin, f"t{number}", ttl))
            self._let_pass(apart)
        return self._host.tally(self._who) - before

    def keep(
        self,
        seconds: float,
        *,
        meanwhile: Callable[[], object] = lambda: None,
        every: float = 60.0,
    ) -> Tally:
        """Let time pass, with every renewal that is due, and count what that costs this clone.

        ``meanwhile`` is what others do again and again.
        """
        before = self._host.tally(self._who)
        end = self._clock.boot_ms + seconds * 1_000
        while (left := (end - self._clock.boot_ms) / 1_000) > 0:
            meanwhile()
            self._let_pass(min(every, left))
        return self._host.tally(self._who) - before

    @property
    def lost(self) -> list[Lost]:
        """What any of them lost."""
        return [lost for agent in self.agents for lost in agent.lost]

    def _begin(self, name: str, ttl: int) -> None:
        self.agents.append(KeptAgent(self._clone, name, ttl, self._clock))

    def _let_pass(self, seconds: float) -> None:
        end = self._clock.boot_ms + seconds * 1_000
        while self._clock.boot_ms < end:
            waits = [agent.keeper.due_in() for agent in self.agents]
            left = (end - self._clock.boot_ms) / 1_000
            self._clock.advance(min([left, *(max(x, 0.001) for x in waits if x is not None)]))
            for agent in self.agents:
                self._spend(agent.beat)

    def _spend(self, act: Callable[[], object]) -> None:
        before = self._host.tally(self._who)
        act()
        cost = self._host.tally(self._who) - before
        self._clock.advance(self._host.seconds_of(cost))
