"""A ledger in memory at the pace of a real host: each request moves the clock."""

from __future__ import annotations

from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.pace import RemotePace
from gitlease.kernel.rules.resources import parse_resource
from support.session import MemoryWorld


class PacedWorld(MemoryWorld):
    """A world whose remote takes so many seconds for a read, and so many for a push."""

    def __init__(self, *, read: float = 0.5, push: float = 1.2) -> None:
        super().__init__()
        self.read_takes, self.push_takes = read, push
        self.remote.during = self._pass_time

    def _pass_time(self, kind: str) -> None:
        self.clock.advance(self.push_takes if kind == "push" else self.read_takes)

    def claim(self, who: Actor, name: str) -> None:
        self.of(who).claim([parse_resource(name)])

    def pace(self, who: Actor) -> RemotePace:
        head = self.store(who).known("global")
        assert head is not None
        return head.pace
