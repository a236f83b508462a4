"""Reads the fields of a task file, without changing or interpreting anything.

The YAML of a file is the front matter of Markdown, or all of a YAML file. What gitlease does not
use is passed over. Places are characters of the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum

from gitlease.core.errors import Invalid, shown
from gitlease.git.yaml_nodes import BadYaml, Node, Shape, read_yaml
from gitlease.tasks.scan import MAX_BYTES

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
_UTF_16 = re.compile(rb"(?:\xff\xfe|\xfe\xff|-\x00-\x00-\x00|\x00-\x00-\x00-)")
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
    """Whether the whole file is YAML; any other is Markdown."""
    return file.lower().endswith((".yaml", ".yml"))


def find_front(data: bytes, file: str) -> Front | None:
    """The YAML that a file has, None where there is none.

    Raises Invalid when it is too large, has no end, has a merge conflict in it, or is no text.
    """
    if _UTF_16.match(data):
        raise bad(file, 1, "this is UTF-16, not UTF-8")
    begin = len(_BOM) if data.startswith(_BOM) else 0
    end, lines_before = len(data), 0
    if not is_yaml(file):
        opening = _OPENING.match(data, begin)
        if opening is None:
            if _MARKER.match(data, begin) and _OPENING.match(data, data.find(b"\n", begin) + 1):
                raise _conflict(file, 1)  # git could not merge two files that were added
            return None
        begin, lines_before = opening.end(), 1
        closing = _CLOSING.search(data, begin - 1)
        if closing is None:
            _refuse_open_front_matter(data[begin : begin + MAX_FRONT_MATTER], file)
            return None
        end = closing.start() + 1
        if end - begin > MAX_FRONT_MATTER:
            raise bad(file, 1, f"the front matter is larger than {MAX_FRONT_MATTER // 1024} KiB")
    if len(data) > MAX_BYTES:
        raise bad(file, 1, f"the file is larger than {MAX_BYTES // 1024} KiB")
    return _text(data, Front(file, "", begin, max(begin, end), lines_before))


def looks_like_fields(data: bytes) -> bool:
    """Whether a line is like ``key: value``: prose between two rules of Markdown is not."""
    return _FIELD_LINE.search(data) is not None


def conflict_behind(data: bytes, front: Front) -> Invalid | None:
    """The error for the first conflict that a merge left behind the front matter, if any."""
    place = first = front.end - 1
    for number, marker in enumerate(_CONFLICT):
        found = marker.search(data, max(0, place))
        if found is None:
            return None
        place = found.end() - 1
        if number == 0:
            first = found.start() + 1
    return _conflict(front.file, _count_line_ends(data[:first]) + 1)


def _refuse_open_front_matter(data: bytes, file: str) -> None:
    text = data.lstrip()
    gap = _EMPTY_LINE.search(text)
    if looks_like_fields(text[: gap.start()] if gap else text):
        raise bad(file, 1, "the front matter has no end", "end it with a line ---")


def _text(data: bytes, front: Front) -> Front:
    part = data[front.begin : front.end]
    if any(marker in part for marker in (b"<<<<<<<", b"=======", b">>>>>>>", b"|||||||")):
        found = _MARKER.search(part)
        if found:
            line = front.lines_before + _count_line_ends(part[: found.start()]) + 1
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
    ends: at its closing brace when it is in ``flow`` style, else where a line can be added.
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
    def text(self) -> str:
        return self.front.text

    @property
    def entries(self) -> list[tuple[int, int]]:
        ends = {one.entry: one.end for one in self.fields.values()}
        pairs = enumerate(self.root.pairs)
        return [(key.start, ends.get(number, value.end)) for number, (key, value) in pairs]

    @property
    def flow(self) -> bool:
        return self.root.flow

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
    """
    front = find_front(data, file)
    if front is None:
        return None
    try:
        text = _LISTED.sub(_listed_without_at, _UNQUOTED.sub(_without_at, front.text))
        root, end = read_yaml(text, max_depth=MAX_DEPTH + 1)
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
        elif key.shape is Shape.TEXT and key.text in loosely:
            sound = document.problem
            _take(document, key, value, number)
            document.problem = sound
        elif key.shape is Shape.ALIAS:
            _hide(document, key, "the name of a field must not be an alias")
        elif key.text == "<<" and not key.style:
            _hide(document, key, "merge keys are not supported")
    return document


def _without_at(line: re.Match[str]) -> str:
    return line[1] + _AT.sub(_STAND_IN, line[2])


def _listed_without_at(field: re.Match[str]) -> str:
    return _LISTED_AT.sub(rf"\1{_STAND_IN}", field[0])


def _with_at(node: Node) -> Node:
    if _STAND_IN not in node.text:
        return node
    return node._replace(text=node.text.replace(_STAND_IN, "@"))


def outline(document: Document, without: Collection[str]) -> list[object]:
    """All that the text says but for some fields, to compare: comments and blanks do not count."""
    return [
        (_meaning(key), _meaning(value))
        for key, value in document.root.pairs
        if key.shape is not Shape.TEXT or key.text not in without
    ]


def _meaning(node: Node) -> tuple[object, ...]:
    inner = [_meaning(one) for one in node.nodes]
    return (node.shape, node.text, node.style, node.anchor, node.tag, inner)


def _hide(document: Document, key: Node, message: str) -> None:
    document.hidden_keys = True
    document.fault(key.start, message, "write the fields out")


def _take(document: Document, key: Node, value: Node, number: int) -> None:
    _check_plain(document, key)
    form, items = _values(document, value)
    end = items[-1].end if form is FieldForm.BLOCK and items else value.end
    if key.text in document.fields:
        first = document.front.line(document.fields[key.text].key.start)
        document.fault(key.start, f"{shown(key.text)} is here twice, first in line {first}")
    else:
        document.fields[key.text] = Field(key, form, items, value.start, end, number)


def _values(document: Document, value: Node) -> tuple[FieldForm, list[Node]]:
    _check_plain(document, value)
    if value.shape is Shape.TEXT:
        return FieldForm.SCALAR, [_with_at(value)]
    if value.shape is not Shape.LIST:
        return FieldForm.OTHER, []
    items = []
    for item in value.nodes:
        if item.shape is Shape.TEXT:
            _check_plain(document, item)
            items.append(_with_at(item))
        else:
            document.fault(item.start, "an entry must be a single value")
    return FieldForm.FLOW if value.flow else FieldForm.BLOCK, items


def _check_plain(document: Document, node: Node) -> None:
    if node.anchor or node.tag:
        hint = "put a value that begins with *, & or ! in quotes"
        message = "aliases, anchors and tags are not supported here"
        document.fault(node.start, message, hint)
