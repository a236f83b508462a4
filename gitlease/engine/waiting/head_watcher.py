"""Noticing cheaply when a ledger has moved.

A look asks for the version alone, and fetches only a new one. Between two looks this clone's own
state is watched, which costs no connection: news of another process of the clone wakes at once. So
does the end of a lease in another clone on this machine, if the system has a shared folder for the
user's runs.
"""

from __future__ import annotations

from gitlease.core.errors import Unavailable
from gitlease.core.instant import Instant
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import Snapshot

BETWEEN = 1.0  # seconds, at least, between two questions that another clone's word causes
GLANCE = 0.25  # seconds between two looks at this clone's own state
SHORTEST = 0.01


class HeadWatcher:
    """Watches one layer. ``head`` is the newest state that was seen."""

    def __init__(self, session: LedgerSession) -> None:
        self._store, self._layer, self._clock = session.store, session.layer, session.clock
        self.head: Snapshot | None = None
        self._mark = self._nearby = ""
        self._looked: Instant | None = None  # because another clone said so

    def refresh(self) -> Snapshot | None:
        """This clone's copy, without a connection."""
        self._mark = self._store.mark(self._layer)
        self._nearby = self._store.nearby(self._layer)
        known = self._store.known(self._layer)
        if known is not None or (self.head is not None and self.head.version):
            self.head = known
        return self.head

    def look(self) -> Snapshot:
        """The state of the remote now: one connection, and another if it has moved."""
        if self.refresh() is None:
            return self.fetch()
        version = self._store.peek([self._layer]).get(self._layer, "")
        if self.head is not None and self.head.version == version:
            return self.head
        return self.fetch()

    def fetch(self) -> Snapshot:
        """The state of the remote now, fetched in any case."""
        self.head = head = self._store.fetch(self._layer)
        return self.refresh() or head

    def nap(self, seconds: float) -> bool:
        """Let time pass; returns True early if this clone learns of another head.

        Asks the remote if another clone on this machine gives a hint of one.
        """
        began = self._clock.now()
        while (left := seconds - began.elapsed_at_most(self._clock.now()) / 1_000) > 0:
            self._clock.sleep(max(SHORTEST, min(GLANCE, left)))
            told = self._may_ask() and self._store.nearby(self._layer) != self._nearby
            if told or self._store.mark(self._layer) != self._mark:
                before = self.head.version if self.head else None
                head = self._told() if told else self.refresh()
                if head is not None and head.version != before:
                    return True
        return False

    def _may_ask(self) -> bool:
        # Many ends in a row must not cause as many questions.
        looked = self._looked
        return looked is None or looked.elapsed_at_most(self._clock.now()) >= BETWEEN * 1_000

    def _told(self) -> Snapshot | None:
        self._looked = self._clock.now()
        try:
            return self.look()
        except Unavailable:  # the next look in turn says so
            return self.refresh()
