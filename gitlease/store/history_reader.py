"""Reads the history of a ledger as far back as it is needed: records that changed, and events.

Everything in it was written by whoever can push: what cannot be read is said, and passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from gitlease.core.frozen import dataclass
from gitlease.core.instant import MS
from gitlease.core.lease import Lease, LeaseKey
from gitlease.core.ledger import Damage
from gitlease.core.moves.operations import Event
from gitlease.engine.ports import Snapshot
from gitlease.store.git_ledger import RefLedgerStore
from gitlease.store.records import lease_file
from gitlease.store.storage import COPY_LOST, CopyLost, PastStep, StoredRecords

GRANTS = frozenset({"claimed", "taken_over"})
MARGIN = 3_600 * MS  # by which the clocks of those who wrote may differ
MAX_STEPS = 200_000
OLDER = 20  # commits in a row that must be older than what is asked for
MAX_EVENTS = 1_000_000
DAMAGE_SHOWN = 3

Changes = tuple[tuple[Lease | None, Lease | None], ...]


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """One step of a ledger: the records that differ, each before and after. ``at`` is its time.

    Times are wall-clock milliseconds.
    """

    at: int
    changed: Changes


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerHistory:
    """A part of a ledger's history: the records of its oldest state, and the steps that followed.

    ``events`` are in their order, the oldest first. ``since`` is the time of the oldest state, None
    where that is the ledger's beginning; ``tokens`` is the smallest token from which on every grant
    is among the events, 0 where all are. ``damage`` says what could not be read.
    """

    layer: str
    first: tuple[Lease, ...] = ()
    steps: tuple[HistoryStep, ...] = ()
    events: tuple[Event, ...] = ()
    since: int | None = None
    tokens: int = 0
    damage: tuple[str, ...] = ()


def read_history(
    store: RefLedgerStore, head: Snapshot, *, since: int, token: int | None, older: bool
) -> LedgerHistory:
    """The events up to a head, at least since a time in wall-clock milliseconds.

    ``token``: and at least since this one was given. ``older``: what a first contact left out of it
    is fetched, else nobody is asked.
    """
    layer = head.layer

    def read(version: str) -> LedgerHistory:
        past = store.storage.history(version, whole=older)
        walked, events, to_root = _walk(past, since - MARGIN, token)
        header, reader = store.read(layer, walked[0].id).header, _Records()
        begun = not walked[0].before and header.revision <= 1
        first = reader.first(walked[0])
        steps, at = list[HistoryStep](), walked[0].time * MS
        for step in walked[1:]:
            # A writer's clock may be behind; the order of the steps is sure.
            at = max(at, step.time * MS)
            steps.append(HistoryStep(at, reader.next(step)))
        oldest = min(_granted(events), default=header.token + 1)
        return LedgerHistory(
            layer=layer,
            first=first,
            steps=tuple(steps),
            events=tuple(events),
            since=None if begun else walked[0].time * MS,
            tokens=0 if to_root and begun else oldest,
            damage=tuple(reader.damage[:DAMAGE_SHOWN]),
        )

    return store.read_past(layer, head.version, read)


def _walk(
    past: Iterable[PastStep], until: int, token: int | None
) -> tuple[list[PastStep], list[Event], bool]:
    """The states of a ledger from the last ones before a time on, and the events at least as far.

    Those go back to the grant of a token as well; both have the oldest first. And whether the
    events go back to the beginning.
    """
    found: list[PastStep] = []
    events: list[Event] = []
    older, to_root, reached = 0, False, token is None
    for step in islice(past, MAX_STEPS):
        of_step = step.events
        events += reversed(of_step)
        reached = reached or any(granted <= (token or 0) for granted in _granted(of_step))
        if older < OLDER:
            found.append(step)
            # A few old dates in a row prove nothing: whoever pushes a step chooses its date.
            older = older + 1 if step.time * MS < until else 0
        to_root = not step.before
        if (older == OLDER and reached) or len(events) > MAX_EVENTS:
            break
    if not found:
        raise CopyLost(COPY_LOST)
    return found[::-1], events[::-1], to_root


def _granted(events: Iterable[Event]) -> list[int]:
    return [x.token for x in events if x.kind in GRANTS and x.token is not None]


class _Records:
    """Follows the records from one state to the next; each file is read once for what is in it."""

    def __init__(self) -> None:
        self.damage: list[str] = []
        self._records: StoredRecords
        self._leases: dict[str, Lease] = {}  # by their files

    def first(self, step: PastStep) -> tuple[Lease, ...]:
        """Every record of the oldest state."""
        self._records = step.records
        for found in self._records.every():
            if isinstance(found, Damage):
                self._say(found)
            else:
                self._leases[lease_file(found)] = found
        return tuple(self._leases.values())

    def next(self, step: PastStep) -> Changes:
        """The records that differ in the next state, before and after, one for each lease."""
        records = step.records
        differ = records.changed_since(self._records)
        were = {file: x for file, _ in differ if (x := self._leases.pop(file, None)) is not None}
        before, after = {x.key: x for x in were.values()}, dict[LeaseKey, Lease]()
        for file, there in differ:
            if there is None:
                continue
            found: Lease | Damage | None = records.record_at(file)
            if isinstance(found, Damage):  # to spoil a record must not end its lease
                self._say(found)
                found = were.get(file)
            if found is not None:
                self._leases[file] = found
                after[found.key] = found
        self._records = records
        keys = dict.fromkeys([*before, *after])
        return tuple((before.get(key), after.get(key)) for key in keys)

    def _say(self, damage: Damage) -> None:
        text = f"{damage.shown} could not be read: {damage.problem}"
        if text not in self.damage:
            self.damage.append(text)
