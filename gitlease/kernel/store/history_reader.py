"""Reads the events of a ledger's history as far back as they are needed.

Everything in it was written by whoever can push: what cannot be read is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from gitlease.kernel.ledger.ports import Snapshot
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.moves.operations import Event
from gitlease.kernel.store.git_ledger import RefLedgerStore
from gitlease.kernel.store.storage import COPY_LOST, CopyLost, PastStep

GRANTS = frozenset({"claimed", "taken_over"})
MAX_STEPS = 200_000
MAX_EVENTS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class LedgerHistory:
    """A part of a ledger's history: its ``events`` up to now, the oldest first.

    ``tokens`` is the smallest token from which on every grant is among them, 0 where all are.
    """

    layer: str
    events: tuple[Event, ...] = ()
    tokens: int = 0


def read_history(
    store: RefLedgerStore, head: Snapshot, *, token: int, older: bool
) -> LedgerHistory:
    """The events up to a head, at least since a token was given.

    ``older``: what a first contact left out of the history is fetched, else nobody is asked.
    """
    layer = head.layer

    def read(version: str) -> LedgerHistory:
        oldest, events = _walk(store.storage.history(version, whole=older), token)
        header = store.read(layer, oldest.id).header
        # A ledger that was compacted begins anew, at the revision that it had.
        is_whole = not oldest.before and header.revision <= 1
        first = min(_granted(events), default=header.token + 1)
        return LedgerHistory(layer=layer, events=events, tokens=0 if is_whole else first)

    return store.read_past(layer, head.version, read)


def _walk(past: Iterable[PastStep], token: int) -> tuple[PastStep, tuple[Event, ...]]:
    """The step that gave a token, or the oldest that is there, and the events from it on."""
    events: list[Event] = []
    oldest: PastStep | None = None
    for oldest in islice(past, MAX_STEPS):
        of_step = oldest.events
        events += reversed(of_step)
        if any(granted <= token for granted in _granted(of_step)) or len(events) > MAX_EVENTS:
            break
    if oldest is None:
        raise CopyLost(COPY_LOST)
    return oldest, tuple(reversed(events))


def _granted(events: Iterable[Event]) -> list[int]:
    return [x.token for x in events if x.kind in GRANTS and x.token is not None]
