"""The closed subset of YAML that the ledger speaks: mappings, lists and scalars, nothing else.

Reading untrusted YAML with a loader is not safe: merge keys and aliases expand without bound, and
scalars are typed silently (``no``, ``1:30``, ``017``). So the parser's events are read instead:
anchors, aliases, tags, merge keys and duplicate keys are refused, and every scalar stays text.
What is written exactly as ``write_plain`` writes it, as nearly all records are, is read line by
line instead, to the same result: that spares the import of a parser, and most of the time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gitlease.adapters.own_yaml import Plain, read_own

MAX_DEPTH = 4
MAX_NODES = 20_000

# Words that no YAML reader, of either version, takes for anything but a string.
_SAFE_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./+-]*")
_TYPED_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}


class NotPlain(ValueError):
    """Bytes that are not in the subset; the message says why, in a few words."""


def read_plain(data: bytes) -> dict[str, Plain]:
    """The mapping that ``data`` holds; NotPlain for anything else. The caller caps the size."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise NotPlain("not UTF-8") from None
    own = read_own(text)
    return _parse(text) if own is None else own


def _parse(text: str) -> dict[str, Plain]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        events = _Events(yaml.parse(text, Loader=loader))
        events.expect(yaml.StreamStartEvent)
        events.expect(yaml.DocumentStartEvent)
        value = _node(events, events.take(), 1)
        events.expect(yaml.DocumentEndEvent)
        events.expect(yaml.StreamEndEvent)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise NotPlain(f"not YAML{where}") from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, NotPlain):
            raise
        raise NotPlain("not YAML") from None
    if not isinstance(value, dict):
        raise NotPlain("not a mapping")
    return value


class _Events:
    def __init__(self, events: Iterator[Any]) -> None:
        self._events, self._count = events, 0

    def take(self) -> Any:
        self._count += 1
        if self._count > MAX_NODES:
            raise NotPlain("too many values")
        return next(self._events)

    def expect(self, kind: type) -> None:
        if not isinstance(self.take(), kind):
            raise NotPlain("not one document")


def _node(events: _Events, event: Any, depth: int) -> Plain:
    import yaml

    if depth > MAX_DEPTH:
        raise NotPlain("nested too deeply")
    if isinstance(event, yaml.AliasEvent):
        raise NotPlain("has an alias")
    if getattr(event, "anchor", None) is not None:
        raise NotPlain("has an anchor")
    if getattr(event, "tag", None) is not None:
        raise NotPlain("has a tag")
    if isinstance(event, yaml.ScalarEvent):
        plain = event.implicit[0]  # quoted scalars are text, whatever they say
        is_null = plain and event.value in ("null", "~", "")
        return None if is_null else str(event.value)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Plain] = []
        while not isinstance(item := events.take(), yaml.SequenceEndEvent):
            items.append(_node(events, item, depth + 1))
        return items
    if not isinstance(event, yaml.MappingStartEvent):
        raise NotPlain("not one document")
    mapping: dict[str, Plain] = {}
    while not isinstance(item := events.take(), yaml.MappingEndEvent):
        key = _node(events, item, depth + 1)
        if not isinstance(key, str) or key == "<<":
            raise NotPlain("has a key that is not a word")
        if key in mapping:
            raise NotPlain(f"has the key {key[:40]!r} twice")
        mapping[key] = _node(events, events.take(), depth + 1)
    return mapping


def write_plain(value: Mapping[str, Any]) -> bytes:
    """YAML of a mapping of None, booleans, integers, text, lists and mappings.

    Strings are JSON strings, which are YAML, unless they are plain words to every reader; so a
    person reads them with ease and no reader takes ``no`` for false.
    """
    return ("\n".join(_lines(value, "")) + "\n").encode()


def _lines(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            yield f"{indent}{key}:"
            yield from _lines(item, indent + "  ")
        elif isinstance(item, Sequence) and not isinstance(item, str) and item:
            yield f"{indent}{key}:"
            for entry in item:
                if isinstance(entry, Mapping):
                    first, *rest = _lines(entry, indent + "    ")
                    yield f"{indent}  - {first.lstrip()}"
                    yield from rest
                else:
                    yield f"{indent}  - {_scalar(entry)}"
        else:
            yield f"{indent}{key}: {_scalar(item)}"


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        safe = _SAFE_WORD.fullmatch(value) and value.lower() not in _TYPED_WORDS
        return value if safe else json.dumps(value, ensure_ascii=False)
    return "{}" if isinstance(value, Mapping) else "[]"
