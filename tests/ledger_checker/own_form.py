"""Reads YAML in the very form that gitlease writes, line by line: a reading of its own."""

from __future__ import annotations

import json
import re

from gitlease.kernel.git.plain_yaml import Plain

# Only what YAML and JSON read alike: no \\u, which YAML does not pair, and no \\/.
_STRING = r'"(?:[^"\\]|\\["\\nrtbf])*"'
_ITEM = re.compile(rf"([a-z_]+):(?: ({_STRING}|[A-Za-z0-9_./+-]+|\[\]|\{{\}}))?")
_ENTRY = re.compile(rf"{_STRING}|[A-Za-z0-9_./+-]+")


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
