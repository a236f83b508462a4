"""Requests that come with a key: how their operations are called, and which were carried out.

The id of each operation of such a request is made of its key and of a random part. By the key any
gateway finds in the ledger what another has done, or what an earlier life of its own did; by the
random part no try is taken for another one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from gitlease.core.frozen import replace
from gitlease.core.ledger import RingEntry
from gitlease.core.moves.operations import Acknowledge, Operation
from gitlease.engine.ports import LedgerStore, Snapshot
from gitlease.engine.transaction import fresh_id

EVENTS = 4_000  # of the past that are read when nothing is known of it
KEPT = 20_000  # keys
KEY = 20  # characters of an id that are its key, as many as a random id has
CLAIMED = frozenset({"claimed", "taken_over"})
RENEWED, EXTENDED = frozenset({"renewed"}), frozenset({"extended"})
RELEASED, COMPLETED = frozenset({"released"}), frozenset({"completed"})
OUTCOMES = CLAIMED | RENEWED | EXTENDED | RELEASED | COMPLETED


def keyed(operations: Sequence[Operation], key: str) -> list[Operation]:
    """Operations with ids that have the key of their request, but for what goes along with it."""
    return [
        x if isinstance(x, Acknowledge) else replace(x, id=key + fresh_id()) for x in operations
    ]


class KnownKeys:
    """The keys that a ledger's last decisions have, and what their requests came to."""

    def __init__(self, store: LedgerStore, layer: str) -> None:
        self._store, self._layer = store, layer
        self._ledger, self._last = "", RingEntry("", 0, "")
        self._outcomes: OrderedDict[str, str] = OrderedDict()

    def outcome(self, key: str) -> str | None:
        """What the request with this key came to; None where it is not known."""
        return self._outcomes.get(key)

    def learn(self, head: Snapshot) -> None:
        """Take in the keys up to a head. A past that was replaced is forgotten."""
        if head.ledger is None or not head.ledger.header.ring:
            return
        header = head.ledger.header
        ring, last = header.ring, self._last
        if header.ledger_id == self._ledger and ring[-1] == last:
            return
        if header.ledger_id != self._ledger or last not in ring:
            self._outcomes.clear()
            for event in reversed(self._store.history(self._layer, EVENTS)):
                self._keep(event.operation, event.kind)
            last = RingEntry("", 0, "")
        for entry in ring:
            if entry.revision > last.revision:
                self._keep(entry.operation, entry.outcome)
        self._ledger, self._last = header.ledger_id, ring[-1]

    def _keep(self, operation: str, outcome: str) -> None:
        if len(operation) == 2 * KEY and outcome in OUTCOMES:
            self._outcomes.setdefault(operation[:KEY], outcome)
            while len(self._outcomes) > KEPT:
                self._outcomes.popitem(last=False)
