"""Reads tasks: out of the bytes of a file, and of whole places through a cache.

Everything in a file is untrusted, and stays text. The cache knows a file by its stamp, or a blob by
its id; it is of no use once the settings or this code differ,
and only saves work: where it cannot be read or written, everything goes on without.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import re
from collections.abc import Iterable, Sequence
from enum import Enum
from hashlib import sha256
from typing import Any, Final

from gitlease.core import edge
from gitlease.core.edge import Progress, Task
from gitlease.core.errors import Invalid, UsageError, shown
from gitlease.core.frozen import non_defaults, replace
from gitlease.core.resources import pattern, resource
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import (
    Resource,
    check_braces,
    name_resource,
    path_resource,
    resolve_path,
)
from gitlease.engine.ports import TaskList, TaskProblem, doing
from gitlease.git.files import CACHE, Unreadable, load_json, make_folders, store_json
from gitlease.git.yaml_nodes import Node
from gitlease.settings.schema import FILE_STEM
from gitlease.settings.sources import Tasks
from gitlease.tasks.fields import (
    Document,
    Field,
    FieldForm,
    bad,
    read_document,
)
from gitlease.tasks.scan import (
    MAX_BYTES,
    MAX_PATH,
    FileKind,
    FoundFile,
    TaskPlace,
    Wanted,
    printable,
    walk,
    why_no_task,
)

Value = Task | TaskProblem | None
"""What a file says: a task, why it is none although it looks like one, or that it is none."""

MAX_TEXT = 512
MAX_TITLE = 1000
MAX_MESSAGE = 600
MAX_ENTRIES = 256
GUESS_BYTES = 64 * 1024
MAX_GUESSES = 64

ROLES = ("id", "title", "status", "assigned", "priority", "depends_on", "paths", "created")
LABELS = ("labels", "tags")
NO = frozenset({"", "false", "no", "off", "0"})


def field_names(tasks: Tasks) -> dict[str, str]:
    """The name in task files of each field that gitlease uses."""
    return {role: tasks.fields.get(role, role) for role in ROLES}


def read_task(data: bytes, *, file: str, tasks: Tasks) -> Task | None:
    """The task that the bytes of a file say; None when it is no task, and has no id field.

    ``file`` is relative to the root: for messages, for the format (``.yaml``, ``.yml``, else
    Markdown with front matter), and for the task. Raises Invalid, which names file and line, for
    whatever is broken.
    """
    names, marks = field_names(tasks), frozenset((*LABELS, tasks.exempt))
    document = read_document(data, file=file, names=frozenset(names.values()), loosely=marks)
    return None if document is None else task_of(document, names, tasks)


def value_of(data: bytes, *, file: str, tasks: Tasks, wanted: Wanted) -> Value:
    """What the bytes of a file in the place of a task file say. Never raises."""
    try:
        if not is_utf8(file):
            raise Invalid(f"{file}: the name of this file is not UTF-8")
        if len(data) > MAX_BYTES:
            raise Invalid(f"{file} is larger than {MAX_BYTES // 1024} KiB")
        task = read_task(data, file=file, tasks=tasks)
    except Invalid as error:
        return problem_of(file, error.message, possible_keys(data, file=file, tasks=tasks))
    if task is not None and wanted.done(file):
        return replace(task, progress=Progress.DONE)
    return task


def is_utf8(file: str) -> bool:
    """Whether the name of a file is text."""
    try:
        file.encode()
    except UnicodeEncodeError:
        return False
    return True


def problem_of(file: str, message: str, keys: Iterable[str] = ()) -> TaskProblem:
    """The problem of a file, fit for a terminal."""
    shown = printable(message, MAX_MESSAGE)
    return TaskProblem(printable(file, MAX_PATH), shown, frozenset(keys))


def possible_keys(data: bytes, *, file: str, tasks: Tasks) -> frozenset[str]:
    """The folded ids that a file may be about which cannot be used: by its text, and by its name.

    ``back-7 - Title.md`` may be back-7.
    """
    stem = stem_of(file)
    by_name = frozenset(fold(word) for word in (stem, *stem.split()[:1]))
    return guess_ids(data, tasks=tasks) | by_name


def task_of(document: Document, names: dict[str, str], tasks: Tasks) -> Task | None:
    """The task that a document with the fields of these names is, if it is one. Raises Invalid."""
    fields = {role: document.fields.get(name) for role, name in names.items()}
    found, by_stem = fields["id"], names["id"] == FILE_STEM
    if document.problem is not None and (found or by_stem or document.hidden_keys):
        raise document.problem
    if by_stem:
        resource = _named_by_stem(document.front.file)
    elif found is None:
        return None
    else:
        resource = _resource(document, found)

    def single(role: str, limit: int = MAX_TEXT) -> str:
        return _single(document, fields[role], limit)

    def several(role: str) -> list[Node]:
        return _list_or_single(document, fields[role])

    status, line = single("status"), fields["assigned"] or found
    return Task(
        resource=resource,
        file=document.front.file,
        title=single("title", MAX_TITLE),
        status=status,
        progress=_progress(status, tasks),
        assigned=tuple(item.text for item in several("assigned")),
        priority=single("priority"),
        depends_on=tuple(item.text for item in several("depends_on")),
        paths=tuple(_path(document, item) for item in several("paths")),
        created=single("created"),
        line=document.front.line(line.key.start if line else 0),
        exempt=_is_exempt(document, fold(tasks.exempt)),
    )


def guess_ids(data: bytes, *, tasks: Tasks) -> frozenset[str]:
    """The folded ids that a file may be about which cannot be read: both sides of a conflict, say.

    Looks for lines ``id: value`` in the first 64 KiB. Never raises.
    """
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = data[:GUESS_BYTES].decode("utf-16" if wide else "utf-8", "replace")
    name = re.escape(tasks.fields.get("id", "id"))
    value = r""""([^"\r\n]*)"|'([^'\r\n]*)'|([^\s,}"']+)"""
    line = rf"""(?:\A\ufeff?|[\r\n{{,])[ \t]*["']?{name}["']?[ \t]*:[ \t]*(?:{value})"""
    guesses = set()
    for found in re.finditer(line, text):
        word = next(filter(None, found.groups()), "")
        try:
            guesses.add(name_resource(word).key)
        except UsageError:
            continue
        if len(guesses) == MAX_GUESSES:
            break
    return frozenset(guesses)


def stem_of(file: str) -> str:
    """The name of a file without its extension."""
    return posixpath.splitext(posixpath.basename(file))[0]


def _named_by_stem(file: str) -> Resource:
    """The task that a file's name stands for. Raises Invalid."""
    try:
        return name_resource(stem_of(file))
    except UsageError as error:
        raise bad(file, 1, f"this task cannot be leased: {error.message}") from None


def _resource(document: Document, found: Field) -> Resource:
    text = _single(document, found)
    if not text:
        raise document.bad(found.key.start, f"{shown(found.key.text)} is empty")
    try:
        return name_resource(text)
    except UsageError as error:
        raise document.bad(found.start, f"this task cannot be leased: {error.message}") from None


def _single(document: Document, found: Field | None, limit: int = MAX_TEXT) -> str:
    if found is None:
        return ""
    if found.form is not FieldForm.SCALAR:
        raise _misshapen(document, found, "a single value")
    item = found.items[0]
    return "" if item.null else _short(document, found, item, limit)


def _list_or_single(document: Document, found: Field | None) -> list[Node]:
    if found is None:
        return []
    if found.form is FieldForm.OTHER:
        raise _misshapen(document, found, "a list")
    if len(found.items) > MAX_ENTRIES:
        message = f"{shown(found.key.text)} has more than {MAX_ENTRIES} entries"
        raise document.bad(found.key.start, message)
    items = [item for item in found.items if item.says_something]
    for item in items:
        _short(document, found, item, MAX_TEXT)
    return items


def _short(document: Document, found: Field, item: Node, limit: int) -> str:
    if len(item.text) > limit:
        message = f"{shown(found.key.text)} is longer than {limit} characters"
        raise document.bad(item.start, message)
    return item.text


def _misshapen(document: Document, found: Field, wanted: str) -> Invalid:
    message = f"{shown(found.key.text)} must be {wanted}, not {found.form.value}"
    return document.bad(found.key.start, message)


def _path(document: Document, item: Node) -> str:
    try:
        check_braces(item.text)
        pattern = resolve_path(item.text)
        path_resource(pattern)
    except UsageError as error:
        raise document.bad(item.start, error.message, *error.hints) from None
    return pattern


def _is_exempt(document: Document, word: str) -> bool:
    """Whether a label is this word, or a field that is called so says anything but no."""
    for name, field in document.fields.items():
        called = fold(name) == word
        if not called and name not in LABELS:
            continue
        parts = [part for item in field.items if not item.null for part in item.text.split(",")]
        words = {fold(part.strip().removeprefix("#")) for part in parts}
        other = field.form is FieldForm.OTHER
        if (called and (other or words - NO)) or (name in LABELS and word in words):
            return True
    return False


def _progress(status: str, tasks: Tasks) -> Progress:
    word = fold(status.strip())
    if not word:
        return Progress.TODO
    for progress in (Progress.TODO, Progress.IN_PROGRESS, Progress.DONE):
        if any(fold(known.strip()) == word for known in tasks.statuses.get(progress.value, ())):
            return progress
    return Progress.OTHER


# --- a cache ------------------------------------------------------------------------------------

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


# --- places --------------------------------------------------------------------------------------

REFS = "refs"
KEPT_OF_REFS = 20_000  # files of refs that stay remembered when another ref was read last


class TaskReader:
    """Reads places with one cache for each, in a folder of private state."""

    def __init__(self, tasks: Tasks, folder: str) -> None:
        self.parsed = 0
        self._tasks = tasks
        self._folder = folder
        self._caches: dict[str, TaskCache] = {}

    def read(
        self, place: TaskPlace, name: str, only: Iterable[FoundFile] | None = None
    ) -> TaskList:
        """Every task of a place, or those of some finds; ``name`` is that of its cache.

        Raises Invalid for too many.
        """
        with doing("reading task files"):
            if name not in self._caches:
                file = os.path.join(self._folder, name + CACHE)
                keep = KEPT_OF_REFS if name == REFS else 0
                self._caches[name] = TaskCache(file, self._tasks, keep=keep)
            return self._read(place, self._caches[name], only)

    def _read(
        self, place: TaskPlace, cache: TaskCache, only: Iterable[FoundFile] | None
    ) -> TaskList:
        values: dict[str, Value] = {}
        links: list[FoundFile] = []
        problems: list[TaskProblem] = []
        for found in walk(place, cache) if only is None else only:
            if found.kind is FileKind.PROBLEM:
                problems.append(problem_of(found.path, found.message))
            elif found.kind is FileKind.LINK:
                links.append(found)
            else:
                value = cache.get(found)
                values[found.path] = self._parse(place, found, cache) if value is UNKNOWN else value
        cache.save()
        for found in links:
            target, data = place.linked(found.path)
            if target not in values:  # or else it is another name of what was read already
                keys = possible_keys(data, file=found.path, tasks=self._tasks)
                problems.append(problem_of(found.path, found.message, keys))
        problems += [value for value in values.values() if isinstance(value, TaskProblem)]
        tasks, doubles = _split_by_unique_id(
            [value for value in values.values() if isinstance(value, Task)]
        )
        others = tuple(sorted(printable(file) for file, value in values.items() if value is None))
        return TaskList(
            tasks=tuple(sorted(tasks, key=lambda task: task.file)),
            problems=tuple(sorted([*problems, *doubles], key=lambda problem: problem.file)),
            others=others,
            nothing="" if tasks else why_no_task(self._tasks, others),
        )

    def _parse(self, place: TaskPlace, found: FoundFile, cache: TaskCache) -> Value:
        try:
            content = place.load(found)
        except Unreadable as error:
            return problem_of(found.path, f"{printable(found.path)} {error}")
        if content is None:
            return None
        self.parsed += 1
        value = value_of(content.data, file=found.path, tasks=self._tasks, wanted=place.wanted)
        if content.settled and is_utf8(found.path):
            cache.put(found._replace(stamp=content.stamp), value)
        return value


def _split_by_unique_id(tasks: Sequence[Task]) -> tuple[list[Task], list[TaskProblem]]:
    files: dict[str, list[Task]] = {}
    for task in tasks:
        files.setdefault(task.resource.key, []).append(task)
    doubles = []
    for task in tasks:
        if others := [x for x in files[task.resource.key] if x is not task]:
            first = printable(min(other.file for other in others))
            more = f" and of {len(others) - 1} more" if len(others) > 1 else ""
            place = f"{printable(task.file)}:{task.line}"
            message = f"{place}: {task.resource} is the id of {first}{more} as well"
            problem = problem_of(task.file, message, (task.resource.key,))
            doubles.append(replace(problem, double=True))
    return [same[0] for same in files.values() if len(same) == 1], doubles
