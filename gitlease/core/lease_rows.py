"""Leases as lines of text, of which only those that may matter become values.

A ledger may have very many leases, and a commit or a claim of a path is about few of them. A line
tells whose a lease is and where its patterns begin; only what that cannot rule out is built.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from gitlease.core.errors import Invalid
from gitlease.core.lease import Lease, LeaseKey, State
from gitlease.core.policy import Margins, Rule, person_key
from gitlease.core.resources import pattern
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource
from gitlease.core.shape import JSON

FIELDS: tuple[str, ...] = tuple(Lease.__annotations__)
"""The fields of a lease in the order of a line."""


def _shape() -> str:
    # Lines written with other fields, or another version of Unicode, are not read.
    kinds = [f"{x.__name__}{sorted(x.__annotations__.items())}" for x in (Lease, Resource, Margins)]
    words = [x.value for kind in (State, Rule) for x in kind]
    return repr((*kinds, words, FIELDS, unicodedata.unidata_version))


SHAPE = _shape()
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
        heads = ["/".join(("", *pattern.parse(x).head[:DEPTH])) or ROOT for x in patterns]
        # What could be taken for more than one head or line is looked at whatever is asked for.
        parts[3] = _BETWEEN.join(heads) if all(x.isprintable() for x in heads) else ROOT
    if not parts[1].isprintable():
        parts[1] = ""
    values = JSON.dump(lease)
    return "\t".join((*parts, json.dumps([values[name] for name in FIELDS], separators=(",", ":"))))


def heads_in(row: str) -> str:
    """The part of a line that a ``Reach`` is asked about."""
    return row.split("\t", _PARTS)[3]


class Reach:
    """Where patterns or paths may meet with a lease, by the literal beginnings of both.

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
        return cls(pattern.parse(x).head for x in patterns)

    def meets(self, heads: str) -> bool:
        """Whether a lease whose line has these heads may cover a common file: no false no."""
        return any(x in self._above or x.startswith(self._below) for x in heads.split(_BETWEEN))


class RowsDamaged(Invalid):
    """A line with a correct checksum that is not a lease."""


class LeaseRows:
    """Leases as lines. Raises RowsDamaged for a line that is not a lease."""

    def __init__(self, rows: Iterable[str]) -> None:
        self.rows = tuple(rows)
        self._parts = [row.split("\t", _PARTS) for row in self.rows]
        if any(len(parts) <= _PARTS for parts in self._parts):
            raise _damaged()
        self._built: dict[int, Lease] = {}
        self._files: dict[tuple[LeaseKey, str], str] = {}

    @classmethod
    def of(cls, leases: Iterable[Lease]) -> LeaseRows:
        return cls(map(row_of, leases))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LeaseRows) and self.rows == other.rows

    def __hash__(self) -> int:
        return hash(self.rows)

    def __iter__(self) -> Iterator[Lease]:
        """All of them, each built when it is asked for."""
        return map(self._lease, range(len(self.rows)))

    def are_sound(self) -> bool:
        """Whether the first line can be read: in a file of another format, none can."""
        try:
            return next(iter(self), None) is not None or not self.rows
        except RowsDamaged:
            return False

    def of_person(self, holder: str) -> list[Lease]:
        """Those of one person, in the order of their resources."""
        wanted = (person_key(holder), "")
        found = [self._lease(n) for n, parts in enumerate(self._parts) if parts[1] in wanted]
        return sorted((x for x in found if person_key(x.holder) == wanted[0]), key=_KEY)

    def has_others(self, holder: str) -> bool:
        """Whether any is not this person's."""
        wanted = person_key(holder)
        return any(parts[1] != wanted for parts in self._parts)

    def near(self, reach: Reach, tasks: Iterable[str] = ()) -> list[Lease]:
        """At least those that cover what is reached, or are of these tasks (folded names)."""
        names, meets = frozenset(tasks), reach.meets
        found = [
            self._lease(n)
            for n, parts in enumerate(self._parts)
            if parts[2] in names or (parts[3] and meets(parts[3]))
        ]
        return sorted(found, key=_KEY)

    def file_of(self, lease: Lease) -> str:
        """Its file in the ledger's tree; ``""`` if that is not known."""
        return self._files.get((lease.key, lease.lease_id), "")

    def _lease(self, number: int) -> Lease:
        if number not in self._built:
            file, *_, told = self._parts[number]
            try:
                lease = JSON.load(Lease, dict(zip(FIELDS, json.loads(told), strict=True)))
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
