"""The closed subset of YAML that the ledger speaks: mappings, lists and scalars, nothing else.

Reading untrusted YAML with a loader is not safe: merge keys and aliases expand without bound, and
scalars are typed silently (``no``, ``1:30``, ``017``). Here anchors, aliases, tags, merge keys and
duplicate keys are refused, and every scalar stays text.
What is written exactly as ``write_plain`` writes it, as nearly all records are, is read line by
line instead, to the same result: that spares the import of a parser, and most of the time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gitlease import git

Plain = None | str | list["Plain"] | dict[str, "Plain"]

# Only what YAML and JSON read alike: no \\u, which YAML does not pair, and no \\/.
_STRING = r'"(?:[^"\\]|\\["\\nrtbf])*"'
_ITEM = re.compile(rf"([a-z_]+):(?: ({_STRING}|[A-Za-z0-9_./+-]+|\[\]|\{{\}}))?")
_ENTRY = re.compile(rf"{_STRING}|[A-Za-z0-9_./+-]+")

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
    value = read_own(text)
    return _parse(text) if value is None else value


def _parse(text: str) -> dict[str, Plain]:
    try:
        return git.read_texts(text, max_depth=MAX_DEPTH, most=MAX_NODES)
    except git.BadYaml as error:
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


# --- exactly as write_plain writes it ----------------------------------------------------------


class _NotOwn(Exception):
    """Not written as gitlease writes."""


def read_own(text: str) -> dict[str, Plain] | None:
    """The mapping of a text in gitlease's own form, None when it is in any other."""
    # Line breaks of other kinds, and what YAML forbids, are for the parser to judge.
    if not text.endswith("\n") or not text.replace("\n", "").isprintable():
        return None
    lines = text[:-1].split("\n")
    try:
        value, end = _mapping(lines, 0, 0)
    except (_NotOwn, RecursionError):
        return None
    return value if end == len(lines) else None


def _mapping(lines: list[str], at: int, depth: int) -> tuple[dict[str, Plain], int]:
    indent, mapping = "  " * depth, dict[str, Plain]()
    while at < len(lines) and lines[at].startswith(indent):
        item = _ITEM.fullmatch(lines[at], len(indent))
        if item is None:
            break
        key, scalar = item.groups()
        at += 1
        if key in mapping or depth > 2:
            raise _NotOwn
        if scalar is not None:
            mapping[key] = _own_scalar(scalar)
        elif at < len(lines) and lines[at].startswith(indent + "  - "):
            mapping[key], at = _items(lines, at, depth + 1)
        else:
            mapping[key], at = _mapping(lines, at, depth + 1)
    if not mapping:
        raise _NotOwn
    return mapping, at


def _items(lines: list[str], at: int, depth: int) -> tuple[list[Plain], int]:
    dash, items = "  " * depth + "- ", list[Plain]()
    while at < len(lines) and lines[at].startswith(dash):
        if _ENTRY.fullmatch(lines[at], len(dash)):
            items.append(_own_scalar(lines[at][len(dash) :]))
            at += 1
        else:
            # An item that is a mapping: its first line stands behind the dash.
            lines[at] = " " * len(dash) + lines[at][len(dash) :]
            value, at = _mapping(lines, at, depth + 1)
            items.append(value)
    return items, at


def _own_scalar(text: str) -> Plain:
    if text == "null":
        return None
    if text[0] == '"':
        return str(json.loads(text)) if "\\" in text else text[1:-1]
    return [] if text == "[]" else {} if text == "{}" else text
