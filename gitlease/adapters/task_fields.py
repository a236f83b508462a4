"""Where the fields of a task file stand, without changing or interpreting anything.

The parser's events are read, never values: every text stays as it is written (``0012``, ``no``),
no alias is expanded, and what gitlease does not use is passed over. Places are characters of
``Document.text``; the marks of the parser count those as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from gitlease.adapters.settings_schema import shown
from gitlease.adapters.task_front import Front, find_front, is_yaml, looks_like_fields
from gitlease.domain.errors import Invalid

MAX_DEPTH = 40
MAX_EVENTS = 100_000
NULLS = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(slots=True)
class Scalar:
    """One text and where it stands. ``style`` is what it begins with; ``""`` is plain."""

    text: str
    start: int
    end: int
    style: str

    @property
    def null(self) -> bool:
        return not self.style and self.text in NULLS

    @property
    def says_something(self) -> bool:
        """Whether it is neither null nor blank."""
        return not self.null and bool(self.text.strip())


class Form(Enum):
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

    key: Scalar
    form: Form
    items: list[Scalar]
    start: int
    end: int
    entry: int


@dataclass(slots=True)
class Document(Front):
    """The mapping of a task file, and the fields that were asked for.

    ``entries`` has the first and the last place of every entry. ``close`` is where the mapping
    ends: at its closing brace when it is in ``flow`` style, else where a line can be added.
    ``list_indent`` is how far block lists are indented here. ``problem`` is the first fault found,
    and ``hidden_keys`` says that there may be more fields than can be seen.
    """

    fields: dict[str, Field] = field(default_factory=dict)
    entries: list[tuple[int, int]] = field(default_factory=list)
    flow: bool = False
    close: int = 0
    list_indent: int | None = None
    problem: Invalid | None = None
    hidden_keys: bool = False

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
    document = Document(front.file, front.text, front.begin, front.end, front.lines_before)
    import yaml

    try:
        return document if _read(document, names, loosely) else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why, place = str(error.problem or error.context), getattr(mark, "index", 0)
    except (yaml.YAMLError, ValueError, OverflowError):
        why, place = "there is a character that cannot be", 0
    if not is_yaml(file) and not looks_like_fields(data[front.begin : front.end]):
        return None
    hint = "put a value that begins with @, *, & or % in quotes"
    hints = (hint,) if "cannot start" in why else ()
    raise document.bad(place, f"this is not YAML: {why[:100]}", *hints)


def outline(document: Document, without: Collection[str]) -> list[tuple[object, ...]]:
    """All that the text says but for some fields, to compare: comments and blanks do not count."""
    import yaml

    said: list[tuple[object, ...]] = []
    events = _events(document)
    for event in events:
        if type(event) is yaml.MappingStartEvent:
            break
    while type(key := next(events)) is not yaml.MappingEndEvent:
        passed = type(key) is yaml.ScalarEvent and key.value in without
        for node in (key, None):
            for event in _node(document, events, node or next(events)):
                if not passed:
                    said.append((type(event), *_meaning(event)))
    return said


def _meaning(event: Any) -> tuple[object, ...]:
    return tuple(getattr(event, name, None) for name in ("value", "style", "anchor", "tag"))


def _events(document: Document) -> Iterator[Any]:
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for count, event in enumerate(yaml.parse(document.text, Loader=loader)):
        if count > MAX_EVENTS:
            raise document.bad(document.close, "there are too many values")
        yield event


def _read(document: Document, names: Collection[str], loosely: Collection[str]) -> bool:
    """Fill in the fields. False when the text is no mapping; raises the parser's errors."""
    import yaml

    events = _events(document)
    next(events)  # the stream's start
    if type(next(events)) is yaml.StreamEndEvent:
        return False
    root: Any = next(events)
    if type(root) is not yaml.MappingStartEvent:
        return False
    document.flow = bool(root.flow_style)
    while type(key := next(events)) is not yaml.MappingEndEvent:
        if type(key) is yaml.ScalarEvent and key.value in names:
            end = _take(document, events, key)
        elif type(key) is yaml.ScalarEvent and key.value in loosely:
            sound = document.problem
            end = _take(document, events, key)
            document.problem = sound
        else:
            end = _pass_over(document, events, key)
        document.entries.append((_start(key), end))
    document.close = _end(key) - 1
    after = next(events)
    if not document.flow:
        document.close = _start(after) if after.explicit else len(document.text)
    if type(after := next(events)) is not yaml.StreamEndEvent:
        raise document.bad(_start(after), "there is more than one YAML document")
    return True


def _pass_over(document: Document, events: Iterator[Any], key: Any) -> int:
    """Leave out an entry that gitlease does not use; returns where it ends."""
    import yaml

    if type(key) is yaml.AliasEvent:
        _hide(document, key, "the name of a field must not be an alias")
    elif type(key) is not yaml.ScalarEvent:
        _skip(document, events, key)
    elif key.value == "<<" and not key.style:
        _hide(document, key, "merge keys are not supported")
    value = next(events)
    _note_indent(document, key, value)
    return _skip(document, events, value)


def _hide(document: Document, key: Any, message: str) -> None:
    document.hidden_keys = True
    document.fault(_start(key), message, "write the fields out")


def _skip(document: Document, events: Iterator[Any], event: Any) -> int:
    for last in _node(document, events, event):  # noqa: B007
        pass
    return _end(last)


def _node(document: Document, events: Iterator[Any], event: Any) -> Iterator[Any]:
    """The events of one node, whatever is in it."""
    import yaml

    yield event
    if type(event) in (yaml.ScalarEvent, yaml.AliasEvent):
        return
    depth = 1
    while depth:
        yield (event := next(events))
        if type(event) in (yaml.SequenceStartEvent, yaml.MappingStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise document.bad(_start(event), "this is nested too deeply")
        elif type(event) in (yaml.SequenceEndEvent, yaml.MappingEndEvent):
            depth -= 1


def _note_indent(document: Document, key: Any, value: Any) -> None:
    if document.list_indent is None and getattr(value, "flow_style", None) is False:
        import yaml

        if type(value) is yaml.SequenceStartEvent:
            document.list_indent = _column(value) - _column(key)


def _take(document: Document, events: Iterator[Any], key: Any) -> int:
    """Note a field that gitlease uses; returns where it ends."""
    name = _scalar(document, key)
    event = next(events)
    _note_indent(document, key, event)
    form, items, end = _value(document, events, event)
    if key.value in document.fields:
        first = document.line(document.fields[key.value].key.start)
        document.fault(name.start, f"{shown(key.value)} is here twice, first in line {first}")
        return end
    start = _start(event)
    document.fields[key.value] = Field(name, form, items, start, end, len(document.entries))
    return end


def _value(document: Document, events: Iterator[Any], event: Any) -> tuple[Form, list[Scalar], int]:
    import yaml

    items: list[Scalar] = []
    if type(event) is yaml.ScalarEvent:
        items.append(_scalar(document, event))
        return Form.SCALAR, items, items[0].end
    _check_plain(document, event)
    if type(event) is not yaml.SequenceStartEvent:
        return Form.OTHER, items, _skip(document, events, event)
    form = Form.FLOW if event.flow_style else Form.BLOCK
    while type(event := next(events)) is not yaml.SequenceEndEvent:
        if type(event) is yaml.ScalarEvent:
            items.append(_scalar(document, event))
        else:
            document.fault(_start(event), "an entry must be a single value")
            _skip(document, events, event)
    end = items[-1].end if form is Form.BLOCK and items else _end(event)
    return form, items, end


def _scalar(document: Document, event: Any) -> Scalar:
    _check_plain(document, event)
    return Scalar(event.value, _start(event), _end(event), event.style or "")


def _check_plain(document: Document, event: Any) -> None:
    """Note whatever makes a node mean something else than what is written."""
    if event.anchor or getattr(event, "tag", None):
        hint = "put a value that begins with *, & or ! in quotes"
        message = "aliases, anchors and tags are not supported here"
        document.fault(_start(event), message, hint)


def _start(event: Any) -> int:
    return int(event.start_mark.index)


def _end(event: Any) -> int:
    return int(event.end_mark.index)


def _column(event: Any) -> int:
    return int(event.start_mark.column)
