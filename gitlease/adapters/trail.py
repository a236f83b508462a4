"""Reads the history of a ledger as far back as it is needed: records that changed, and events.

Everything in it was written by whoever can push: what cannot be read is said, and passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

from gitlease.adapters.fields import BadRecord
from gitlease.adapters.history import MAX_COMMIT, read_events
from gitlease.adapters.private_store import PrivateStore
from gitlease.adapters.records import MAX_RECORD, lease_file, read_lease
from gitlease.adapters.tree import GitRecords, Objects, changed_records, read_ledger
from gitlease.domain.chronicle import GRANTS, Step, Trail
from gitlease.domain.errors import CacheDamaged, Invalid
from gitlease.domain.frozen import dataclass
from gitlease.domain.instant import MS
from gitlease.domain.lease import Lease
from gitlease.domain.ledger import Damage, Header, Ledger
from gitlease.domain.outcome import Event

if TYPE_CHECKING:
    import pygit2

MARGIN = 3_600 * MS  # by which the clocks of those who wrote may differ
MAX_STEPS = 200_000
OLDER = 20  # commits in a row that must be older than what is asked for
FIRST_EVENTS, MAX_EVENTS = 2_000, 1_000_000
DAMAGE_SHOWN = 3


class GitTrails:
    """The histories in the private store of a clone."""

    def __init__(self, store: PrivateStore) -> None:
        self._store = store

    def trail(self, layer: str, version: str, *, since: int, token: int | None) -> Trail:
        """See ``ports_check.Trails``. Raises CacheDamaged."""
        if not version:
            return Trail(layer=layer)
        repo = self._store.repo
        walked, to_root = _walk(repo, version, since - MARGIN)
        events, every = _events(repo, version, since - MARGIN, token)
        reader = _Records(repo, read_ledger(repo, walked[0].id).header)
        begun = to_root and reader.header.revision <= 1
        first = reader.first(walked[0])
        steps = tuple(_steps(reader, walked))
        tokens = (x.token for x in events if x.kind in GRANTS and x.token is not None)
        oldest = min(tokens, default=reader.header.token + 1)
        return Trail(
            layer=layer,
            first=first,
            steps=steps,
            events=tuple(events),
            since=None if begun else walked[0].commit_time * MS,
            tokens=0 if every and begun else oldest,
            damage=tuple(reader.damage[:DAMAGE_SHOWN]),
        )


def _steps(reader: _Records, walked: list[pygit2.Commit]) -> Iterator[Step]:
    """The steps after the first state. None was made before the one that it follows."""
    at = walked[0].commit_time * MS
    for commit in walked[1:]:
        at = max(at, commit.commit_time * MS)
        yield Step(at, reader.next(commit))


def _walk(repo: pygit2.Repository, version: str, until: int) -> tuple[list[pygit2.Commit], bool]:
    """The commits of a ledger, the oldest first, from the last ones before a time on.

    And whether the first is the root. A few with a date that is too old prove nothing: whoever
    pushes a commit chooses its date.
    """
    found: list[pygit2.Commit] = []
    older = 0
    for commit in _back(repo, version):
        found.append(commit)
        older = older + 1 if commit.commit_time * MS < until else 0
        if older == OLDER or len(found) == MAX_STEPS:
            return found[::-1], not commit.parent_ids
    if not found:
        raise CacheDamaged("this clone's copy of the ledger is damaged")
    return found[::-1], not found[-1].parent_ids


def _back(repo: pygit2.Repository, version: str) -> Iterator[pygit2.Commit]:
    import pygit2

    oid: pygit2.Oid | None = pygit2.Oid(hex=version)
    while oid is not None:
        try:
            kind, size = repo.odb.read_header(oid)
            if int(kind) != pygit2.enums.ObjectType.COMMIT or size > MAX_COMMIT:
                return
            commit = cast("pygit2.Commit", repo[oid])
        except (KeyError, ValueError, pygit2.GitError):
            return
        yield commit
        oid = commit.parent_ids[0] if commit.parent_ids else None


def _events(
    repo: pygit2.Repository, version: str, until: int, token: int | None
) -> tuple[list[Event], bool]:
    """The events back to a time and to the grant of a token, the oldest first, and if it is all."""
    limit = FIRST_EVENTS
    while True:
        events = read_events(repo, version, limit)
        every = len(events) < limit
        if every or limit >= MAX_EVENTS or _reaches(events, until, token):
            return list(events[::-1]), every
        limit *= 4


def _reaches(events: Iterable[Event], until: int, token: int | None) -> bool:
    tokens, earliest = [], None
    for event in events:
        earliest = event.at
        if event.kind in GRANTS and event.token is not None:
            tokens.append(event.token)
    if earliest is None or earliest >= until:
        return False
    return token is None or min(tokens, default=token + 1) <= token


@dataclass(frozen=True, slots=True)
class _Kept:
    """The records of one state, by their files."""

    ledger: Ledger
    leases: dict[str, Lease]


class _Records:
    """Follows the records from one state to the next; each file is read once for what is in it."""

    def __init__(self, repo: pygit2.Repository, header: Header) -> None:
        self.header = header
        self.damage: list[str] = []
        self._repo, self._objects = repo, Objects(repo)
        self._parsed: dict[pygit2.Oid, Lease | None] = {}
        self._state: _Kept | None = None

    def first(self, commit: pygit2.Commit) -> tuple[Lease, ...]:
        """Every record of the oldest state."""
        ledger = self._at(commit)
        leases = {}
        for found in ledger.records.every():
            if isinstance(found, Damage):
                self._say(f"{found.shown} could not be read: {found.problem}")
            else:
                leases[lease_file(found)] = found
        self._state = _Kept(ledger, leases)
        return tuple(leases.values())

    def next(self, commit: pygit2.Commit) -> tuple[tuple[Lease | None, Lease | None], ...]:
        """The records that differ in the next state, before and after, one for each lease."""
        old = self._state
        if old is None:
            raise Invalid("there is no state before the first one")
        try:
            ledger = self._at(commit)
        except CacheDamaged:
            raise
        except Invalid as error:
            self._say(f"a step of the ledger could not be read: {error.message}")
            return ()
        differ = [file for file, _ in changed_records(old.ledger, ledger)]
        were = {file: x for file in differ if (x := old.leases.pop(file, None)) is not None}
        before = {x.key: x for x in were.values()}
        after = {}
        for file in differ:
            lease, there = self._read(ledger, file)
            if lease is None and there:  # to spoil a record must not end its lease
                lease = were.get(file)
            if lease is not None:
                old.leases[file] = lease
                after[lease.key] = lease
        self._state = _Kept(ledger, old.leases)
        keys = dict.fromkeys([*before, *after])
        return tuple((before.get(key), after.get(key)) for key in keys)

    def _at(self, commit: pygit2.Commit) -> Ledger:
        return Ledger(self.header, GitRecords(self._repo, commit.tree_id))

    def _read(self, ledger: Ledger, file: str) -> tuple[Lease | None, bool]:
        """The record of a file, None where it cannot be read, and whether there is such a file."""
        folder, _, name = file.rpartition("/")
        entry = cast(GitRecords, ledger.records).entries(folder).get(name)
        if entry is None:
            return None, False
        if entry[0] not in self._parsed:
            self._parsed[entry[0]] = self._parse(file, entry[0])
        lease = self._parsed[entry[0]]
        return (lease if lease is not None and lease_file(lease) == file else None), True

    def _parse(self, file: str, oid: pygit2.Oid) -> Lease | None:
        try:
            return read_lease(self._objects.blob(oid, MAX_RECORD))
        except BadRecord as error:
            self._say(f"{Damage(file, '').shown} could not be read: {error}")
            return None

    def _say(self, text: str) -> None:
        if text not in self.damage:
            self.damage.append(text)
