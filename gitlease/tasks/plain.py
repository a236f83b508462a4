"""Reads task files that are written as nearly all of them are, without a parser.

Fields at the left margin, each with a single value in one line, a list in brackets or a block list.
Whatever is not certainly that, and certainly right, is left to the parser, which takes many times
as long, and to those who tell what is wrong with it.
"""

from __future__ import annotations

import re

from gitlease.git.yaml_nodes import NULLS

MOST = 64 * 1024  # characters
_BEYOND = "\xc0-\u024f"  # letters with accents; there is no line break to YAML among these
_VALUE = (
    rf"([\w./(][ !-~{_BEYOND}]*)"
    rf"|\"([ !#-\[\]-~{_BEYOND}]*)\""  # without escapes
    rf"|'([ -&(-~{_BEYOND}]*)'"
)
_LINE = re.compile(
    rf"([a-zA-Z_][\w-]{{0,100}}):(?: +(?:{_VALUE}|\[([\w./@+\-\"', ]*)\]))?\n"
    rf"|( *)- +(?:{_VALUE})\n",
    re.ASCII,
)
_ENTRY = re.compile(r"([\w./][\w./@+-]*)|\"([\w./@+ -]*)\"|'([\w./@+ -]*)'", re.ASCII)
_HIDDEN = re.compile(r":(?: |\Z)| #| \Z")  # of plain text: what ends it before its line does


class NeedsParser(Exception):
    """A parser must read it."""


class PlainField:
    """A field: the ``line`` of its key, from 1, and what it says.

    ``single``: it is one value, and ``texts`` are empty where that is null.
    """

    __slots__ = ("line", "single", "texts")

    def __init__(self, line: int, texts: list[str], *, single: bool) -> None:
        self.line, self.texts, self.single = line, texts, single


def read_plain_fields(text: str) -> dict[str, PlainField]:
    """The fields of a YAML mapping, each key once. Raises NeedsParser."""
    if len(text) > MOST:
        raise NeedsParser
    fields: dict[str, PlainField] = {}
    last, margin = None, ""  # the last field, where lines of a list may follow; and how these begin
    place = line = 0
    while place < len(text):
        found = _LINE.match(text, place)
        if found is None:
            raise NeedsParser
        place, line = found.end(), line + 1
        key, plain, double, quoted, flow, indent, *item = found.groups()
        if key is None:
            if last is None or (not last.single and indent != margin):
                raise NeedsParser
            margin, last.single = indent, False
            last.texts.append(_entry(*item))
        elif key in fields:
            raise NeedsParser
        else:
            said = _text_or_null(plain, double, quoted) if flow is None else None
            texts = _entries(flow or "") if said is None else [said]
            fields[key] = field = PlainField(line, texts, single=flow is None)
            last = field if place == found.start() + len(key) + 2 else None
    return fields


def _text_or_null(plain: str | None, double: str | None, quoted: str | None) -> str | None:
    if plain is None:
        return quoted if double is None else double
    if (":" in plain or "#" in plain or plain[-1] == " ") and _HIDDEN.search(plain):
        raise NeedsParser
    return None if plain in NULLS else plain


def _entry(*said: str | None) -> str:
    text = _text_or_null(*said)
    if text is None:
        raise NeedsParser
    return text


def _entries(flow: str) -> list[str]:
    texts = []
    for part in flow.split(",") if flow.strip() else ():
        found = _ENTRY.fullmatch(part.strip(" "))
        if found is None:
            raise NeedsParser
        texts.append(_entry(*found.groups()))
    return texts
