"""What a settings file says: every value checked by the schema, and refused with its line.

Every value is a text until the schema says otherwise: ``no`` is not a boolean by itself, ``1:30``
is no number.
"""

from __future__ import annotations

from typing import Any

from gitlease.core.errors import Invalid, UsageError, shown
from gitlease.git.yaml_nodes import BadYaml, Node, Shape, fields_of, read_fields
from gitlease.settings.file import FILE
from gitlease.settings.schema import KEYS, SECTIONS, Form, Found, Key, near

SCHEMA = "1"


def parse_settings(data: bytes) -> dict[str, Found]:
    """What the bytes of a settings file set, by dotted key."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _bad(data.count(b"\n", 0, error.start) + 1, "this is not UTF-8") from None
    try:
        return _settings(text)
    except BadYaml as error:
        raise _bad(error.line, error.message, *error.hints) from None


def _settings(text: str) -> dict[str, Found]:
    found: dict[str, Found] = {}
    for name, node in read_fields(text, "the file").items():
        if name == "schema":
            _check_schema(node)
        elif name in KEYS:
            _take(found, KEYS[name], node)
        elif name in SECTIONS:
            for word, inner in {} if node.unset else fields_of(node, name).items():
                dotted = f"{name}.{word}"
                if dotted not in KEYS:
                    raise _unknown(inner, dotted, [k for k in KEYS if k.startswith(name + ".")])
                _take(found, KEYS[dotted], inner)
        else:
            raise _unknown(node, name, ["schema", *SECTIONS, *KEYS])
    return found


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
    for name, inner in fields_of(node, key.name).items():
        dotted = f"{key.name}.{shown(name)}"
        if key.members and name not in key.members:
            raise _unknown(inner, dotted, [f"{key.name}.{member}" for member in key.members])
        _read(key, name, f"a key of {key.name}", inner.line)
        if not inner.unset:
            value[name] = (_list if key.form is Form.LISTS else _word)(key, inner, dotted)
    return value


def _word(key: Key, node: Node, name: str) -> Any:
    return _read(key, node.need(Shape.TEXT, name).text, name, node.line)


def _read(key: Key, text: str, name: str, line: int) -> Any:
    try:
        return key.read(text, name)
    except UsageError as error:
        raise _bad(line, error.message, *error.hints) from None


def _list(key: Key, node: Node, name: str) -> list[Any]:
    items = node.need(Shape.LIST, name).nodes
    return [_word(key, item, f"an entry of {name}") for item in items]


def _check_schema(node: Node) -> None:
    if node.unset or node.text == SCHEMA:
        return
    word = node.text or node.shape.value
    if word.isascii() and word.isdigit() and int(word[:9]) > int(SCHEMA):
        raise _bad(
            node.line, f"schema {shown(word)} is newer than this gitlease", "update gitlease"
        )
    raise _bad(node.line, f"schema is {SCHEMA}, not {shown(word)}")


def _unknown(node: Node, name: str, siblings: list[str]) -> Invalid:
    hint = near(name, [*KEYS, *siblings]) or f"known keys: {', '.join(siblings)}"
    return _bad(node.line, f"unknown key {shown(name)}", hint)


def _bad(line: int, message: str, *hints: str) -> Invalid:
    return Invalid(f"{FILE}:{line}: {message}", hints=hints)
