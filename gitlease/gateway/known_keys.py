"""Idempotency keys: the ids of keyed operations, and the keys that the ledger has seen.

The id of a keyed operation is the request's key and a random part. By the key any gateway finds in
the ledger what it, or another, has done before; the random part keeps attempts apart. A key counts
only where history shows what was done under it, in the name of the request's own holder: whoever
else may push can guess a key, and write its id, but change nothing as that holder. A renewal that
history no longer shows is simply made again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from gitlease.core.frozen import replace
from gitlease.core.lease import same_person
from gitlease.core.ledger import RingEntry
from gitlease.core.moves.operations import Acknowledge, Event, Operation
from gitlease.engine.ports import LedgerStore, Snapshot
from gitlease.engine.transaction import fresh_id

EVENTS = 4_000  # of history, read at first
KEPT = 20_000  # keys
KEY = 20  # characters of an id that are its key; a random id has as many
CLAIMED = frozenset({"claimed", "taken_over"})
RENEWED, EXTENDED = frozenset({"renewed"}), frozenset({"extended"})
RELEASED, COMPLETED = frozenset({"released"}), frozenset({"completed"})
OUTCOMES = CLAIMED | RENEWED | EXTENDED | RELEASED | COMPLETED


def keyed(operations: Sequence[Operation], key: str) -> list[Operation]:
    """The operations with ids that begin with a key, except acknowledgements."""
    return [
        x if isinstance(x, Acknowledge) else replace(x, id=key + fresh_id()) for x in operations
    ]


def events_under(key: str, holder: str, store: LedgerStore, layer: str) -> list[Event]:
    """What a holder's request with this key did, newest first, as far as history shows it."""
    past = store.history(layer, EVENTS)
    return [x for x in past if x.operation[:KEY] == key and same_person(x.by, holder)]


class KnownKeys:
    """A ledger's recent keyed requests, and their outcomes."""

    def __init__(self, store: LedgerStore, layer: str) -> None:
        self._store, self._layer = store, layer
        self._ledger, self._last = "", RingEntry("", 0, "")
        self._seen: OrderedDict[str, None] = OrderedDict()

    def outcome(self, key: str, holder: str) -> str | None:
        """The outcome of a holder's request with this key, None if there was none."""
        if key not in self._seen:
            return None
        past = reversed(events_under(key, holder, self._store, self._layer))
        return next((event.kind for event in past if event.kind in OUTCOMES), None)

    def learn(self, head: Snapshot) -> None:
        """Learn the keys up to a head; those of a replaced ledger are forgotten."""
        if head.ledger is None or not head.ledger.header.ring:
            return
        header = head.ledger.header
        ring, last = header.ring, self._last
        if header.ledger_id == self._ledger and ring[-1] == last:
            return
        if header.ledger_id != self._ledger or last not in ring:
            self._seen.clear()
            for event in reversed(self._store.history(self._layer, EVENTS)):
                self._keep(event.operation, event.kind)
            last = RingEntry("", 0, "")
        for entry in ring:
            if entry.revision > last.revision:
                self._keep(entry.operation, entry.outcome)
        self._ledger, self._last = header.ledger_id, ring[-1]

    def _keep(self, operation: str, outcome: str) -> None:
        if len(operation) == 2 * KEY and outcome in OUTCOMES:
            self._seen.setdefault(operation[:KEY])
            while len(self._seen) > KEPT:
                self._seen.popitem(last=False)
