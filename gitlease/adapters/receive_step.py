"""Reads what one commit makes different in a ledger's tree: only the folders that differ.

Every file that is new or changed must be one that gitlease would write, byte for byte, under the
name that its content has; nothing else may come into the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeVar

from gitlease.adapters.fields import BadRecord
from gitlease.adapters.history import MAX_EVENTS
from gitlease.adapters.receive_objects import TREE, Commit, Entry, PushedObjects
from gitlease.adapters.receive_tree import Changed, Tops, differences
from gitlease.adapters.records import (
    FILE_NAME,
    HEADER_FILE,
    MAX_HEADER,
    MAX_MESSAGES,
    MAX_RECORD,
    lease_file,
    read_header,
    read_lease,
    read_notes,
    read_notices,
    write_header,
    write_lease,
    write_notes,
    write_notices,
)
from gitlease.adapters.records_waiting import read_tickets, write_tickets
from gitlease.adapters.tree import LEASE_FOLDERS
from gitlease.domain.audit import Illegal, Written
from gitlease.domain.audit_values import NEWER, quoted
from gitlease.domain.errors import CacheDamaged, Invalid
from gitlease.domain.frozen import dataclass
from gitlease.domain.lease import Lease, LeaseKey
from gitlease.domain.ledger import Header, Note, Notice, Ticket
from gitlease.domain.pattern import fold
from gitlease.domain.resource import Resource

if TYPE_CHECKING:
    pass

MAX_CHANGED = 10_000  # files of one step

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """A commit as it was written, and the records that it changed as they were before."""

    written: Written
    replaced: tuple[Lease, ...]


def read_step(
    objects: PushedObjects, before: Commit | None, commit: Commit, header: Header | None
) -> Step:
    """What a commit makes different from the one before it; ``header`` is that one's.

    Raises Illegal for whatever gitlease would not have written.
    """
    reading = _Reading(objects, header, Tops(objects, commit.tree))
    changed = differences(objects, before.tree if before is not None else None, commit.tree)
    for number, one in enumerate(changed):
        if number >= MAX_CHANGED:
            raise Illegal("too-large", f"a step changes at most {MAX_CHANGED} files")
        reading.take(one)
    return reading.step(commit)


class _Reading:
    """Gathers what the files of one step say."""

    def __init__(self, objects: PushedObjects, header: Header | None, tops: Tops) -> None:
        self._objects, self._header, self._tops = objects, header, tops
        self._leases: dict[LeaseKey, Lease | None] = {}
        self._notes: dict[str, tuple[Resource, tuple[Note, ...]]] = {}
        self._notices: dict[str, tuple[str, tuple[Notice, ...]]] = {}
        self._tickets: dict[str, tuple[Resource, tuple[Ticket, ...]]] = {}
        self._dropped: list[str] = []
        self._replaced: dict[LeaseKey, Lease] = {}

    def take(self, one: Changed) -> None:
        top = one.path.partition("/")[0]
        if one.path == HEADER_FILE:
            self._take_header(one)
        elif top in LEASE_FOLDERS:
            self._take_lease(one, top)
        elif top == "notes":
            self._take_notes(one)
        elif top == "notices":
            self._take_notices(one)
        elif top == "waiting":
            self._take_tickets(one)
        else:
            self._lost(one.path)

    def step(self, commit: Commit) -> Step:
        if self._header is None:
            raise Illegal("header", f"it has no {HEADER_FILE}")
        written = Written(
            header=self._header,
            leases=self._leases,
            notes=self._notes,
            notices=self._notices,
            tickets=self._tickets,
            dropped=tuple(self._dropped),
            events=commit.events[:MAX_EVENTS],
            cut=len(commit.events) >= MAX_EVENTS,
            renewal=commit.renewal,
            author=commit.author,
            at=commit.at,
        )
        return Step(written, tuple(self._replaced.values()))

    def _take_header(self, one: Changed) -> None:
        if one.after is None:
            raise Illegal("header", f"it has no {HEADER_FILE}")
        try:
            data = self._blob(one.after, MAX_HEADER)
            header = read_header(data)
        except BadRecord as error:
            raise Illegal("header", f"{HEADER_FILE}: {error}") from None
        except CacheDamaged:
            raise
        except Invalid as error:
            raise Illegal("header", error.message, hints=error.hints) from None
        _check_form(one.path, data, write_header(header))
        self._header = header

    def _take_lease(self, one: Changed, top: str) -> None:
        before = self._before(one.before, MAX_RECORD, read_lease)
        if before is not None and lease_file(before) != one.path:
            before = None
        if before is not None:
            self._replaced[before.key] = before
        if one.after is None:
            if before is None:
                self._dropped.append(one.path)
            else:
                self._leases.setdefault(before.key, None)
            return
        if not FILE_NAME.fullmatch(one.path.rsplit("/", 1)[-1]):
            raise Illegal("name", f"{quoted(one.path)} is not the name of a record")
        data, lease = self._read(one, MAX_RECORD, read_lease)
        if lease_file(lease) != one.path:
            raise Illegal(
                "name", f"the record of {lease.resource} is at {one.path}, not {lease_file(lease)}"
            )
        _check_form(one.path, data, write_lease(lease))
        other = next(folder for folder in LEASE_FOLDERS if folder != top)
        if self._leases.get(lease.key) is not None or self._tops.has(other + one.path[len(top) :]):
            raise Illegal("record", f"there are two records of {lease.resource}")
        self._leases[lease.key] = lease

    def _take_notes(self, one: Changed) -> None:
        def read(data: bytes) -> tuple[Note, ...]:
            return read_notes(data, file=one.path)

        before = self._before(one.before, MAX_MESSAGES, read)
        if one.after is None:
            resource = before[0].resource if before else self._lost(one.path)
            self._notes[resource.key] = resource, ()
            return
        data, notes = self._read(one, MAX_MESSAGES, read)
        _check_form(one.path, data, write_notes(notes[0].resource, notes) if notes else b"")
        self._notes[notes[0].resource.key] = notes[0].resource, notes

    def _take_notices(self, one: Changed) -> None:
        def read(data: bytes) -> tuple[Notice, ...]:
            return read_notices(data, file=one.path)

        before = self._before(one.before, MAX_MESSAGES, read)
        if one.after is None:
            to = before[0].to if before else self._lost(one.path)
            self._notices[fold(to)] = to, ()
            return
        data, notices = self._read(one, MAX_MESSAGES, read)
        _check_form(one.path, data, write_notices(notices[0].to, notices) if notices else b"")
        self._notices[fold(notices[0].to)] = notices[0].to, notices

    def _take_tickets(self, one: Changed) -> None:
        def read(data: bytes) -> tuple[Ticket, ...]:
            return read_tickets(data, file=one.path)

        before = self._before(one.before, MAX_MESSAGES, read)
        if one.after is None:
            resource = before[0].resource if before else self._lost(one.path)
            self._tickets[resource.key] = resource, ()
            return
        data, tickets = self._read(one, MAX_MESSAGES, read)
        written = write_tickets(tickets[0].resource, tickets) if tickets else b""
        _check_form(one.path, data, written)
        self._tickets[tickets[0].resource.key] = tickets[0].resource, tickets

    # --- bytes ----------------------------------------------------------------------------------

    def _read(self, one: Changed, limit: int, read: Callable[[bytes], T]) -> tuple[bytes, T]:
        """The bytes of a file as it is now, and what they say."""
        if one.after is None:
            raise Illegal("record", f"{quoted(one.path)} is gone")
        try:
            data = self._blob(one.after, limit)
            return data, read(data)
        except BadRecord as error:
            raise Illegal("record", f"{quoted(one.path)}: {error}") from None

    def _before(self, entry: Entry | None, limit: int, read: Callable[[bytes], T]) -> T | None:
        """What a file said before; None where there was none, or none that could be read."""
        if entry is None or entry.mode in (TREE, "160000", "120000"):
            return None
        try:
            return read(self._blob(entry, limit))
        except BadRecord:
            return None

    def _blob(self, entry: Entry, limit: int) -> bytes:
        import pygit2

        return self._objects.blob(pygit2.Oid(hex=entry.oid), limit)

    def _lost(self, path: str) -> NoReturn:
        raise Illegal("unexplained", f"{quoted(path)} is gone, and no operation does that")


def _check_form(path: str, data: bytes, wanted: bytes) -> None:
    if data != wanted:
        raise Illegal(
            "form",
            f"{quoted(path)} is not written as gitlease writes it",
            hints=(NEWER,),
        )
