"""What a clone keeps of the records that it has read: by the ids of their folders and files.

An id proves the content, so a folder whose id is known is not looked into, and of another one only
the files with new ids are read. It only saves work: what is missing or damaged is read again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Protocol

from gitlease.core.errors import Invalid
from gitlease.core.lease import Lease, State
from gitlease.core.lease_rows import SHAPE, row_of
from gitlease.git.files import load_text, make_folders, store_text
from gitlease.git.objects import EXECUTABLE, FILE, FOLDER, TreeEntry
from gitlease.git.repository import is_id
from gitlease.store.fields import BadRecord
from gitlease.store.records import FAN, MAX_RECORDS

MAX_BYTES = 256 * 1024 * 1024
FORM = f"records 2 {SHAPE}"
LIVE, ENDED, DAMAGED = "live", "ended", "damaged"
_FOLDER = "\x1e"  # before what is kept of a folder: no line has it


class Tree(Protocol):
    """The tree of a ledger, as far as it is read here."""

    def entries(self, folder: str) -> Mapping[str, TreeEntry]:
        """The entries of a folder. Raises Invalid."""

    def read_at(self, file: str) -> Lease:
        """The lease of a file. Raises BadRecord."""


def file_of_rows(kept: str, top: str) -> str:
    return os.path.join(kept, f"{top}.rows")


def kept_rows(tree: Tree, top: str, kept: str) -> list[tuple[str, str]] | None:
    """What there is of every record below a folder, in its order: a state, and what that tells.

    Of a record that is LIVE or ENDED its line, as ``row_of`` has it; of one that is DAMAGED its
    file. None where a folder itself is damaged, or too large.
    """
    known, found, changed, count = _load(kept, top), dict[str, str](), False, 0
    try:
        every = tree.entries(top)
        for fan, entry in every.items():
            if entry.mode != FOLDER or not FAN.fullmatch(fan):
                return None
            head, _, lines = known.get(fan, "").partition("\n")
            if head != entry.id:
                lines, changed = _read(tree, f"{top}/{fan}", lines), True
            found[fan] = f"{entry.id}\n{lines}"
            count += lines.count("\n")
            if count > MAX_RECORDS:
                return None
    except Invalid:
        return None
    if changed or len(found) != len(known):
        with contextlib.suppress(OSError):
            make_folders(kept)
            text = "".join(f"{_FOLDER}{fan} {lines}" for fan, lines in found.items())
            if len(text) < MAX_BYTES // 4:  # whatever its letters: more would not be read again
                store_text(file_of_rows(kept, top), text, form=f"{FORM} {top}")
    rows = [line for one in found.values() for line in one.split("\n")[1:-1]]
    return [(state, told) for _, state, told in (row.split("\t", 2) for row in rows)]


def damaged_file(told: str) -> str:
    """The file that a row which is DAMAGED tells of."""
    return str(json.loads(told))


def _load(kept: str, top: str) -> dict[str, str]:
    read = load_text(file_of_rows(kept, top), MAX_BYTES, form=f"{FORM} {top}")
    parts = () if read is None else read[0].split(_FOLDER)[1:]
    found = {fan: rest for fan, _, rest in (part.partition(" ") for part in parts)}
    every = ((fan, line) for fan, rest in found.items() for line in rest.split("\n")[1:-1])
    return found if all(_is_row(line, f"{top}/{fan}/") for fan, line in every) else {}


def _is_row(line: str, folder: str) -> bool:
    """Whether a line is one that is written here: an odd one must not look like no rival."""
    id, _, rest = line.partition("\t")
    state, _, told = rest.partition("\t")
    if not is_id(id):
        return False
    if state == DAMAGED:
        return told.startswith(f'"{folder}') and "\t" not in told
    heads = told.count("\t") == 4 and told.split("\t", 4)[3]
    covers = bool(heads) or not folder.startswith("paths/")
    return state in (LIVE, ENDED) and told.startswith(folder) and heads is not False and covers


def _read(tree: Tree, folder: str, lines: str) -> str:
    known = {}
    for line in lines.split("\n")[:-1]:
        id, state, told = line.split("\t", 2)
        if state != DAMAGED:
            known[id, told.partition("\t")[0]] = line
    found = []
    for name, entry in tree.entries(folder).items():
        file = f"{folder}/{name}"
        same = known.get((entry.id, file)) if entry.mode in (FILE, EXECUTABLE) else None
        found.append(f"{same or _line(tree, file, entry.id)}\n")
    return "".join(found)


def _line(tree: Tree, file: str, id: str) -> str:
    try:
        lease = tree.read_at(file)
    except BadRecord:
        return f"{id}\t{DAMAGED}\t{json.dumps(file)}"
    state = LIVE if lease.state is State.ACTIVE else ENDED
    return f"{id}\t{state}\t{row_of(lease, file)}"
