"""A stage for many actors in virtual time: each in a thread, of which one at a time runs.

Whoever sleeps lets others play until its time has come; what happens depends on nothing but the
script, so every run is the same.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from gitlease.kernel.rules.instant import MS, Instant

NOON = 1_795_176_000_000
LONGEST = 30.0  # seconds of real time for which one actor may play on


class Killed(BaseException):
    """The actor is dead: nothing that it still does reaches anybody."""


@dataclass
class Actor:
    """One who plays. ``dies_at`` is in virtual seconds."""

    name: str
    play: Callable[[], None]
    dies_at: float | None = None
    cue: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    failure: BaseException | None = None


class Stage:
    """See the module's docstring. ``true`` is the time in seconds, also the clock of everybody.

    ``asleep`` has machines that do not run from one time to another.
    """

    def __init__(self) -> None:
        self.true = 0.0
        self.asleep: dict[str, tuple[float, float]] = {}
        self.current: Actor | None = None
        self._next: list[tuple[float, int, Actor]] = []
        self._numbers = itertools.count()
        self._over = threading.Semaphore(0)

    def enter(self, actor: Actor, *, at: float = 0.0) -> None:
        """Let an actor begin at a time."""
        threading.Thread(target=self._plays, args=(actor,), daemon=True).start()
        self._wait_for(actor, at)

    def run(self) -> None:
        """Play until nobody has anything left to do; what an actor raised is raised."""
        while self._next:
            self.true, _, actor = heapq.heappop(self._next)
            self.current = actor
            actor.cue.release()
            assert self._over.acquire(timeout=LONGEST), f"{actor.name} does not stop"
            if actor.failure is not None:
                raise actor.failure
        self.current = None

    def now(self) -> Instant:
        ms = round(self.true * MS)
        return Instant(wall_ms=NOON + ms, boot_ms=1_000_000 + ms, boot_id="boot-1")

    def sleep(self, seconds: float) -> None:
        actor = self.current
        assert actor is not None
        self.alive()
        self._wait_for(actor, self.true + max(seconds, 0.0))
        self._over.release()
        actor.cue.acquire()
        self.alive()

    def alive(self) -> None:
        """Raise Killed where the present actor is dead."""
        actor = self.current
        if actor is not None and actor.dies_at is not None and self.true >= actor.dies_at:
            raise Killed(actor.name)

    def _wait_for(self, actor: Actor, at: float) -> None:
        start, end = self.asleep.get(actor.name, (0.0, 0.0))
        at = end if start <= at < end else at
        heapq.heappush(self._next, (at, next(self._numbers), actor))

    def _plays(self, actor: Actor) -> None:
        actor.cue.acquire()
        try:
            actor.play()
        except Killed:
            pass
        except BaseException as error:
            actor.failure = error
        finally:
            self._over.release()
