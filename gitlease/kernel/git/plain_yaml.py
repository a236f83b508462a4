"""All YAML that gitlease reads, by PyYAML's parser in C, and the plain YAML that it writes.

Reading untrusted YAML with a loader is not safe: merge keys and aliases expand without bound, and
scalars are typed silently (``no``, ``1:30``, ``017``). So the parser's events are read, never
values: every text stays as it is written (``0012``, ``no``), no alias is expanded, and depth and
number have an end, for whoever can push or commit writes these files. PyYAML's own nodes would do,
but its composer in C recurses without a bound: 100,000 opening brackets end the process.

Ledgers speak a closed subset of it: mappings, lists and texts, without anchors, aliases, tags,
merge keys and duplicate keys. A record takes 0.05 ms. There was a second reader once, of lines as
gitlease writes them; without it a first contact with 10,000 leases of paths takes a fifth longer.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

# For a message alone: who judges ledgers by rules of their own loads this module, and no core.


Plain = None | str | list["Plain"] | dict[str, "Plain"]

MAX_DEPTH = 4
MAX_NODES = 20_000

# Words that no YAML reader, of either version, takes for anything but a string.
_SAFE_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./+-]*")
_quoted = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps makes an encoder each time
_TYPED_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}


class NotPlain(ValueError):
    """Bytes that are not in the subset; the message says why, in a few words."""


def read_plain(data: bytes) -> dict[str, Plain]:
    """The mapping that ``data`` holds; NotPlain for anything else. The caller caps the size."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise NotPlain("not UTF-8") from None
    try:
        return read_texts(text, max_depth=MAX_DEPTH, most=MAX_NODES)
    except BadYaml as error:
        raise NotPlain(f"{error.message} in line {error.line}") from None


def write_plain(value: Mapping[str, Any]) -> bytes:
    """YAML of a mapping of None, booleans, integers, text, lists and mappings.

    Strings are JSON strings, which are YAML, unless they are plain words to every reader; so a
    person reads them with ease and no reader takes ``no`` for false.
    """
    return ("\n".join(_lines(value, "")) + "\n").encode()


def _lines(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, item in value.items():
        if not item or isinstance(item, str | int):  # first: nearly all are scalars
            yield f"{indent}{key}: {_scalar(item)}"
        elif isinstance(item, Mapping):
            yield f"{indent}{key}:"
            yield from _lines(item, indent + "  ")
        else:
            yield f"{indent}{key}:"
            for entry in item:
                if isinstance(entry, Mapping):
                    first, *rest = _lines(entry, indent + "    ")
                    yield f"{indent}  - {first.lstrip()}"
                    yield from rest
                else:
                    yield f"{indent}  - {_scalar(entry)}"


def _scalar(value: object) -> str:
    if isinstance(value, str):
        safe = _SAFE_WORD.fullmatch(value) and value.lower() not in _TYPED_WORDS
        return value if safe else _quoted(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return "{}" if isinstance(value, Mapping) else "[]"


# --- YAML as it is written ------------------------------------------------------------------------

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
        return _document(_events(text), len(text), max_depth, most)
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
    without a key that stands twice, also in fields that nobody uses. The line of a field is that of
    its key. Raises BadYaml.
    """
    root, _ = read_yaml(text, max_depth=PLAIN_DEPTH)
    if root is None or root.unset:
        return {}
    _refuse_marks(root)
    for node in root.nodes:
        _check_mappings(node)
    return fields_of(root, what)


def read_texts(text: str, *, max_depth: int, most: int) -> dict[str, Any]:
    """The values of a text that must be a plain mapping: texts, lists, mappings, None for a null.

    Raises BadYaml.
    """
    import yaml

    # What is wrong in nearly no record needs no places for it.
    with contextlib.suppress(_Irregular, yaml.YAMLError, ValueError, OverflowError):
        return _regular(_events(text), max_depth, most)
    root, _ = read_yaml(text, max_depth=max_depth, most=most)
    if root is None:
        raise BadYaml("not a mapping", 1)
    _refuse_marks(root)
    return _texts_of(root)


def _events(text: str) -> Callable[[], Any]:
    """Gives the parser's events of a text, one at each call."""
    import yaml

    # The parser alone: with a loader around it, events take nearly twice as long.
    parser: Any = yaml.SafeLoader
    if hasattr(yaml, "CSafeLoader"):
        parser = yaml.cyaml.CParser  # type: ignore[attr-defined]
    return parser(text).get_event  # type: ignore[no-any-return]


class _Irregular(Exception):
    """There is something else than texts, lists and mappings, or too much of them."""


def _regular(get_event: Callable[[], Any], max_depth: int, remaining: int) -> dict[str, Any]:
    """The values of a plain mapping, made without nodes. Raises _Irregular for anything else."""
    import yaml

    scalar, mapping, mapped = yaml.ScalarEvent, yaml.MappingStartEvent, yaml.MappingEndEvent
    listing, listed = yaml.SequenceStartEvent, yaml.SequenceEndEvent

    def value(event: Any, depth: int) -> Any:
        nonlocal remaining
        remaining -= 1
        # An alias has the anchor that it names.
        if event.anchor or remaining < 0 or event.tag:
            raise _Irregular
        kind = type(event)
        if kind is scalar:
            is_null = not event.style and event.value in ("null", "~", "")
            return None if is_null else event.value
        if depth > max_depth:
            raise _Irregular
        if kind is listing:
            items: list[Any] = []
            while type(inner := get_event()) is not listed:
                items.append(value(inner, depth + 1))
            return items
        fields: dict[str, Any] = {}
        while type(key := get_event()) is not mapped:
            if type(key) is not scalar or key.anchor or key.tag or key.value == "<<":
                raise _Irregular
            if key.value in fields:
                raise _Irregular
            remaining -= 1
            fields[key.value] = value(get_event(), depth + 1)
        return fields

    get_event()  # the stream's start
    if type(get_event()) is not yaml.DocumentStartEvent or type(root := get_event()) is not mapping:
        raise _Irregular
    found: dict[str, Any] = value(root, 1)
    get_event()  # the document's end
    if type(get_event()) is not yaml.StreamEndEvent:
        raise _Irregular
    return found


def _texts_of(node: Node) -> dict[str, Any]:
    return {key.text: _value(inner) for key, inner in _checked(node, "a record")}


def _value(node: Node) -> Any:
    if node.shape is Shape.TEXT:  # in quotes it is text, whatever it says
        return None if not node.style and node.text in ("null", "~", "") else node.text
    return [_value(item) for item in node.nodes] if node.shape is Shape.LIST else _texts_of(node)


def fields_of(node: Node, what: str) -> dict[str, Node]:
    """The fields of a node that must be a mapping, called ``what`` in the BadYaml it raises."""
    return {key.text: value._replace(first=key.first) for key, value in _checked(node, what)}


def _checked(node: Node, what: str) -> Iterator[tuple[Node, Node]]:
    """The keys and values of a node that must be a mapping, each key a text that stands once."""
    from gitlease.kernel.rules.errors import shown

    lines = dict[str, int]()
    for key, value in node.need(Shape.MAP, what).pairs:
        if key.shape is not Shape.TEXT:
            raise BadYaml("a key must be a single word", key.line)
        if key.text == "<<" and not key.style:
            raise BadYaml("merge keys are not allowed", key.line)
        if key.text in lines:
            twice = f"{shown(key.text)} is here twice, first in line {lines[key.text]}"
            raise BadYaml(twice, key.line)
        lines[key.text] = key.line
        yield key, value


def _check_mappings(node: Node) -> None:
    """Raise BadYaml for a key that stands twice or is no word, in any mapping in a node."""
    if node.shape is Shape.MAP:
        for _, value in _checked(node, "this"):
            _check_mappings(value)
        return
    for inner in node.nodes:
        _check_mappings(inner)


def _refuse_marks(node: Node) -> None:
    """Raise BadYaml for an alias, an anchor or a tag in it."""
    if node.shape is Shape.ALIAS:
        hint = "put a pattern that begins with * in quotes"
        raise BadYaml("aliases are not allowed", node.line, node.start, hint)
    if node.anchor or node.tag:
        hint = "put the value in quotes"
        raise BadYaml("anchors and tags are not allowed", node.line, node.start, hint)
    for inner in node.nodes:
        if inner.nodes or inner.anchor or inner.tag or inner.shape is Shape.ALIAS:
            _refuse_marks(inner)


def _document(
    get_event: Callable[[], Any], length: int, max_depth: int, remaining: int
) -> tuple[Node | None, int]:
    import yaml

    ends = (yaml.SequenceEndEvent, yaml.MappingEndEvent)
    scalar, text = yaml.ScalarEvent, Shape.TEXT

    def node(event: Any, depth: int) -> Node:
        nonlocal remaining
        remaining -= 1
        if remaining < 0:
            raise BadYaml("there are too many values", 1)
        first, last, kind = event.start_mark, event.end_mark, type(event)
        if kind is scalar:  # as nearly all are
            style = event.style or ""
            return Node(text, first, last, event.value, style, False, event.anchor, event.tag, ())
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
