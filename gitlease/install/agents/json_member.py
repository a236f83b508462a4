"""Adds and removes one member of an object in a JSON text, leaving all else to the byte."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from gitlease.core.errors import Invalid

PLAIN = ("make it plain JSON, without comments and trailing commas",)
_SPACE = re.compile(r"[ \t\r\n]*")


class _Member(NamedTuple):
    """A key, and the offsets of it (``start``), of its value, and of the end of both."""

    key: str
    start: int
    value: int
    end: int


def parse_json(data: bytes, name: str) -> Any:
    """Parse a file's JSON; an empty file is ``{}``. Raises Invalid, with its name, otherwise."""
    if not data.strip():
        return {}

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise Invalid(f"{name}: an object has a key twice")
        return found

    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise Invalid(f"{name}:{error.lineno}: not JSON: {error.msg}", hints=PLAIN) from None
    except (ValueError, RecursionError):
        raise Invalid(f"{name}: not JSON in UTF-8", hints=PLAIN) from None


def with_member(text: str, group: str, key: str, value: str) -> str:
    """The text of an object with ``group.key`` added as the first member there.

    ``text`` has been parsed; ``value`` is JSON in one line.
    """
    inner = _value_of(text, _start(text), group)
    if inner is None:
        return _first(text, _start(text), f'\n  "{group}": {{"{key}": {value}}}')
    return _first(text, inner, f'\n    "{key}": {value}')


def without_member(text: str, group: str, key: str) -> str:
    """The text as it was before ``with_member``; only the member goes where it was changed."""
    inner = _value_of(text, _start(text), group)
    if inner is None:
        return text
    alone = [member.key for member in _members(text, inner)] == [key]
    if alone and text[inner + 1] == '"':  # the group came with it
        return _removed(text, _start(text), group)
    return _removed(text, inner, key)


def _start(text: str) -> int:
    return _skip(text, 1 if text.startswith("\ufeff") else 0)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _members(text: str, brace: int) -> Iterator[_Member]:
    decoder, at = json.JSONDecoder(), _skip(text, brace + 1)
    while text[at] == '"':
        key, colon = decoder.raw_decode(text, at)
        value = _skip(text, _skip(text, colon) + 1)
        _, end = decoder.raw_decode(text, value)
        yield _Member(key, at, value, end)
        after = _skip(text, end)
        at = _skip(text, after + 1) if text[after] == "," else after


def _value_of(text: str, brace: int, key: str) -> int | None:
    return next((x.value for x in _members(text, brace) if x.key == key), None)


def _first(text: str, brace: int, member: str) -> str:
    more = "," if any(True for _ in _members(text, brace)) else ""
    end = "\r\n" if "\r\n" in text else "\n"
    return text[: brace + 1] + member.replace("\n", end) + more + text[brace + 1 :]


def _removed(text: str, brace: int, key: str) -> str:
    before = brace + 1
    for member in _members(text, brace):
        after = _skip(text, member.end)
        if member.key != key:
            before = member.end
        elif text[after] == ",":
            cut = before if before == brace + 1 else member.start
            rest = after + 1 if before == brace + 1 else _skip(text, after + 1)
            return text[:cut] + text[rest:]
        else:
            return text[:before] + text[member.end :]
    return text
