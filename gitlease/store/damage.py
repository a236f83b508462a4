"""Damage in the copy of the ledger that a clone keeps, which the store makes anew by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from gitlease.core.lease import Lease
from gitlease.core.ledger import Damage, Note, Notice, Records, RowRecords, Ticket, live_of
from gitlease.core.resources.resource import Resource

if TYPE_CHECKING:
    from gitlease.core.lease_rows import LeaseRows, Reach

T = TypeVar("T")


class CacheDamaged(Exception):
    """What is kept of the ledger cannot be read.

    It is no refusal, so no rule takes it for one; it never leaves the store.
    """


class RestoredRecords:
    """The records of one state, which are fetched again once it is found that they are lost.

    ``restore`` gives the same records anew, told how often it did so in vain; it raises HeadGone
    where they cannot be had any more. ``kept`` is the folder of what is kept of them.
    """

    def __init__(self, records: Records, restore: Callable[[int], Records], kept: str = "") -> None:
        self._records, self._restore, self._kept = records, restore, kept

    def of(self, resource: Resource) -> list[Lease]:
        return self._read(lambda records: list(records.of(resource)))

    def with_paths(self) -> list[Lease]:
        return self._read(lambda records: list(records.with_paths()))

    def near(self, reach: Reach, kept: str = "") -> list[Lease]:
        def read(records: Records) -> list[Lease]:
            if isinstance(records, RowRecords):
                return list(records.near(reach, kept or self._kept))
            return list(records.with_paths())

        return self._read(read)

    def live(self, kept: str = "") -> tuple[LeaseRows, list[Damage]]:
        def read(records: Records) -> tuple[LeaseRows, list[Damage]]:
            if isinstance(records, RowRecords):
                return records.live(kept or self._kept)
            return live_of(records.every())

        return self._read(read)

    def every(self) -> Iterator[Lease | Damage]:
        yield from self._read(lambda records: list(records.every()))

    def notes(self, resource: Resource) -> tuple[Note, ...]:
        return self._read(lambda records: records.notes(resource))

    def notices(self, holder: str) -> tuple[Notice, ...]:
        return self._read(lambda records: records.notices(holder))

    def tickets(self, resource: Resource) -> tuple[Ticket, ...]:
        return self._read(lambda records: records.tickets(resource))

    def every_ticket(self) -> list[Ticket]:
        return self._read(lambda records: list(records.every_ticket()))

    def _read(self, ask: Callable[[Records], T]) -> T:
        tries = 0
        while True:
            try:
                return ask(self._records)
            except CacheDamaged:
                self._records = self._restore(tries)
                tries += 1
