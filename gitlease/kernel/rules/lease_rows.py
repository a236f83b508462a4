"""Leases as lines of text, of which only those that may matter become values.

A ledger may have very many leases, and a commit or a claim of a path is about few of them. A line
tells whose a lease is and where its patterns begin; only what that cannot rule out is built.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter

from gitlease.kernel.rules import resources
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import JSON
from gitlease.kernel.rules.lease import Lease, LeaseKey, Margins, Rule, State, person_key
from gitlease.kernel.rules.resources import Resource, fold

FIELDS: tuple[str, ...] = tuple(Lease.__annotations__)
"""The fields of a lease in the order of a line."""


# Lines written with other fields, or another version of Unicode, are not read.
_KINDS = [f"{x.__name__}{sorted(x.__annotations__.items())}" for x in (Lease, Resource, Margins)]
_WORDS = [x.value for kind in (State, Rule) for x in kind]
ROW_SHAPE = repr((*_KINDS, _WORDS, FIELDS, unicodedata.unidata_version))
DEPTH = 64  # segments of a head that are looked at: a shorter one rules out less

ROOT = "/"
_BETWEEN = "\x1f"  # two heads: no pattern has it, and no folded name
_KEY = attrgetter("key")
_PARTS = 4  # before what tells the whole lease: its file, its person, its task and its heads


def row_of(lease: Lease, file: str = "") -> str:
    """The line of a lease, which lies in this file of the ledger's tree (``""``: not known)."""
    parts = [file, person_key(lease.holder), "", ""]
    if not lease.resource.is_path:
        parts[2] = fold(lease.resource.text)
    if patterns := lease.patterns:
        heads = ["/".join(("", *resources.parse(x).head[:DEPTH])) or ROOT for x in patterns]
        # What could be taken for more than one head or line is looked at whatever is asked for.
        parts[3] = _BETWEEN.join(heads) if all(x.isprintable() for x in heads) else ROOT
    values = JSON.dump(lease)
    return "\t".join((*parts, json.dumps([values[name] for name in FIELDS], separators=(",", ":"))))


class Reach:
    """The reach of patterns or paths, by their literal beginnings.

    ``heads`` are folded segments. What a head stands above or below of may have a file in common
    with it; of a ``file`` only what stands above.
    """

    def __init__(self, heads: Iterable[Sequence[str]], files: Iterable[Sequence[str]] = ()) -> None:
        whole, single = ([tuple(x)[:DEPTH] for x in some] for some in (heads, files))
        every = (x[:end] for x in (*whole, *single) for end in range(len(x) + 1))
        self._above = {"/".join(("", *x)) or ROOT for x in every}
        self._below = tuple({"/".join(("", *x, "")) for x in whole})

    @classmethod
    def of_patterns(cls, patterns: Iterable[str]) -> Reach:
        return cls(resources.parse(x).head for x in patterns)

    def meets(self, heads: str) -> bool:
        """True if a lease whose line has these heads may cover a common file: no false no."""
        return any(x in self._above or x.startswith(self._below) for x in heads.split(_BETWEEN))


class RowsDamaged(Invalid):
    """A line with a correct checksum that is not a lease."""


class LeaseRows:
    """Live leases as lines. Raises RowsDamaged for a line that is not a lease.

    Without ``people`` they are all of a ledger; else all that cover paths, all of these people
    (``person_key``), and of others' names so many that it is known that there are any.
    """

    def __init__(self, rows: Iterable[str], people: Collection[str] | None = None) -> None:
        self.rows, self.people = tuple(rows), people
        self._parts = [row.split("\t", _PARTS) for row in self.rows]
        if min(map(len, self._parts), default=_PARTS + 1) <= _PARTS:
            raise _damaged()
        self._built: dict[int, Lease] = {}
        self._files: dict[tuple[LeaseKey, str], str] = {}

    @classmethod
    def of(cls, leases: Iterable[Lease]) -> LeaseRows:
        return cls(map(row_of, leases))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LeaseRows) and self.rows == other.rows

    def __iter__(self) -> Iterator[Lease]:
        """All of them, each built when it is asked for."""
        return map(self._lease, range(len(self.rows)))

    def has_all_of(self, person: str | None) -> bool:
        """Return whether all leases of a person, if any is meant, are among them."""
        return self.people is None or person is None or person in self.people

    def are_sound(self) -> bool:
        """True if the first line can be read, as none of another format, and all cover a thing."""
        try:
            next(iter(self), None)
        except RowsDamaged:
            return False
        # A line without its heads would keep nobody from its paths.
        return all(x[3] if x[0].startswith("paths/") else x[2] or x[3] for x in self._parts)

    def of_person(self, holder: str) -> list[Lease]:
        """Those of one person, in the order of their resources."""
        wanted = person_key(holder)
        leases = (self._lease(n) for n, parts in enumerate(self._parts) if parts[1] == wanted)
        return sorted(leases, key=_KEY)

    def has_others(self, holder: str) -> bool:
        """Return whether any is not this person's."""
        wanted = person_key(holder)
        return any(parts[1] != wanted for parts in self._parts)

    def near(self, reach: Reach, tasks: Iterable[str] = ()) -> list[Lease]:
        """At least those that cover what is reached, or are of these tasks (folded names)."""
        names, meets = frozenset(tasks), reach.meets
        leases = [
            self._lease(n)
            for n, parts in enumerate(self._parts)
            if parts[2] in names or (parts[3] and meets(parts[3]))
        ]
        return sorted(leases, key=_KEY)

    def file_of(self, lease: Lease) -> str:
        """Its file in the ledger's tree; ``""`` if that is not known."""
        return self._files.get((lease.key, lease.lease_id), "")

    def _lease(self, number: int) -> Lease:
        if number not in self._built:
            file, *_, text = self._parts[number]
            try:
                lease = JSON.load(Lease, dict(zip(FIELDS, json.loads(text), strict=True)))
            except (ValueError, TypeError, RecursionError):
                raise _damaged() from None
            self._files[lease.key, lease.lease_id] = file
            self._built[number] = lease
        return self._built[number]


def _damaged() -> RowsDamaged:
    return RowsDamaged(
        "this clone's lease cache is damaged",
        hints=("delete the *.rows files below .git/gitlease/state; they are rebuilt",),
    )
