"""Reads one task out of the bytes of its file: everything in it is untrusted, and stays text."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container, Iterable, Mapping, Sequence

from gitlease.core.edge import Progress, Task
from gitlease.core.errors import Invalid, UsageError, shown
from gitlease.core.frozen import replace
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import (
    Resource,
    check_braces,
    name_resource,
    path_resource,
    resolve_path,
)
from gitlease.engine.ports import TaskProblem
from gitlease.git.yaml_nodes import Node
from gitlease.settings.schema import FILE_STEM
from gitlease.settings.sources import Tasks
from gitlease.tasks.fields import Document, Field, FieldForm, read_document
from gitlease.tasks.front_matter import Front, bad, find_front
from gitlease.tasks.plain import NeedsParser, read_plain_fields
from gitlease.tasks.scan import MAX_BYTES, MAX_PATH, Wanted, printable

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
    front = find_front(data, file)
    if front is None:
        return None
    names = field_names(tasks)
    marks = frozenset((*LABELS, tasks.exempt))
    try:
        return _task_of_plain_fields(front, names, marks, tasks)
    except (NeedsParser, UsageError):
        pass  # it is not what it seemed, or something is wrong: the parser knows where
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
    assigned = fields["assigned"]
    said = [
        (name, [x.text for x in field.items if not x.null], field.form is FieldForm.OTHER)
        for name, field in document.fields.items()
    ]
    status = _single(document, fields["status"])
    return Task(
        resource=resource,
        file=document.front.file,
        title=_single(document, fields["title"], MAX_TITLE),
        status=status,
        progress=_progress(status, tasks),
        assigned=tuple(item.text for item in _list_or_single(document, assigned)),
        priority=_single(document, fields["priority"]),
        depends_on=tuple(item.text for item in _list_or_single(document, fields["depends_on"])),
        paths=tuple(_path(document, item) for item in _list_or_single(document, fields["paths"])),
        created=_single(document, fields["created"]),
        line=document.front.line(marked.key.start if (marked := assigned or found) else 0),
        exempt=_is_exempt(said, fold(tasks.exempt)),
    )


def _task_of_plain_fields(
    front: Front, names: Mapping[str, str], marks: Container[str], tasks: Tasks
) -> Task | None:
    fields = read_plain_fields(front.text)

    def single(role: str, limit: int = MAX_TEXT) -> str:
        field = fields.get(names[role])
        text = field.texts[0] if field and field.texts else ""
        if (field and not field.single) or len(text) > limit:
            raise NeedsParser
        return text

    def several(role: str) -> list[str]:
        field = fields.get(names[role])
        texts = field.texts if field else []
        if len(texts) > MAX_ENTRIES or any(len(text) > MAX_TEXT for text in texts):
            raise NeedsParser
        return [text for text in texts if text.strip()]

    by_stem = names["id"] == FILE_STEM and bool(fields)
    if not by_stem and names["id"] not in fields:
        return None
    marked = fields.get(names["assigned"]) or fields.get(names["id"])
    status, wanted = single("status"), set(names.values())
    return Task(
        resource=_named_by_stem(front.file) if by_stem else name_resource(single("id")),
        file=front.file,
        title=single("title", MAX_TITLE),
        status=status,
        progress=_progress(status, tasks),
        assigned=tuple(several("assigned")),
        priority=single("priority"),
        depends_on=tuple(several("depends_on")),
        paths=tuple(map(_checked_pattern, several("paths"))),
        created=single("created"),
        line=front.lines_before + (marked.line if marked else 1),
        exempt=_is_exempt(
            [(x, f.texts, False) for x, f in fields.items() if x in wanted or x in marks],
            fold(tasks.exempt),
        ),
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
        return _checked_pattern(item.text)
    except UsageError as error:
        raise document.bad(item.start, error.message, *error.hints) from None


def _checked_pattern(text: str) -> str:
    check_braces(text)
    pattern = resolve_path(text)
    path_resource(pattern)
    return pattern


def _is_exempt(fields: Iterable[tuple[str, Sequence[str], bool]], word: str) -> bool:
    """Whether a label is this word, or a field that is called so says anything but no.

    A field is its name, its texts that are not null, and whether it is more than that.
    """
    for name, texts, more in fields:
        called = fold(name) == word
        if not called and name not in LABELS:
            continue
        parts = [part for text in texts for part in text.split(",")]
        said = {fold(part.strip().removeprefix("#")) for part in parts}
        if (called and (more or said - NO)) or (name in LABELS and word in said):
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
