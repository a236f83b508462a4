"""The records of a ledger as far as the judgement of one step has use for them.

Whatever is asked for by name is read from the tree. The records that cover paths, which may be
very many, are read one by one, and only those are kept that share a file with what the
operations are about: no other has a say in the step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import gitlease.store.tree as trees
from gitlease.core.errors import Invalid
from gitlease.core.lease import Lease
from gitlease.core.ledger import Damage, Ledger, Note, Notice, Ticket
from gitlease.core.moves.operations import (
    Acknowledge,
    Barrier,
    Claim,
    Complete,
    EndSession,
    Extend,
    Operation,
    Park,
    Release,
    Renew,
)
from gitlease.core.resources import pattern
from gitlease.core.resources.resource import Resource
from gitlease.server.objects import FILE, TREE, PushedObjects
from gitlease.store.fields import BadRecord
from gitlease.store.records import FILE_NAME, MAX_RECORD, lease_file, read_lease

# Operations of which it is known what they are about; for any other every path lease counts.
FILTERED = (Claim, Renew, Extend, Release, Complete, Park, EndSession, Acknowledge, Barrier)

_FAN = re.compile(r"[0-9a-f]{2}")


class StepRecords:
    """The records before a step, for the table of transitions and its operations."""

    def __init__(
        self, objects: PushedObjects, tree: str, ledger: Ledger, operations: Sequence[Operation]
    ) -> None:
        self._objects, self._tree, self._inner = objects, tree, ledger.records
        self._operations = operations
        self._with_paths: list[Lease] | None = None

    def of(self, resource: Resource) -> list[Lease]:
        return list(self._inner.of(resource))

    def with_paths(self) -> list[Lease]:
        if self._with_paths is None:
            every = path_leases(self._objects, self._tree)
            if all(isinstance(operation, FILTERED) for operation in self._operations):
                patterns = [pattern.parse(text) for text in dict.fromkeys(self._patterns())]
                every = (lease for lease in every if _meets(lease, patterns))
            self._with_paths = list(every)
        return self._with_paths

    def every(self) -> Iterator[Lease | Damage]:
        for top in trees.LEASE_FOLDERS:
            for file, found in records_in(self._objects, self._tree, top):
                yield found if isinstance(found, Lease) else Damage(file, found)

    def notes(self, resource: Resource) -> tuple[Note, ...]:
        return self._inner.notes(resource)

    def notices(self, holder: str) -> tuple[Notice, ...]:
        return self._inner.notices(holder)

    def tickets(self, resource: Resource) -> tuple[Ticket, ...]:
        return self._inner.tickets(resource)

    def _patterns(self) -> Iterator[str]:
        """The paths of all that the operations are about, as it is and as it is to be."""
        for operation in self._operations:
            yield from getattr(operation, "paths", ())
            about = [getattr(operation, "resource", None)]
            about += [grant.resource for grant in getattr(operation, "grants", ())]
            for resource in filter(None, about):
                if resource.pattern is not None:
                    yield resource.pattern
                for lease in self.of(resource):
                    yield from lease.patterns


def _meets(lease: Lease, patterns: Sequence[pattern.Pattern]) -> bool:
    others = [pattern.parse(text) for text in lease.patterns]
    return any(pattern.overlap(one, other) for one in patterns for other in others)


def path_leases(objects: PushedObjects, tree: str) -> Iterator[Lease]:
    """Every record that covers paths, one after the other; Invalid where one cannot be read."""
    for file, lease in records_in(objects, tree, "paths"):
        if isinstance(lease, Lease):
            yield lease
            continue
        raise Invalid(
            f"the ledger's record {Damage(file, lease).shown.rsplit('/', 1)[-1]} is damaged: "
            f"{lease}",
            hints=(f"an admin may drop it: its file is {Damage(file, lease).shown}",),
        )


def records_in(objects: PushedObjects, tree: str, top: str) -> Iterator[tuple[str, Lease | str]]:
    """Every file below a folder of records with its lease, or why it cannot be read."""
    import pygit2

    entry = dict(objects.entries(tree, "/")).get(top)
    if entry is None or entry.mode != TREE:
        return
    count = 0
    for fan, folder in objects.entries(entry.oid, top):
        if folder.mode != TREE or not _FAN.fullmatch(fan):
            yield f"{top}/{fan}", "not a folder of records"
            continue
        for name, found in objects.entries(folder.oid, f"{top}/{fan}"):
            count += 1
            if count > trees.MAX_RECORDS:
                raise Invalid(f"the ledger has more than {trees.MAX_RECORDS} records in {top}")
            file = f"{top}/{fan}/{name}"
            try:
                if found.mode not in (FILE, "100755") or not FILE_NAME.fullmatch(name):
                    raise BadRecord("not a record")
                lease = read_lease(objects.unmetered(pygit2.Oid(hex=found.oid), MAX_RECORD))
                if lease_file(lease) != file:
                    raise BadRecord("its name and its content disagree")
            except BadRecord as error:
                yield file, str(error)
            else:
                yield file, lease
