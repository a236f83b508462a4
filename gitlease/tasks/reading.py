"""Reads tasks: out of the bytes of a file, and of whole places through a cache.

Everything in a file is untrusted, and stays text. Its YAML is the front matter of Markdown, or all
of a YAML file; what gitlease does not use is passed over. Places are characters of the text.
The cache knows a file by its stamp, or a blob by its id; it is of no use once the settings or this
code differ, and only saves work: where it cannot be read or written, everything goes on without.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from typing import Any, Final

from gitlease import __version__
from gitlease.kernel.git.files import CACHE, Unreadable, load_json, make_folders, store_json
from gitlease.kernel.git.mainline import GIT_CRYPT
from gitlease.kernel.git.plain_yaml import BadYaml, Node, Shape, read_yaml
from gitlease.kernel.ledger.ports import TaskList, TaskProblem, doing
from gitlease.kernel.rules import edge
from gitlease.kernel.rules.edge import Progress, Task
from gitlease.kernel.rules.errors import Invalid, UsageError, shown
from gitlease.kernel.rules.frozen import non_defaults, replace
from gitlease.kernel.rules.resources import (
    Resource,
    check_braces,
    fold,
    name_resource,
    path_resource,
    resolve_path,
)
from gitlease.kernel.settings.schema import FILE_STEM, Tasks
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

# --- the fields of a file ------------------------------------------------------------------------

MAX_FRONT_MATTER = 64 * 1024

_BOM = b"\xef\xbb\xbf"
_OPENING = re.compile(rb"---[ \t]*(?:\r\n|\n|\r)")
_CLOSING = re.compile(rb"[\r\n](?:---|\.\.\.)[ \t]*(?=[\r\n]|\Z)")
_MARKER = re.compile(rb"(?:\A|(?<=[\r\n]))(?:<{7}|={7}|>{7}|\|{7})(?=[ \r\n]|\Z)")
_CONFLICT = (
    re.compile(rb"[\r\n]<{7} "),
    re.compile(rb"[\r\n]={7}(?=[\r\n])"),
    re.compile(rb"[\r\n]>{7} "),
)
# With a byte order mark, or the `---` and the two bytes of each sign that editors save without one.
_UTF_16 = re.compile(rb"(?:\xff\xfe|\xfe\xff|-\x00-\x00-\x00|\x00-\x00-\x00-)")
# A colon needs a blank behind it: `12:30` and `https://x` in prose are no fields.
_FIELD_LINE = re.compile(rb"""(?:\A|[\r\n])[ \t{]*["']?[\w.-]+["']?[ \t]*:(?=[\s"']|\Z)""")
_EMPTY_LINE = re.compile(rb"(?:\n|\r(?!\n))[ \t]*[\r\n]")
# What no YAML reader takes; a byte order mark is for the first place of a file only.
_CONTROL = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


@dataclass(slots=True)
class Front:
    """The YAML of a task file: ``text`` is what stands from byte ``begin`` to byte ``end``."""

    file: str
    text: str
    begin: int
    end: int
    lines_before: int

    def line(self, place: int) -> int:
        """The line of the file, from 1, that a character of the text is in."""
        return self.lines_before + _count_line_ends(self.text[:place].encode()) + 1

    def bad(self, place: int, message: str, *hints: str) -> Invalid:
        """The error for a character of the text."""
        return bad(self.file, self.line(place), message, *hints)


def bad(file: str, line: int, message: str, *hints: str) -> Invalid:
    """The error for a line of a task file."""
    name = file if file.isprintable() else ascii(file)[1:-1]
    return Invalid(f"{name}:{line}: {message}", hints=hints)


def is_yaml(file: str) -> bool:
    """Return whether the whole file is YAML; any other is Markdown."""
    return file.lower().endswith((".yaml", ".yml"))


def find_front(data: bytes, file: str) -> Front | None:
    """The YAML that a file has, None where there is none.

    Raises Invalid when it is too large, has no end, has a merge conflict in it, or is no text.
    """
    if _UTF_16.match(data):
        raise bad(file, 1, "this is UTF-16, not UTF-8")
    if data.startswith(GIT_CRYPT):
        raise bad(file, 1, "this is encrypted with git-crypt", "unlock it with git-crypt unlock")
    begin = len(_BOM) if data.startswith(_BOM) else 0
    end, lines_before = len(data), 0
    if not is_yaml(file):
        opening = _OPENING.match(data, begin)
        if opening is None:
            # git could not merge two files that were both added.
            if _MARKER.match(data, begin) and _OPENING.match(data, data.find(b"\n", begin) + 1):
                raise _conflict(file, 1)  # git could not merge two files that were added
            return None
        begin, lines_before = opening.end(), 1
        closing = _CLOSING.search(data, begin - 1)
        if closing is None:
            # A lone rule of Markdown looks almost like front matter without an end.
            text = data[begin : begin + MAX_FRONT_MATTER].lstrip()
            gap = _EMPTY_LINE.search(text)
            if looks_like_fields(text[: gap.start()] if gap else text):
                raise bad(file, 1, "the front matter has no end", "end it with a line ---")
            return None
        end = closing.start() + 1
        if end - begin > MAX_FRONT_MATTER:
            raise bad(file, 1, f"the front matter is larger than {MAX_FRONT_MATTER // 1024} KiB")
    if len(data) > MAX_BYTES:
        raise bad(file, 1, f"the file is larger than {MAX_BYTES // 1024} KiB")
    return _text(data, Front(file, "", begin, max(begin, end), lines_before))


def looks_like_fields(data: bytes) -> bool:
    """Return whether a line is like ``key: value``: prose between two rules of Markdown is not."""
    return _FIELD_LINE.search(data) is not None


def conflict_behind(data: bytes, front: Front) -> Invalid | None:
    """The error for the first conflict that a merge left behind the front matter, if any."""
    place = first = front.end - 1
    for number, marker in enumerate(_CONFLICT):
        match = marker.search(data, max(0, place))
        if match is None:
            return None
        place = match.end() - 1
        if number == 0:
            first = match.start() + 1
    return _conflict(front.file, _count_line_ends(data[:first]) + 1)


def _text(data: bytes, front: Front) -> Front:
    part = data[front.begin : front.end]
    # Four searches for bytes cost less than the pattern, and hardly any file has one of them.
    if any(marker in part for marker in (b"<<<<<<<", b"=======", b">>>>>>>", b"|||||||")):
        match = _MARKER.search(part)
        if match:
            line = front.lines_before + _count_line_ends(part[: match.start()]) + 1
            raise _conflict(front.file, line)
    try:
        data.isascii() or data.decode()
    except UnicodeDecodeError as error:
        line = _count_line_ends(data[: error.start]) + 1
        raise bad(front.file, line, "this is not UTF-8") from None
    front.text = part.decode()
    control = _CONTROL.search(front.text)
    if control:
        raise front.bad(control.start(), f"it has a control character, {control[0]!a}")
    return front


def _conflict(file: str, line: int) -> Invalid:
    return bad(file, line, "there is a merge conflict", "resolve it, then try again")


def _count_line_ends(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


MAX_DEPTH = 40
# Backlog.md reads `assignee: @jo` and `assignee: [@jo]`, which is no YAML, as if it were quoted; so
# do we, and `- @jo` in a list, too, as people write it. The stand-in keeps every place.
_UNQUOTED = re.compile(r"(?m)^((?:assignee|reporter):[ \t]*)((?:\[.*?)?@.*)$")
_LISTED = re.compile(
    r"(?m)^(?:assignee|reporter):[ \t]*(?:#.*|\r)?\n"
    r"(?:[ \t]*(?:#.*|\r)?\n|[ \t]*-[ \t].*(?:\n|\Z))+"
)
_AT = re.compile(r"(?<![^\s\[,])@")
_LISTED_AT = re.compile(r"(?m)^([ \t]*-[ \t]+)@")
_STAND_IN = "\ue000"
# `assigned: -` means nobody to people, but YAML has no such value; this stand-in reads as one.
_LONE_DASH = re.compile(r"(?m)^([\w.-]+:[ \t]+)-(?=[ \t]*(?:[ \t]#.*)?\r?$)")
_DASH_STAND_IN = "\ue001"
_STAND_INS = str.maketrans({_STAND_IN: "@", _DASH_STAND_IN: "-"})


class FieldForm(Enum):
    """How the values of a field are written."""

    SCALAR = "a single value"
    BLOCK = "a block list"
    FLOW = "a list in brackets"
    OTHER = "a mapping"


@dataclass(slots=True)
class Field:
    """A field that was asked for; it is the ``entry``-th of the mapping, from 0.

    ``start`` and ``end`` are those of the value; a block list ends with its last item.
    """

    key: Node
    form: FieldForm
    items: list[Node]
    start: int
    end: int
    entry: int


@dataclass(slots=True)
class Document:
    """The mapping of a task file, and the fields that were asked for.

    ``entries`` has the first and the last place of every entry. ``close`` is where the mapping
    ends: at its closing brace when it is in flow style, else where a line can be added.
    ``list_indent`` is how far block lists are indented here. ``problem`` is the first fault found,
    and ``hidden_keys`` says that there may be more fields than can be seen.
    """

    front: Front
    root: Node
    close: int
    fields: dict[str, Field] = field(default_factory=dict)
    list_indent: int | None = None
    problem: Invalid | None = None
    hidden_keys: bool = False

    @property
    def entries(self) -> list[tuple[int, int]]:
        ends = {field.entry: field.end for field in self.fields.values()}
        pairs = enumerate(self.root.pairs)
        return [(key.start, ends.get(number, value.end)) for number, (key, value) in pairs]

    def bad(self, place: int, message: str, *hints: str) -> Invalid:
        """The error for a character of the text."""
        return self.front.bad(place, message, *hints)

    def fault(self, place: int, message: str, *hints: str) -> None:
        """Note a fault, which matters only if this is a task."""
        if self.problem is None:
            self.problem = self.bad(place, message, *hints)


def read_document(
    data: bytes, *, file: str, names: Collection[str], loosely: Collection[str] = ()
) -> Document | None:
    """The mapping that a file has, with the fields of these names; None where it has none.

    Raises Invalid for a file that is broken as a whole. Faults of single fields are noted, but for
    those that are read ``loosely``: whatever is odd about them is passed over.

    A field that is not named here may have anchors, aliases and tags. The file belongs to the
    project, whose other tools may need them, and nothing is expanded.
    """
    front = find_front(data, file)
    if front is None:
        return None
    try:
        root, end = read_yaml(as_yaml(front.text), max_depth=MAX_DEPTH + 1)
    except BadYaml as error:
        if not is_yaml(file) and not looks_like_fields(data[front.begin : front.end]):
            return None
        raise front.bad(error.place, error.message, *error.hints) from None
    if root is None or root.shape is not Shape.MAP:
        return None
    document = Document(front, root, root.end - 1 if root.flow else end)
    for number, (key, value) in enumerate(root.pairs):
        if document.list_indent is None and value.shape is Shape.LIST and not value.flow:
            document.list_indent = value.column - key.column
        if key.shape is Shape.TEXT and key.text in names:
            _take(document, key, value, number)
        # A label that is written oddly must not make the task unusable.
        elif key.shape is Shape.TEXT and key.text in loosely:
            sound = document.problem
            _take(document, key, value, number)
            document.problem = sound
        # Behind an alias or a merge key an id or an assignee may hide that nobody sees here.
        elif key.shape is Shape.ALIAS:
            _hide(document, key, "the name of a field must not be an alias")
        elif key.text == "<<" and not key.style:
            _hide(document, key, "merge keys are not supported")
    return document


def as_yaml(text: str) -> str:
    """The text with stand-ins for what people write although it is not YAML; places stay."""
    text = _UNQUOTED.sub(lambda x: x[1] + _AT.sub(_STAND_IN, x[2]), text)
    text = _LISTED.sub(lambda x: _LISTED_AT.sub(rf"\1{_STAND_IN}", x[0]), text)
    return _LONE_DASH.sub(rf"\1{_DASH_STAND_IN}", text)


def as_written(node: Node) -> Node:
    """A single value with what ``as_yaml`` replaced put back."""
    if _STAND_IN not in node.text and _DASH_STAND_IN not in node.text:
        return node
    return node._replace(text=node.text.translate(_STAND_INS))


def outline(document: Document, without: Collection[str]) -> list[object]:
    """All that the text says but for some fields, to compare: comments and blanks do not count."""
    return [
        (_meaning(key), _meaning(value))
        for key, value in document.root.pairs
        if key.shape is not Shape.TEXT or key.text not in without
    ]


def _meaning(node: Node) -> tuple[object, ...]:
    inner = [_meaning(child) for child in node.nodes]
    return (node.shape, node.text, node.style, node.anchor, node.tag, inner)


def _hide(document: Document, key: Node, message: str) -> None:
    document.hidden_keys = True
    document.fault(key.start, message, "write the fields out")


def _take(document: Document, key: Node, value: Node, number: int) -> None:
    _check_plain(document, key)
    form, items = _values(document, value)
    # The parser's block list goes on to the next key: what is put in there would follow the
    # comments.
    end = items[-1].end if form is FieldForm.BLOCK and items else value.end
    if key.text in document.fields:
        first = document.front.line(document.fields[key.text].key.start)
        document.fault(key.start, f"{shown(key.text)} is here twice, first in line {first}")
    else:
        document.fields[key.text] = Field(key, form, items, value.start, end, number)


def _values(document: Document, value: Node) -> tuple[FieldForm, list[Node]]:
    _check_plain(document, value)
    if value.shape is Shape.TEXT:
        return FieldForm.SCALAR, [as_written(value)]
    if value.shape is not Shape.LIST:
        return FieldForm.OTHER, []
    items = []
    for item in value.nodes:
        if item.shape is Shape.TEXT:
            _check_plain(document, item)
            items.append(as_written(item))
        else:
            document.fault(item.start, "an entry must be a single value")
    return FieldForm.FLOW if value.flow else FieldForm.BLOCK, items


def _check_plain(document: Document, node: Node) -> None:
    if node.anchor or node.tag:
        hint = "put a value that begins with *, & or ! in quotes"
        message = "aliases, anchors and tags are not supported here"
        document.fault(node.start, message, hint)


# --- the task of a file --------------------------------------------------------------------------

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
    # Labels only exempt a task from `stale`: what is odd about them is no reason to refuse it.
    names, marks = field_names(tasks), frozenset((*LABELS, tasks.exempt))
    document = read_document(data, file=file, names=frozenset(names.values()), loosely=marks)
    return None if document is None else task_of(document, names, tasks)


def value_of(data: bytes, *, file: str, tasks: Tasks, wanted: Wanted) -> Value:
    """Read the bytes of a file in the place of a task file. Never raises."""
    try:
        if not is_utf8(file):
            raise Invalid(f"{file}: the name of this file is not UTF-8")
        if len(data) > MAX_BYTES:
            raise Invalid(f"{file} is larger than {MAX_BYTES // 1024} KiB")
        task = read_task(data, file=file, tasks=tasks)
    except Invalid as error:
        # The task stays taken: a broken file stands in the way of the ids that it may have.
        return problem_of(file, error.message, possible_keys(data, file=file, tasks=tasks))
    if task is not None and wanted.done(file):
        return replace(task, progress=Progress.DONE)
    return task


def is_utf8(file: str) -> bool:
    """Return whether the name of a file is text."""
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
    id_field, by_stem = fields["id"], names["id"] == FILE_STEM
    # A fault matters only in what is a task, or may be one as far as can be seen.
    if document.problem is not None and (id_field or by_stem or document.hidden_keys):
        raise document.problem
    if by_stem:
        file = document.front.file
        resource = _leasable(stem_of(file), lambda why: bad(file, 1, why))
    elif id_field is None:
        return None
    else:
        text = _single(document, id_field)
        if not text:
            raise document.bad(id_field.key.start, f"{shown(id_field.key.text)} is empty")
        resource = _leasable(text, lambda why: document.bad(id_field.start, why))

    # A check points to the line that says who has it.
    line = fields["assigned"] or id_field
    status = _single(document, fields["status"])
    return Task(
        resource=resource,
        file=document.front.file,
        title=_single(document, fields["title"], MAX_TITLE),
        status=status,
        progress=_progress(status, tasks),
        assigned=tuple(
            x.text
            for x in _list_or_single(document, fields["assigned"])
            if not edge.means_nobody(x.text)
        ),
        priority=_single(document, fields["priority"]),
        depends_on=_ids_of(document, fields["depends_on"]),
        paths=tuple(_path(document, x) for x in _list_or_single(document, fields["paths"])),
        created=_single(document, fields["created"]),
        line=document.front.line(line.key.start if line else 0),
        exempt=_is_exempt(document, fold(tasks.exempt)),
    )


def guess_ids(data: bytes, *, tasks: Tasks) -> frozenset[str]:
    """The folded ids that a file may be about which cannot be read: both sides of a conflict, say.

    Looks for lines ``id: value`` in the first 64 KiB. Never raises.
    """
    # Refused as UTF-16, and still readable for its id.
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = data[:GUESS_BYTES].decode("utf-16" if wide else "utf-8", "replace")
    name = re.escape(tasks.fields.get("id", "id"))
    value = r""""([^"\r\n]*)"|'([^'\r\n]*)'|([^\s,}"']+)"""
    line = rf"""(?:\A\ufeff?|[\r\n{{,])[ \t]*["']?{name}["']?[ \t]*:[ \t]*(?:{value})"""
    guesses = set()
    for match in re.finditer(line, text):
        word = next(filter(None, match.groups()), "")
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


def _leasable(text: str, bad: Callable[[str], Invalid]) -> Resource:
    try:
        return name_resource(text)
    except UsageError as error:
        raise bad(f"this task cannot be leased: {error.message}") from None


def _single(document: Document, field: Field | None, limit: int = MAX_TEXT) -> str:
    if field is None:
        return ""
    if field.form is not FieldForm.SCALAR:
        raise _misshapen(document, field, "a single value")
    item = field.items[0]
    return "" if item.null else _short(document, field, item, limit)


def _list_or_single(document: Document, field: Field | None) -> list[Node]:
    if field is None:
        return []
    if field.form is FieldForm.OTHER:
        raise _misshapen(document, field, "a list")
    if len(field.items) > MAX_ENTRIES:
        message = f"{shown(field.key.text)} has more than {MAX_ENTRIES} entries"
        raise document.bad(field.key.start, message)
    items = [item for item in field.items if item.says_something]
    for item in items:
        _short(document, field, item, MAX_TEXT)
    return items


def _ids_of(document: Document, field: Field | None) -> tuple[str, ...]:
    items = _list_or_single(document, field)
    # `deps: T1, T2` is meant as two: no id has a comma or a blank in it.
    if field is not None and field.form is FieldForm.SCALAR:
        words = (word for item in items for word in re.split(r"[,\s]+", item.text))
        return tuple(filter(None, words))
    return tuple(item.text for item in items)


def _short(document: Document, field: Field, item: Node, limit: int) -> str:
    if len(item.text) > limit:
        message = f"{shown(field.key.text)} is longer than {limit} characters"
        raise document.bad(item.start, message)
    return item.text


def _misshapen(document: Document, field: Field, wanted: str) -> Invalid:
    message = f"{shown(field.key.text)} must be {wanted}, not {field.form.value}"
    return document.bad(field.key.start, message)


def _path(document: Document, item: Node) -> str:
    try:
        check_braces(item.text)
        pattern = resolve_path(item.text)
        path_resource(pattern)
    except UsageError as error:
        raise document.bad(item.start, error.message, *error.hints) from None
    return pattern


def _is_exempt(document: Document, word: str) -> bool:
    """Return whether a label is this word, or a field that is called so says anything but no."""
    for name, marked in document.fields.items():
        called = fold(name) == word
        if not called and name not in LABELS:
            continue
        parts = [part for item in marked.items if not item.null for part in item.text.split(",")]
        words = {fold(part.strip().removeprefix("#")) for part in parts}
        other = marked.form is FieldForm.OTHER
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

    def get(self, file: FoundFile) -> Value | Unknown:
        """The remembered reading of a file, if it did not change."""
        key = file.key
        row = self._rows.get(key)
        # JSON has a list where the stamp is a tuple.
        if row is None or tuple(row[0]) != file.stamp:
            return UNKNOWN
        self._used[key] = None
        if key not in self._values:
            try:
                self._values[key] = _value(row[1], file.path)
            # A damaged row counts as unknown: its file is parsed again.
            except (LookupError, TypeError, ValueError, AttributeError, UsageError):
                return UNKNOWN
        return self._values[key]

    def put(self, file: FoundFile, value: Value) -> None:
        self._rows[file.key] = [list(file.stamp), _row(value)]
        self._values[file.key] = value
        self._used[file.key] = None
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
        # A cache: where it cannot be written, the next command parses again.
        # Where the cache cannot be written, the next command parses again.
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


# Code decides what a text means, too: an upgrade must not answer from what the older one read. The
# version says which code that is: what is installed does not change under one version. In an
# editable install it does: whoever changes there what is read from a task file raises FORMAT.
def _purpose(tasks: Tasks) -> str:
    words = [
        sorted(tasks.fields.items()),
        [[role, list(names)] for role, names in sorted(tasks.statuses.items())],
        list(tasks.files),
        list(tasks.completed),
        tasks.exempt,
        __version__,
    ]
    return sha256(json.dumps(words).encode()).hexdigest()


def _row(value: Value) -> Any:
    if value is None:
        return None
    if isinstance(value, TaskProblem):
        return [value.message, sorted(value.keys)]
    changed = {"resource": value.resource.text, "progress": value.progress.value}
    return non_defaults(value) | changed


def _value(row: Any, file: str) -> Value:
    if row is None:
        return None
    if isinstance(row, list):
        message, keys = row
        return TaskProblem(printable(file, MAX_PATH), message, frozenset(keys))
    values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in row.items()}
    values |= {"resource": name_resource(row["resource"]), "progress": Progress(row["progress"])}
    return Task(**values)


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
        # Files that the cache has need no pattern: other settings have another cache.
        for each in walk(place, cache) if only is None else only:
            if each.kind is FileKind.PROBLEM:
                problems.append(problem_of(each.path, each.message))
            elif each.kind is FileKind.LINK:
                links.append(each)
            else:
                value = cache.get(each)
                values[each.path] = self._parse(place, each, cache) if value is UNKNOWN else value
        cache.save()
        for each in links:
            target, data = place.linked(each.path)
            if target not in values:  # or else it is another name of what was read already
                keys = possible_keys(data, file=each.path, tasks=self._tasks)
                problems.append(problem_of(each.path, each.message, keys))
        problems += [value for value in values.values() if isinstance(value, TaskProblem)]
        # Neither of two files with one id is the task: an edit of the one would leave the other.
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

    def _parse(self, place: TaskPlace, file: FoundFile, cache: TaskCache) -> Value:
        try:
            content = place.load(file)
        except Unreadable as error:
            return problem_of(file.path, f"{printable(file.path)} {error}")
        if content is None:
            return None
        self.parsed += 1
        value = value_of(content.data, file=file.path, tasks=self._tasks, wanted=place.wanted)
        # So soon after a change the next one may leave the same time and size behind.
        if content.settled and is_utf8(file.path):
            cache.put(file._replace(stamp=content.stamp), value)
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
