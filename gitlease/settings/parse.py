"""What a settings file says: every value checked by the schema, and refused with its line; the file
of a commit, too, since the rules that judge commits must not arrive with them.

Every value is a text until the schema says otherwise: ``no`` is not a boolean by itself, ``1:30``
is no number. In a file of a newer schema, keys that are not known here are passed over with a
warning, so that a team can update one by one; what is known is checked as ever.
"""

from __future__ import annotations

import os
import re
from typing import Any

from gitlease.core.errors import Invalid, UsageError, shown
from gitlease.git.files import Unreadable
from gitlease.git.objects import BLOB, TooLarge, objects_of
from gitlease.git.repository import GitFailed, Repository, answered, ask
from gitlease.git.yaml_nodes import BadYaml, Node, Shape, fields_of, read_fields
from gitlease.settings.schema import FILE, FILE_STEM, KEYS, NEWER, SECTIONS, Form, Found, Key, near
from gitlease.settings.sources import MAX_FILE

SCHEMA = 1
LINK = "120000"


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


def committed_settings(where: Repository, commit: str) -> dict[str, Found]:
    """Return the settings in the file at the root of a commit (full id), by dotted key.

    Raises Invalid, which names the commit, if the file is not a regular file, is too large, is not
    in these objects or says something wrong; {} means that there is no file.
    """
    words = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", FILE)
    name = f"{FILE} in {commit[:10]}"
    entry = os.fsdecode(answered(ask(where, *words), f"{name} cannot be read"))
    if not entry:
        return {}
    mode, kind, rest = entry.split(" ", 2)
    if kind != "blob" or mode == LINK:  # nor is a link followed in a work tree
        raise Invalid(f"{name} is not a regular file")
    try:
        data = objects_of(where).read(rest.partition("\t")[0], BLOB, MAX_FILE)
    except TooLarge as large:
        raise Invalid(f"{name} {large}") from None
    except Unreadable as why:
        raise GitFailed(f"{name} cannot be read: it {why}") from None
    try:
        return parse_settings(data)
    except Invalid as error:
        raise Invalid(f"{error.message} (in {commit[:10]})", hints=error.hints) from None


def _settings(text: str) -> dict[str, Found]:
    fields = read_fields(text, "the file")
    found: dict[str, Found] = {}
    if (node := fields.get(NEWER)) is not None and not node.unset:
        word = node.text or node.shape.value
        if not re.fullmatch("[1-9][0-9]{0,8}", word):
            raise _bad(node.line, f"schema is a number like {SCHEMA}, not {shown(word)}")
        if int(word) > SCHEMA:
            found[NEWER] = Found([], f"{FILE}:{node.line}")
    for name, node in fields.items():
        if name in KEYS:
            _take(found, KEYS[name], node)
        elif name in SECTIONS:
            for word, inner in {} if node.unset else fields_of(node, name).items():
                dotted = f"{name}.{word}"
                if dotted in KEYS:
                    _take(found, KEYS[dotted], inner)
                else:
                    _unknown(found, inner, dotted, [k for k in KEYS if k.startswith(f"{name}.")])
        elif name != NEWER:
            _unknown(found, node, name, [NEWER, *SECTIONS, *KEYS])
    return found


def _take(found: dict[str, Found], key: Key, node: Node) -> None:
    if node.unset:
        return
    value = _value(found, key, node)
    if problem := key.problem(value):
        raise _bad(node.line, f"{key.name} {problem}")
    found[key.name] = Found(value, f"{FILE}:{node.line}")


def _value(found: dict[str, Found], key: Key, node: Node) -> Any:
    if key.form is Form.WORD:
        return _word(key, node, key.name)
    if key.form is Form.LIST:
        return _list(key, node, key.name)
    value = dict(key.default)
    for name, inner in fields_of(node, key.name).items():
        dotted = f"{key.name}.{shown(name)}"
        if key.members and name not in key.members:
            _unknown(found, inner, dotted, [f"{key.name}.{member}" for member in key.members])
            continue
        _read(key, name, f"a key of {key.name}", inner.line)
        if dotted == "tasks.fields.id" and inner.shape is Shape.MAP:
            if {word: x.text for word, x in fields_of(inner, dotted).items()} != {"file": "stem"}:
                raise _bad(inner.line, f"{dotted} is the name of a field, or {FILE_STEM}")
            value[name] = FILE_STEM
        elif not inner.unset:
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
    for item in items:
        if item.null:
            raise _bad(item.line, f"an entry of {name} must not be empty")
    return [_word(key, item, f"an entry of {name}") for item in items]


def _unknown(found: dict[str, Found], node: Node, name: str, siblings: list[str]) -> None:
    said = f"unknown key {shown(name)}"
    if NEWER not in found:
        hint = near(name, [*KEYS, *siblings]) or f"known keys: {', '.join(siblings)}"
        raise _bad(node.line, said, hint)
    newer = f"the file's schema is newer than {SCHEMA}, which this gitlease knows: update it"
    found[NEWER].value.append(f"{FILE}:{node.line}: {said} is passed over; {newer}")


def _bad(line: int, message: str, *hints: str) -> Invalid:
    return Invalid(f"{FILE}:{line}: {message}", hints=hints)
