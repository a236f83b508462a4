"""Watching: events of leases, reported as they become known.

The remote is looked at often while something happens and less often while nothing does; a lapse is
reported at its instant, but only after a look whether there is a renewal. What came and went
between two looks is reported from the ledger's history, in its order and with its times. A remote
that cannot be reached for a while is waited for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Literal

from gitlease.core.errors import GitleaseError, HeadGone, Unavailable
from gitlease.core.frozen import dataclass, replace
from gitlease.core.instant import LONGEST, MS, Instant, moment_of
from gitlease.core.lease import State
from gitlease.core.moves.operations import Event
from gitlease.core.view import LeaseView, view_lease
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import Snapshot
from gitlease.engine.waiting.events import (
    Happening,
    Part,
    Scene,
    WatchKind,
    assignments_between,
    events_between,
    next_lapse,
)
from gitlease.engine.waiting.head_watcher import HeadWatcher

LOOK = 7.0  # seconds between looks in the first minute, and while something happens
LOOK_MOST = 30.0
SLOWER = 1.3
MINUTE = 60.0
MOST_STEPS = 2_000  # between two looks that are told one by one
Kind = Literal[
    "claimed",
    "renewed",
    "parked",
    "released",
    "completed",
    "lapsed",
    "taken_over",
    "revoked",
    "available",
    "assigned",
]
ENDED = {WatchKind.RELEASED: State.RELEASED, WatchKind.REVOKED: State.REVOKED}


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """Something that happened to a lease, or that made a resource available.

    ``kind`` is ``claimed``, ``renewed``, ``parked``, ``released``, ``completed``, ``lapsed``,
    ``taken_over``, ``revoked``, ``available`` or ``assigned``. ``lease`` is the lease it is about,
    as it is or last was, with its ``holder``, ``session`` and ``token``; what is available is
    nobody's.
    """

    kind: Kind
    resource: str
    scope: str
    layer: str
    at: datetime
    holder: str | None = None
    session: str | None = None
    token: int | None = None
    lease: LeaseView | None = None


class Watcher:
    """Watches some parts of a layer, or all of it, for one session.

    ``assignments``: only what is newly assigned to the session's holder, wherever it was claimed.
    ``on_trouble`` is called once when the remote stops answering; ``on_begin`` gets the first state
    seen, after which nothing is missed. ``trouble`` is the error while the remote is unreachable.
    """

    def __init__(
        self,
        session: LedgerSession,
        parts: Sequence[Part] = (),
        *,
        assignments: bool = False,
        dice: random.Random | None = None,
        on_trouble: Callable[[GitleaseError], None] = lambda _error: None,
        on_begin: Callable[[Snapshot], None] = lambda _head: None,
    ) -> None:
        self._session, self._parts, self._clock = session, tuple(parts), session.clock
        self._dice = dice or random.SystemRandom()
        self._on_trouble, self._on_begin = on_trouble, on_begin
        self._assignments = assignments
        self._watcher = HeadWatcher(session)
        self._look = LOOK
        self._looked: Instant = session.clock.now()
        self.trouble: GitleaseError | None = None
        self._head: Snapshot | None = None

    def events(self, *, seconds: int | None = None) -> Iterator[WatchEvent]:
        """Events from now on, for at most ``seconds``; without a limit it never ends.

        Raises any error of the first look at the remote, and later those that are not Unavailable.
        """
        began = self._looked = self._clock.now()
        head = self._head = self._watcher.fetch()
        scene = self._scene(head)
        self._on_begin(head)
        limit = LONGEST if seconds is None else seconds
        while (left := limit - self._seconds_since(began)) > 0:
            woken = self._nap(scene, left)
            if not woken and self._seconds_since(began) >= limit:
                return
            before = scene
            try:
                happened, scene = self._compared(before, woken=woken)
            except Unavailable as error:
                self._slow_down()
                if self.trouble is None:
                    self._on_trouble(error)
                self.trouble = error
                continue
            self.trouble = None
            if happened:
                self._look = LOOK
            elif not woken and self._seconds_since(began) > MINUTE:
                self._slow_down()
            yield from (self._told(x, scene) for x in happened)

    def _nap(self, scene: Scene, left: float) -> bool:
        """Sleep until the next look, a lapse, or the end; True when another process knows more."""
        look = self._look * self._dice.uniform(0.7, 1.0) - self._seconds_since(self._looked)
        wait = min(left, look, self._until_lapse(scene))
        return self._watcher.nap(max(0.05, wait))

    def _compared(self, before: Scene, *, woken: bool) -> tuple[list[Happening], Scene]:
        if not woken:
            self._looked = self._clock.now()
            self._watcher.look()
        old, new = self._head, self._watcher.refresh() or self._watcher.fetch()
        self._head, after = new, self._scene(new)
        try:
            return self._on_the_way(before, after, old, new), after
        except HeadGone:  # nothing can be compared any more with what this clone has lost
            self._head = self._watcher.fetch()
            return [], self._scene(self._head)

    def _on_the_way(
        self, before: Scene, after: Scene, old: Snapshot | None, new: Snapshot
    ) -> list[Happening]:
        """What happened in each step from one state to the other, oldest first.

        The clock is looked at only with the last: till then what was live at the last look is.
        """
        moved = old is not None and old.version != new.version
        steps = self._session.store.steps(old, new, MOST_STEPS) if old and moved else ()
        found, said = list[Happening](), steps[-1].events if steps else ()
        for step in steps[:-1]:
            then = Scene(step.ledger, before.moment)
            found += self._between(before, then, step.events)
            before = then
        return found + self._between(before, after, said)

    def _between(self, before: Scene, after: Scene, said: Sequence[Event]) -> list[Happening]:
        if self._assignments:
            return assignments_between(before, after, holder=self._session.actor.holder)
        return events_between(before, after, self._parts, said)

    def _until_lapse(self, scene: Scene) -> float:
        """Seconds until the next lease lapses; while the remote is away it would not be told."""
        lapse = None if self.trouble else next_lapse(scene, self._parts)
        if lapse is None:
            return float(LONGEST)
        wait = (lapse - self._clock.now().wall_ms) / MS
        # In the past: the clocks disagree, and looking more often does not help.
        return wait + 0.01 if wait >= 0 else float(LONGEST)

    def _slow_down(self) -> None:
        self._look = min(LOOK_MOST, self._look * SLOWER)

    def _scene(self, head: Snapshot) -> Scene:
        return Scene(head.ledger, self._session.moment(head))

    def _told(self, happening: Happening, scene: Scene) -> WatchEvent:
        lease, session, view = happening.lease, self._session, None
        if lease is not None:
            view = view_lease(
                replace(lease, state=ENDED.get(happening.kind, lease.state)),
                layer=session.layer,
                actor=session.actor,
                policy=scene.policy,
                moment=scene.moment,
            )
        return WatchEvent(
            kind=happening.kind.value,
            resource=happening.resource.text,
            scope=happening.scope,
            layer=session.layer,
            at=moment_of(happening.at),
            holder=view.holder if view else None,
            session=view.session if view else None,
            token=view.token if view else None,
            lease=view,
        )

    def _seconds_since(self, then: Instant) -> float:
        return then.elapsed_at_most(self._clock.now()) / MS
