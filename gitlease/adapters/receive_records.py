"""The records of a ledger as far as the judgement of one step has use for them.

Whatever is asked for by name is read from the tree. Of the records that cover paths, which may be
very many, they are read one by one, and only those are kept that share a file with what the
step writes: no other has a say in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import gitlease.adapters.tree as trees
from gitlease.adapters.fields import BadRecord
from gitlease.adapters.receive_objects import FILE, TREE, PushedObjects
from gitlease.adapters.records import FILE_NAME, MAX_RECORD, lease_file, read_lease
from gitlease.domain import pattern
from gitlease.domain.errors import Invalid
from gitlease.domain.lease import Lease
from gitlease.domain.ledger import Damage, Ledger, Note, Notice, Ticket
from gitlease.domain.resource import Resource

_FAN = re.compile(r"[0-9a-f]{2}")


class StepRecords:
    """The records before a step, for the table of transitions. ``changed`` are those it replaces.

    ``patterns`` are those of every record that it writes or replaces, ``dropped`` the files that
    it removes and that cannot be read.
    """

    def __init__(
        self,
        objects: PushedObjects,
        tree: str,
        ledger: Ledger,
        *,
        changed: Sequence[Lease],
        patterns: Sequence[str],
        dropped: Sequence[str],
    ) -> None:
        self._objects, self._tree, self._inner = objects, tree, ledger.records
        self._changed, self._dropped = tuple(changed), tuple(dropped)
        self._patterns = [pattern.parse(text) for text in dict.fromkeys(patterns)]
        self._with_paths: list[Lease] | None = None

    def of(self, resource: Resource) -> list[Lease]:
        return list(self._inner.of(resource))

    def with_paths(self) -> list[Lease]:
        if self._with_paths is None:
            every = path_leases(self._objects, self._tree)
            self._with_paths = [lease for lease in every if self._meets(lease)]
        return self._with_paths

    def every(self) -> Iterator[Lease | Damage]:
        yield from self._changed
        for file in self._dropped:
            yield Damage(file, "it cannot be read")

    def notes(self, resource: Resource) -> tuple[Note, ...]:
        return self._inner.notes(resource)

    def notices(self, holder: str) -> tuple[Notice, ...]:
        return self._inner.notices(holder)

    def tickets(self, resource: Resource) -> tuple[Ticket, ...]:
        return self._inner.tickets(resource)

    def _meets(self, lease: Lease) -> bool:
        others = [pattern.parse(text) for text in lease.patterns]
        return any(pattern.overlap(one, other) for one in self._patterns for other in others)


def path_leases(objects: PushedObjects, tree: str) -> Iterator[Lease]:
    """Every record that covers paths, one after the other; Invalid where one cannot be read."""
    for file, lease in path_records(objects, tree):
        if isinstance(lease, Lease):
            yield lease
            continue
        raise Invalid(
            f"the ledger's record {Damage(file, lease).shown.rsplit('/', 1)[-1]} is damaged: "
            f"{lease}",
            hints=(f"an admin may drop it: its file is {Damage(file, lease).shown}",),
        )


def path_records(objects: PushedObjects, tree: str) -> Iterator[tuple[str, Lease | str]]:
    """Every file below ``paths/`` with its lease, or why it cannot be read."""
    import pygit2

    top = dict(objects.entries(tree, "/")).get("paths")
    if top is None or top.mode != TREE:
        return
    count = 0
    for fan, folder in objects.entries(top.oid, "paths"):
        if folder.mode != TREE or not _FAN.fullmatch(fan):
            yield f"paths/{fan}", "not a folder of records"
            continue
        for name, entry in objects.entries(folder.oid, f"paths/{fan}"):
            count += 1
            if count > trees.MAX_RECORDS:
                raise Invalid(f"the ledger has more than {trees.MAX_RECORDS} records in paths")
            file = f"paths/{fan}/{name}"
            try:
                if entry.mode not in (FILE, "100755") or not FILE_NAME.fullmatch(name):
                    raise BadRecord("not a record")
                lease = read_lease(objects.unmetered(pygit2.Oid(hex=entry.oid), MAX_RECORD))
                if lease_file(lease) != file:
                    raise BadRecord("its name and its content disagree")
            except BadRecord as error:
                yield file, str(error)
            else:
                yield file, lease
