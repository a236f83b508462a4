"""Reads the history of a ledger as far back as it is needed: records that changed, and events.

Everything in it was written by whoever can push: what cannot be read is said, and passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import cast

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.core.instant import MS
from gitlease.core.lease import Lease
from gitlease.core.ledger import Damage, Header, Ledger
from gitlease.core.moves.operations import Event
from gitlease.engine.ports import Snapshot
from gitlease.git.objects import GitObjects
from gitlease.store.git_ledger import RefLedgerStore
from gitlease.store.history import LedgerCommit, walk
from gitlease.store.private_store import CacheDamaged
from gitlease.store.records import BadRecord, lease_file
from gitlease.store.transport import GitRefs
from gitlease.store.tree import GitRecords, StoreObjects, changed_records

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
    """What was read of a ledger's history: the records of its oldest state, and what followed.

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
    """What happened up to a head, at least since a time in wall-clock milliseconds.

    ``token``: and at least since this one was given. ``older``: what a first contact left out of it
    is fetched, else nobody is asked.
    """

    layer, version = head.layer, head.version

    def read(refs: GitRefs) -> LedgerHistory:
        found = _walk(refs.objects, version, since - MARGIN, token)
        if older and not found[3] and refs.deepen(layer):
            found = _walk(refs.objects, version, since - MARGIN, token)
        walked, events, to_root, _ = found
        reader = _Records(refs.objects, refs.read(walked[0].id).header)
        begun = not walked[0].parent_ids and reader.header.revision <= 1
        first = reader.first(walked[0])
        steps, at = list[HistoryStep](), walked[0].time * MS
        for commit in walked[1:]:
            at = max(at, commit.time * MS)
            steps.append(HistoryStep(at, reader.next(commit)))
        oldest = min(_granted(events), default=reader.header.token + 1)
        return LedgerHistory(
            layer=layer,
            first=first,
            steps=tuple(steps),
            events=tuple(events),
            since=None if begun else walked[0].time * MS,
            tokens=0 if to_root and begun else oldest,
            damage=tuple(reader.damage[:DAMAGE_SHOWN]),
        )

    return store.read_kept(layer, read)


def _walk(
    objects: GitObjects, version: str, until: int, token: int | None
) -> tuple[list[LedgerCommit], list[Event], bool, bool]:
    """The commits of a ledger from the last ones before a time on, and the events at least as far.

    Those go back to the grant of a token as well; both have the oldest first. And whether the
    events go back to the root; and whether all that is asked for was there. A few commits with a
    date that is too old prove nothing: whoever pushes one chooses its date.
    """
    found: list[LedgerCommit] = []
    events: list[Event] = []
    older, to_root, reached, enough = 0, False, token is None, False
    for commit in islice(walk(objects, version), MAX_STEPS):
        said = commit.events
        events += reversed(said)
        reached = reached or any(granted <= (token or 0) for granted in _granted(said))
        if older < OLDER:
            found.append(commit)
            older = older + 1 if commit.time * MS < until else 0
        to_root = not commit.parent_ids
        enough = to_root or (older == OLDER and reached) or len(events) > MAX_EVENTS
        if enough:
            break
    if not found:
        raise CacheDamaged("this clone's copy of the ledger is damaged")
    return found[::-1], events[::-1], to_root, enough


def _granted(events: Iterable[Event]) -> list[int]:
    return [x.token for x in events if x.kind in GRANTS and x.token is not None]


class _Records:
    """Follows the records from one state to the next; each file is read once for what is in it."""

    def __init__(self, objects: GitObjects, header: Header) -> None:
        self.header = header
        self.damage: list[str] = []
        self._records = GitRecords(StoreObjects(objects), "")
        self._ledger: Ledger
        self._leases: dict[str, Lease] = {}  # by their files

    def first(self, commit: LedgerCommit) -> tuple[Lease, ...]:
        """Every record of the oldest state."""
        self._ledger = self._at(commit)
        for found in self._ledger.records.every():
            if isinstance(found, Damage):
                self._say(f"{found.shown} could not be read: {found.problem}")
            else:
                self._leases[lease_file(found)] = found
        return tuple(self._leases.values())

    def next(self, commit: LedgerCommit) -> Changes:
        """The records that differ in the next state, before and after, one for each lease."""
        try:
            ledger = self._at(commit)
        except Invalid as error:
            self._say(f"a step of the ledger could not be read: {error.message}")
            return ()
        differ = [file for file, _ in changed_records(self._ledger, ledger)]
        were = {file: x for file in differ if (x := self._leases.pop(file, None)) is not None}
        before = {x.key: x for x in were.values()}
        after = {}
        for file in differ:
            lease, there = self._read(ledger, file)
            if lease is None and there:  # to spoil a record must not end its lease
                lease = were.get(file)
            if lease is not None:
                self._leases[file] = lease
                after[lease.key] = lease
        self._ledger = ledger
        keys = dict.fromkeys([*before, *after])
        return tuple((before.get(key), after.get(key)) for key in keys)

    def _at(self, commit: LedgerCommit) -> Ledger:
        return Ledger(self.header, self._records.of_tree(commit.tree_id))

    def _read(self, ledger: Ledger, file: str) -> tuple[Lease | None, bool]:
        records = cast(GitRecords, ledger.records)
        if records.entry(file) is None:
            return None, False
        try:
            return records.read_at(file), True
        except BadRecord as error:
            self._say(f"{Damage(file, '').shown} could not be read: {error}")
            return None, True

    def _say(self, text: str) -> None:
        if text not in self.damage:
            self.damage.append(text)
