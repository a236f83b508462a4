"""What differs between two trees of a ledger, read entry by entry: only where they differ.

Whatever does not belong into a ledger's tree is refused on the way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gitlease.core.frozen import dataclass
from gitlease.core.moves.audit import Illegal
from gitlease.core.moves.audit_values import quoted
from gitlease.server.objects import FILE, TREE, Entry, PushedObjects
from gitlease.store.records import HEADER_FILE
from gitlease.store.tree import LEASE_FOLDERS

FOLDERS = (*LEASE_FOLDERS, "notes", "notices", "waiting")

_FAN = re.compile(r"[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Changed:
    """A path of the tree that differs; a side is None where there is nothing."""

    path: str
    before: Entry | None
    after: Entry | None


def differences(objects: PushedObjects, old: str | None, new: str) -> Iterator[Changed]:
    """Every file that differs between two trees, and every entry that does not belong there."""
    for name, before, after in _merged(objects, old, new, "/"):
        if name == HEADER_FILE:
            yield Changed(name, before, _file(name, after))
        elif name in FOLDERS:
            for fan, below, above in _merged(*_folders(objects, before, after, name), name):
                folder = f"{name}/{fan}"
                if not _FAN.fullmatch(fan) or (above is None and _is_odd(below)):
                    _check_foreign(folder, above)
                    yield Changed(folder, below, None)
                    continue
                for file, was, now in _merged(*_folders(objects, below, above, folder), folder):
                    yield Changed(f"{folder}/{file}", was, _file(f"{folder}/{file}", now))
        else:
            _check_foreign(name, after)
            yield Changed(name, before, None)


def _merged(
    objects: PushedObjects, old: str | None, new: str | None, what: str
) -> Iterator[tuple[str, Entry | None, Entry | None]]:
    """The entries that differ between two trees, which git keeps in one order."""
    befores = objects.entries(old, what) if old is not None else iter(())
    afters = objects.entries(new, what) if new is not None else iter(())
    before, after = next(befores, None), next(afters, None)
    if new is not None and after is None and what != "/":
        raise Illegal("tree", f"its folder {what} is empty")
    while before is not None or after is not None:
        if before is not None and after is not None and before[0] == after[0]:
            if before[1] != after[1]:
                yield before[0], before[1], after[1]
            before, after = next(befores, None), next(afters, None)
        elif after is None or (before is not None and _place(before) < _place(after)):
            if before is not None:
                yield before[0], before[1], None
            before = next(befores, None)
        else:
            yield after[0], None, after[1]
            after = next(afters, None)


def _place(entry: tuple[str, Entry]) -> bytes:
    name, value = entry
    return name.encode("utf-8", "surrogateescape") + (b"/" if value.mode == TREE else b"")


def _folders(
    objects: PushedObjects, before: Entry | None, after: Entry | None, what: str
) -> tuple[PushedObjects, str | None, str | None]:
    if after is not None and after.mode != TREE:
        raise Illegal("mode", f"{what} is not a folder")
    return (
        objects,
        before.oid if before is not None and before.mode == TREE else None,
        after.oid if after is not None else None,
    )


def _is_odd(entry: Entry | None) -> bool:
    return entry is not None and entry.mode != TREE


def _file(path: str, entry: Entry | None) -> Entry | None:
    """An entry that must be a plain file: no link, no program, no folder, no submodule."""
    if entry is not None and entry.mode != FILE:
        kinds = {"100755": "a program", "120000": "a link", "160000": "a submodule"}
        what = kinds.get(entry.mode, "a folder" if entry.mode == TREE else "of an odd mode")
        raise Illegal("mode", f"{quoted(path)} is {what}, not a plain file")
    return entry


def _check_foreign(path: str, entry: Entry | None) -> None:
    if entry is not None:
        raise Illegal("extra-file", f"{quoted(path)} does not belong in a ledger")


class Tops:
    """Looks files of a tree up by their paths; None for the empty tree."""

    def __init__(self, objects: PushedObjects, tree: str | None) -> None:
        self._objects, self._tree = objects, tree
        self._kept: dict[str, Mapping[str, Entry]] = {}

    def oid(self, path: str) -> str | None:
        """The id of what lies at a path; None where there is nothing."""
        folder, _, name = path.rpartition("/")
        if folder not in self._kept:
            self._kept[folder] = self._entries(folder)
        found = self._kept[folder].get(name)
        return None if found is None else found.oid

    def _entries(self, folder: str) -> Mapping[str, Entry]:
        found = dict(self._objects.entries(self._tree, "/")) if self._tree is not None else {}
        for part in folder.split("/") if folder else ():
            entry = found.get(part)
            if entry is None or entry.mode != TREE:
                return {}
            found = dict(self._objects.entries(entry.oid, folder))
        return found
