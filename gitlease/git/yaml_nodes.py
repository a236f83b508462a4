"""Reads YAML as it is written: texts, lists and mappings, each with its place.

The parser's events are read, never values: every text stays as it is written (``0012``, ``no``), no
alias is expanded, and depth and number have an end, for whoever can commit writes these files.
PyYAML's own nodes would do, but its composer in C recurses without a bound: 100,000 opening
brackets end the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from gitlease.core.errors import shown

MAX_VALUES = 100_000
PLAIN_DEPTH = 6  # of files that are read with `read_fields`
NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class Shape(Enum):
    """The kind of a node."""

    TEXT = "a single value"
    LIST = "a list"
    MAP = "a mapping"
    ALIAS = "an alias"


class Node(NamedTuple):
    """One node, from character ``start`` to ``end`` of the text; its ``line`` counts from 1.

    ``style`` is what a text begins with, ``""`` where it is plain; ``flow`` is for lists and
    mappings in brackets. ``anchor`` and ``tag`` are what it has of them. ``nodes`` are the items of
    a list, and of a mapping keys and values in turn. ``first`` and ``last`` are the parser's marks.
    """

    shape: Shape
    first: Any
    last: Any
    text: str
    style: str
    flow: bool
    anchor: str | None
    tag: str | None
    nodes: Sequence[Node]

    @property
    def start(self) -> int:
        return self.first.index  # type: ignore[no-any-return]

    @property
    def end(self) -> int:
        return self.last.index  # type: ignore[no-any-return]

    @property
    def line(self) -> int:
        return self.first.line + 1  # type: ignore[no-any-return]

    @property
    def column(self) -> int:
        return self.first.column  # type: ignore[no-any-return]

    @property
    def null(self) -> bool:
        return self.shape is Shape.TEXT and not self.style and self.text in NULLS

    @property
    def unset(self) -> bool:
        return self.null or (self.shape is Shape.TEXT and not self.text)

    @property
    def says_something(self) -> bool:
        """Return whether it is neither null nor blank."""
        return not self.null and bool(self.text.strip())

    def need(self, shape: Shape, what: str) -> Node:
        """This node, which must have a shape. Raises BadYaml."""
        if self.shape is not shape:
            raise BadYaml(f"{what} must be {shape.value}, not {self.shape.value}", self.line)
        return self

    @property
    def pairs(self) -> Iterator[tuple[Node, Node]]:
        return zip(self.nodes[::2], self.nodes[1::2], strict=True)


class BadYaml(Exception):
    """A part that cannot be read, from character ``place`` in ``line`` on."""

    def __init__(self, message: str, line: int, place: int = 0, *hints: str) -> None:
        super().__init__(message)
        self.message, self.line, self.place, self.hints = message, line, place, hints


def read_yaml(text: str, *, max_depth: int, most: int = MAX_VALUES) -> tuple[Node | None, int]:
    """The only document of a text, None where there is none, and the place where it ends.

    What is in the document is read only where that is a mapping. Raises BadYaml, as for more than
    ``most`` values.
    """
    import yaml

    try:
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return _document(loader(text).get_event, len(text), max_depth, most)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why, place = str(error.problem or error.context)[:100], getattr(mark, "index", 0)
        line = getattr(mark, "line", 0) + 1
        if "nesting depth" in why:  # newer libyaml has a limit of its own
            raise BadYaml("this is nested too deeply", line, place) from None
    except yaml.reader.ReaderError as error:
        # libyaml counts bytes.
        before = text.encode("utf-8", "replace")[: error.position].decode("utf-8", "ignore")
        why, place, line = str(error.reason), len(before), before.count("\n") + 1
    except (ValueError, OverflowError):
        why, place, line = "there is a character that cannot be", 0, 1
    hint = "put a value that begins with @, *, & or % in quotes"
    raise BadYaml(f"this is not YAML: {why}", line, place, *[hint] * ("cannot start" in why))


def read_fields(text: str, what: str) -> dict[str, Node]:
    """The fields of a text that must be a plain mapping; none of one that says nothing.

    Plain: without aliases, anchors, tags and merge keys, with which small files grow huge, and
    without a key that stands twice. The line of a field is that of its key. Raises BadYaml.
    """
    root, _ = read_yaml(text, max_depth=PLAIN_DEPTH)
    if root is None or root.unset:
        return {}
    _refuse_marks(root)
    return fields_of(root, what)


def read_texts(text: str, *, max_depth: int, most: int) -> dict[str, Any]:
    """The values of a text that must be a plain mapping: texts, lists, mappings, None for a null.

    Raises BadYaml.
    """
    root, _ = read_yaml(text, max_depth=max_depth, most=most)
    if root is None:
        raise BadYaml("not a mapping", 1)
    _refuse_marks(root)
    return _mapping(root)


def _mapping(node: Node) -> dict[str, Any]:
    return {key: _value(inner) for key, inner in fields_of(node, "a record").items()}


def _value(node: Node) -> Any:
    if node.shape is Shape.TEXT:  # in quotes it is text, whatever it says
        return None if not node.style and node.text in ("null", "~", "") else node.text
    return [_value(item) for item in node.nodes] if node.shape is Shape.LIST else _mapping(node)


def fields_of(node: Node, what: str) -> dict[str, Node]:
    """The fields of a node that must be a mapping, called ``what`` in the BadYaml it raises."""
    fields: dict[str, Node] = {}
    for key, value in node.need(Shape.MAP, what).pairs:
        if key.shape is not Shape.TEXT:
            raise BadYaml("a key must be a single word", key.line)
        if key.text == "<<" and not key.style:
            raise BadYaml("merge keys are not allowed", key.line)
        if key.text in fields:
            twice = f"{shown(key.text)} is here twice, first in line {fields[key.text].line}"
            raise BadYaml(twice, key.line)
        fields[key.text] = value._replace(first=key.first)
    return fields


def _refuse_marks(node: Node) -> None:
    """Raise BadYaml for an alias, an anchor or a tag in it."""
    if node.shape is Shape.ALIAS:
        hint = "put a pattern that begins with * in quotes"
        raise BadYaml("aliases are not allowed", node.line, node.start, hint)
    if node.anchor or node.tag:
        hint = "put the value in quotes"
        raise BadYaml("anchors and tags are not allowed", node.line, node.start, hint)
    for inner in node.nodes:
        _refuse_marks(inner)


def _document(
    get_event: Callable[[], Any], length: int, max_depth: int, remaining: int
) -> tuple[Node | None, int]:
    import yaml

    ends = (yaml.SequenceEndEvent, yaml.MappingEndEvent)

    def node(event: Any, depth: int) -> Node:
        nonlocal remaining
        remaining -= 1
        if remaining < 0:
            raise BadYaml("there are too many values", 1)
        first, last, kind = event.start_mark, event.end_mark, type(event)
        if kind is yaml.ScalarEvent:
            style = event.style or ""
            return Node(
                Shape.TEXT, first, last, event.value, style, False, event.anchor, event.tag, ()
            )
        if kind is yaml.AliasEvent:
            return Node(Shape.ALIAS, first, last, "", "", False, event.anchor, None, ())
        nodes: list[Node] = []
        if depth > max_depth:
            raise BadYaml("this is nested too deeply", first.line + 1, first.index)
        if depth > 1 or kind is yaml.MappingStartEvent:
            while type(inner := get_event()) not in ends:
                nodes.append(node(inner, depth + 1))
            last = inner.end_mark
        shape = Shape.LIST if kind is yaml.SequenceStartEvent else Shape.MAP
        return Node(shape, first, last, "", "", event.flow_style, event.anchor, event.tag, nodes)

    get_event()  # the stream's start
    if type(get_event()) is yaml.StreamEndEvent:
        return None, length
    root = node(get_event(), 1)
    if root.shape is not Shape.MAP:
        return root, length
    ended, after = get_event(), get_event()
    if type(after) is not yaml.StreamEndEvent:
        mark = after.start_mark
        raise BadYaml("there is more than one YAML document", mark.line + 1, mark.index)
    return root, ended.start_mark.index if ended.explicit else length
