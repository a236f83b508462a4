"""Requests that come with a key: how their operations are called, and which were carried out.

The id of each operation of such a request is made of its key and of a random part. By the key any
gateway finds in the ledger what another has done, or what an earlier life of its own did; by the
random part no try is taken for another one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from gitlease.core.frozen import replace
from gitlease.core.ledger import Header
from gitlease.core.moves.operations import Operation
from gitlease.engine.ports import LedgerStore, Snapshot
from gitlease.engine.transaction import fresh_id

EVENTS = 4_000  # of the past that are read when nothing is known of it
KEPT = 20_000  # keys
KEY = 20  # characters of an id that are its key, as many as a random id has


def keyed(operations: Sequence[Operation], key: str) -> list[Operation]:
    """Operations with ids that have the key of their request."""
    return [replace(one, id=key + fresh_id()) for one in operations]


class KnownKeys:
    """The keys that a ledger's last decisions have, and what their requests came to."""

    def __init__(self, store: LedgerStore, layer: str) -> None:
        self._store, self._layer = store, layer
        self._ledger, self._revision = "", 0
        self._outcomes: OrderedDict[str, str] = OrderedDict()

    def outcome(self, head: Snapshot, key: str) -> str | None:
        """What the request with this key came to, up to a head; None where it is not known."""
        if head.ledger is not None:
            self._learn(head.ledger.header)
        return self._outcomes.get(key)

    def _learn(self, header: Header) -> None:
        if header.ledger_id != self._ledger:
            self._ledger, self._revision = header.ledger_id, 0
            self._outcomes.clear()
        if header.revision <= self._revision:
            return
        if not header.ring_reaches(self._revision):
            for event in reversed(self._store.history(self._layer, EVENTS)):
                self._keep(event.operation, event.kind)
        for entry in header.ring:
            if entry.revision > self._revision:
                self._keep(entry.operation, entry.outcome)
        self._revision = header.revision

    def _keep(self, operation: str, outcome: str) -> None:
        if len(operation) == 2 * KEY:
            self._outcomes[operation[:KEY]] = outcome
            while len(self._outcomes) > KEPT:
                self._outcomes.popitem(last=False)
