"""Reads ``.gitlease.yaml``: anyone who can commit writes it, so nothing in it is taken on trust.

Every value is a text until the schema says otherwise: ``no`` is not a boolean by itself, ``1:30``
is no number. Aliases, tags and merge keys are refused, since small files can grow huge with them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any

from gitlease.adapters.files import open_regular, read_up_to
from gitlease.adapters.settings_cache import remembered
from gitlease.adapters.settings_schema import KEYS, SECTIONS, Form, Found, Key, near, shown
from gitlease.domain.errors import Invalid, UsageError
from gitlease.domain.frozen import dataclass, replace

FILE = ".gitlease.yaml"
MAX_BYTES = 256 * 1024
MAX_DEPTH = 6
SCHEMA = "1"


@dataclass(frozen=True, slots=True)
class Node:
    """A text, a list or a mapping, and the line it stands in; ``plain`` texts have no quotes."""

    line: int
    value: str | list[Node] | dict[str, Node]
    plain: bool = False

    @property
    def unset(self) -> bool:
        return self.value == "" or (self.plain and self.value in ("~", "null"))

    @property
    def form(self) -> Form:
        forms = {str: Form.WORD, list: Form.LIST, dict: Form.MAP}
        return forms[type(self.value)]


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """The file as a commit has it: its bytes, None where the commit has none."""

    data: bytes | None
    commit: str


def read_committed(file: CommittedFile) -> dict[str, Found]:
    """What a committed file sets, by dotted key. Raises Invalid, which names line and commit."""
    try:
        return {} if file.data is None else parse_settings(file.data)
    except Invalid as error:
        raise Invalid(f"{error.message} (in {file.commit[:10]})", hints=error.hints) from None


def read_settings_file(toplevel: str | None, *, folder: str) -> dict[str, Found]:
    """What the file at the work tree's root sets, by dotted key; nothing where there is no file.

    What is read is remembered in ``folder``. Raises Invalid, which names the line, for anything
    that is not exactly as it should be.
    """
    data = None if toplevel is None else _load(toplevel)
    return {} if data is None else remembered(data, parse_settings, folder)


def parse_settings(data: bytes) -> dict[str, Found]:
    """What the bytes of a settings file set, by dotted key."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _bad(line, "this is not UTF-8") from None
    found: dict[str, Found] = {}
    root = _parse(text)
    for name, node in _mapping(root, "the file").items() if root else ():
        if name == "schema":
            _check_schema(node)
        elif name in KEYS:
            _take(found, KEYS[name], node)
        elif name in SECTIONS:
            for word, inner in {} if node.unset else _mapping(node, name).items():
                dotted = f"{name}.{word}"
                if dotted not in KEYS:
                    raise _unknown(inner, dotted, [k for k in KEYS if k.startswith(name + ".")])
                _take(found, KEYS[dotted], inner)
        else:
            raise _unknown(node, name, ["schema", *SECTIONS, *KEYS])
    return found


def _load(toplevel: str) -> bytes | None:
    path = os.path.join(toplevel, FILE)
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            root, path = os.path.realpath(toplevel), os.path.realpath(path)
            if os.path.commonpath((root, path)) != root:
                raise Invalid(f"{FILE} is a link to outside of the repository")
        # A pipe in its place must not make every command wait.
        opened = open_regular(path)
        if opened is None:
            raise Invalid(f"{FILE} is not a regular file")
        with opened:
            data = read_up_to(opened, MAX_BYTES)
    except FileNotFoundError:
        if os.path.lexists(path) or os.path.islink(os.path.join(toplevel, FILE)):
            raise Invalid(f"{FILE} is a link to nowhere") from None
        return None
    except OSError as error:
        raise Invalid(f"{FILE} cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise Invalid(f"{FILE} is larger than {MAX_BYTES // 1024} KiB")
    return data


def _parse(text: str) -> Node | None:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        events: Iterator[Any] = iter(yaml.parse(text, Loader=loader))
        next(events)  # the stream's start
        if isinstance(next(events), yaml.StreamEndEvent):
            return None
        root = _node(events, next(events), 1)
        next(events)  # the document's end
        if not isinstance(after := next(events), yaml.StreamEndEvent):
            raise _bad(after.start_mark.line + 1, "there is more than one document")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = str(error.problem or error.context)
        raise _broken(getattr(mark, "line", 0) + 1, why) from None
    except yaml.reader.ReaderError as error:
        line = text.encode().count(b"\n", 0, error.position) + 1
        raise _broken(line, str(error.reason)) from None
    return None if root.unset else root


def _node(events: Iterator[Any], event: Any, depth: int) -> Node:
    """One node out of the events of the parser, starting with ``event``."""
    line = event.start_mark.line + 1
    kind = type(event).__name__
    if kind == "AliasEvent":
        raise _bad(line, "aliases are not allowed", "put a pattern that begins with * in quotes")
    if event.anchor or event.tag:
        raise _bad(line, "anchors and tags are not allowed", "put the value in quotes")
    if kind == "ScalarEvent":
        return Node(line, event.value, plain=event.style in (None, ""))
    if depth > MAX_DEPTH:
        raise _bad(line, "this is nested too deeply")
    if kind == "SequenceStartEvent":
        items = []
        while type(event := next(events)).__name__ != "SequenceEndEvent":
            items.append(_node(events, event, depth + 1))
        return Node(line, items)
    return Node(line, _pairs(events, depth))


def _pairs(events: Iterator[Any], depth: int) -> dict[str, Node]:
    pairs: dict[str, Node] = {}
    while type(event := next(events)).__name__ != "MappingEndEvent":
        key = _node(events, event, depth + 1)
        if not isinstance(key.value, str):
            raise _bad(key.line, "a key must be a single word")
        if key.value == "<<" and key.plain:
            raise _bad(key.line, "merge keys are not allowed")
        if key.value in pairs:
            first = pairs[key.value].line
            raise _bad(key.line, f"{shown(key.value)} is here twice, first in line {first}")
        value = _node(events, next(events), depth + 1)
        pairs[key.value] = replace(value, line=key.line)  # what people look for is the key
    return pairs


def _take(found: dict[str, Found], key: Key, node: Node) -> None:
    if node.unset:
        return
    value = _value(key, node)
    if problem := key.problem(value):
        raise _bad(node.line, f"{key.name} {problem}")
    found[key.name] = Found(value, f"{FILE}:{node.line}")


def _value(key: Key, node: Node) -> Any:
    if key.form is Form.WORD:
        return _word(key, node, key.name)
    if key.form is Form.LIST:
        return _list(key, node, key.name)
    value = dict(key.default)
    for name, inner in _mapping(node, key.name).items():
        dotted = f"{key.name}.{shown(name)}"
        if key.members and name not in key.members:
            raise _unknown(inner, dotted, [f"{key.name}.{member}" for member in key.members])
        _read(key, name, f"a key of {key.name}", inner.line)
        if not inner.unset:
            value[name] = (_list if key.form is Form.LISTS else _word)(key, inner, dotted)
    return value


def _word(key: Key, node: Node, name: str) -> Any:
    if not isinstance(node.value, str):
        raise _form(node, name, Form.WORD)
    return _read(key, node.value, name, node.line)


def _read(key: Key, text: str, name: str, line: int) -> Any:
    try:
        return key.read(text, name)
    except UsageError as error:
        raise _bad(line, error.message, *error.hints) from None


def _list(key: Key, node: Node, name: str) -> list[Any]:
    if not isinstance(node.value, list):
        raise _form(node, name, Form.LIST)
    return [_word(key, item, f"an entry of {name}") for item in node.value]


def _mapping(node: Node, name: str) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        raise _form(node, name, Form.MAP)
    return node.value


def _check_schema(node: Node) -> None:
    if node.unset or node.value == SCHEMA:
        return
    word = node.value if isinstance(node.value, str) else node.form.value
    if word.isascii() and word.isdigit() and int(word[:9]) > int(SCHEMA):
        raise _bad(
            node.line, f"schema {shown(word)} is newer than this gitlease", "update gitlease"
        )
    raise _bad(node.line, f"schema is {SCHEMA}, not {shown(word)}")


def _unknown(node: Node, name: str, siblings: list[str]) -> Invalid:
    hint = near(name, [*KEYS, *siblings]) or f"known are {', '.join(siblings)}"
    return _bad(node.line, f"unknown key {shown(name)}", hint)


def _form(node: Node, name: str, wanted: Form) -> Invalid:
    return _bad(node.line, f"{name} must be {wanted.value}, not {node.form.value}")


def _broken(line: int, why: str) -> Invalid:
    quotes = "put a value that begins with @, *, & or % in quotes"
    return _bad(line, f"this is not YAML: {why}", *([quotes] if "cannot start" in why else []))


def _bad(line: int, message: str, *hints: str) -> Invalid:
    return Invalid(f"{FILE}:{line}: {message}", hints=hints)
