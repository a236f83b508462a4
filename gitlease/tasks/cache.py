"""Remembers what task files say, so that a file is parsed again only when it changed.

It only saves work: whatever is wrong with it, it is made anew, and where it cannot be written
everything goes on without.
"""

from __future__ import annotations

import contextlib
import json
import os
from enum import Enum
from hashlib import sha256
from typing import Any, Final

from gitlease.core import edge
from gitlease.core.edge import Progress, Task
from gitlease.core.errors import UsageError
from gitlease.core.frozen import non_defaults
from gitlease.core.resources import pattern, resource
from gitlease.core.resources.resource import name_resource
from gitlease.engine.ports import TaskProblem
from gitlease.git.files import load_json, make_folders, store_json
from gitlease.settings.sources import Tasks
from gitlease.tasks.scan import MAX_PATH, FoundFile, printable
from gitlease.tasks.text import Value

FORMAT = 2
MAX_CACHE = 256 * 1024 * 1024  # bytes


class Unknown(Enum):
    """Says that the cache does not know."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN


class TaskCache:
    """One file (its name ends in CACHE) of values by key.

    ``keep`` is how many values are kept that were not used last.
    """

    def __init__(self, file: str, tasks: Tasks, *, keep: int = 0) -> None:
        self._file = file
        self._keep = keep
        self._purpose = _purpose(tasks)
        self._rows = _load_rows(file, self._purpose)
        self._values: dict[str, Value] = {}
        self._used: dict[str, None] = {}
        self._changed = False

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def get(self, found: FoundFile) -> Value | Unknown:
        """What is known of a find, if it did not change."""
        key = found.key
        row = self._rows.get(key)
        if row is None or tuple(row[0]) != found.stamp:
            return UNKNOWN
        self._used[key] = None
        if key not in self._values:
            try:
                self._values[key] = _value(row[1], found.path)
            except (LookupError, TypeError, ValueError, AttributeError, UsageError):
                return UNKNOWN
        return self._values[key]

    def put(self, found: FoundFile, value: Value) -> None:
        self._rows[found.key] = [list(found.stamp), _row(value)]
        self._values[found.key] = value
        self._used[found.key] = None
        self._changed = True

    def save(self) -> None:
        """Write it where anything changed, and begin a new round of use."""
        used, self._used = self._used, {}
        unused = [key for key in self._rows if key not in used]
        for key in unused[: max(0, len(unused) - self._keep)]:
            del self._rows[key]
            self._values.pop(key, None)
            self._changed = True
        if not self._changed:
            return
        self._changed = False
        kept = {key: self._rows[key] for key in unused if key in self._rows}
        self._rows = kept | {key: self._rows[key] for key in used}  # the last used come last
        value = {"format": FORMAT, "purpose": self._purpose, "rows": self._rows}
        with contextlib.suppress(OSError):
            make_folders(os.path.dirname(self._file))
            store_json(self._file, value)


def _load_rows(file: str, purpose: str) -> dict[str, list[Any]]:
    data = load_json(file, MAX_CACHE)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        return {}
    rows = data.get("rows")
    if data.get("purpose") != purpose or not isinstance(rows, dict):
        return {}
    good = all(
        type(row) is list and len(row) == 2 and type(row[0]) is list for row in rows.values()
    )
    return rows if good else {}


def _purpose(tasks: Tasks) -> str:
    words = [
        sorted(tasks.fields.items()),
        [[role, list(names)] for role, names in sorted(tasks.statuses.items())],
        list(tasks.files),
        list(tasks.completed),
        tasks.exempt,
        _digest_of_code(),
    ]
    return sha256(json.dumps(words).encode()).hexdigest()


def _digest_of_code() -> str:
    here = os.path.dirname(os.path.abspath(__file__))
    digest = sha256()
    with contextlib.suppress(OSError):
        own = (os.path.join(here, name) for name in sorted(os.listdir(here)))
        for path in (*own, edge.__file__, pattern.__file__, resource.__file__):
            if path.endswith(".py"):
                with open(path, "rb") as file:
                    digest.update(file.read())
    return digest.hexdigest()


def _row(value: Value) -> Any:
    if value is None:
        return None
    if isinstance(value, TaskProblem):
        return [value.message, sorted(value.keys)]
    said = {"resource": value.resource.text, "progress": value.progress.value}
    return non_defaults(value) | said


def _value(row: Any, file: str) -> Value:
    if row is None:
        return None
    if isinstance(row, list):
        message, keys = row
        return TaskProblem(printable(file, MAX_PATH), message, frozenset(keys))
    said: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in row.items()}
    said |= {"resource": name_resource(row["resource"]), "progress": Progress(row["progress"])}
    return Task(**said)
