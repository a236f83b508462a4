"""A line reader for YAML exactly as gitlease writes it; anything else is left to a real parser."""

from __future__ import annotations

import json
import re

Plain = None | str | list["Plain"] | dict[str, "Plain"]

# Only what YAML and JSON read alike: no \\u, which YAML does not pair, and no \\/.
_STRING = r'"(?:[^"\\]|\\["\\nrtbf])*"'
_ITEM = re.compile(rf"(?P<key>[a-z_]+):(?: (?P<scalar>{_STRING}|[A-Za-z0-9_./+-]+|\[\]|\{{\}}))?")
_ENTRY = re.compile(rf"{_STRING}|[A-Za-z0-9_./+-]+")


class _NotOwn(Exception):
    """Not written as gitlease writes."""


def read_own(text: str) -> dict[str, Plain] | None:
    """The mapping of a text in gitlease's own form, None when it is in any other."""
    if not text.endswith("\n") or not text.replace("\n", "").isprintable():
        return None
    lines = text[:-1].split("\n")
    try:
        value, end = _mapping(lines, 0, 0)
    except (_NotOwn, RecursionError):
        return None
    return value if end == len(lines) else None


def _mapping(lines: list[str], at: int, depth: int) -> tuple[dict[str, Plain], int]:
    indent, found = "  " * depth, dict[str, Plain]()
    while at < len(lines) and lines[at].startswith(indent):
        item = _ITEM.fullmatch(lines[at], len(indent))
        if item is None:
            break
        key, scalar = item["key"], item["scalar"]
        at += 1
        if key in found or depth > 2:
            raise _NotOwn
        if scalar is not None:
            found[key] = _scalar(scalar)
        elif at < len(lines) and lines[at].startswith(indent + "  - "):
            found[key], at = _items(lines, at, depth + 1)
        else:
            found[key], at = _mapping(lines, at, depth + 1)
    if not found:
        raise _NotOwn
    return found, at


def _items(lines: list[str], at: int, depth: int) -> tuple[list[Plain], int]:
    dash, found = "  " * depth + "- ", list[Plain]()
    while at < len(lines) and lines[at].startswith(dash):
        if _ENTRY.fullmatch(lines[at], len(dash)):
            found.append(_scalar(lines[at][len(dash) :]))
            at += 1
        else:
            # An item that is a mapping: its first line stands behind the dash.
            lines[at] = " " * len(dash) + lines[at][len(dash) :]
            value, at = _mapping(lines, at, depth + 1)
            found.append(value)
    return found, at


def _scalar(text: str) -> Plain:
    if text == "null":
        return None
    if text[0] == '"':
        return str(json.loads(text))
    return [] if text == "[]" else {} if text == "{}" else text
