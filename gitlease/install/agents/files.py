"""Puts our hooks into the files of coding agents and takes them out again, leaving all else.

The files belong to people. They are read as JSON and written as JSON: keys keep their order,
numbers their spelling and the file its indentation, but spaces inside lines and the escapes of
letters are not kept.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.git.files import load_json
from gitlease.git.repository import Repository
from gitlease.install.agents.hosts import HOSTS, Host, Json, entries, with_ours, without_ours
from gitlease.install.agents.place import (
    MAX_BYTES,
    Done,
    Place,
    is_as_left,
    read,
    take_out,
    write,
)
from gitlease.settings.file import FILE

DEEPEST = 100  # levels of JSON
_PLAIN = ("make it plain JSON, without comments and trailing commas",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What a file says of our hooks: the events that are there, and those missing or outdated."""

    file: str
    events: tuple[str, ...]
    missing: tuple[str, ...]
    keep: bool = False
    problem: str = ""


def install(host: Host, place: Place, *, keep: bool) -> Done:
    """Write today's entries; those of older versions go. Idempotent. Invalid for a bad file."""
    before = read(place)
    data = _parse(place, before)
    wanted = with_ours(host, data, keep=keep)
    if wanted == data:
        return Done(place.name, "unchanged")
    after = _render(wanted, before)
    original = before if before is None or not any(entries(data)) else _strip(data, before)
    write(place, after, original=original, before=before)
    kept = before is None or _render(data, before) == before
    notes = () if kept else (f"the layout of {place.name} is not kept; uninstall restores it",)
    return Done(place.name, "written", notes)


def uninstall(host: Host, place: Place) -> Done:
    """Take our entries out: to the former bytes where nobody changed the file meanwhile."""
    before = read(place)
    if before is not None and is_as_left(place, before):
        return take_out(place, before, before, nothing_left=False)
    if before is None or not any(entries(data := _parse(place, before))):
        return Done(place.name, "absent")
    rest = without_ours(data)
    made_by_us = rest == {} or (host.flat and rest == {"version": 1})
    return take_out(place, before, _render(rest, before), nothing_left=made_by_us)


def status(host: Host, place: Place, *, keep: bool | None = None) -> Installed:
    """Which of our hooks a file has. What cannot be read is a problem, not an error."""
    try:
        data = _parse(place, read(place))
    except Invalid as error:
        every = tuple(hook.event for hook in host.hooks)
        return Installed(file=place.name, events=(), missing=every, problem=error.message)
    found = {(event, str(handler.get("command"))) for event, handler in entries(data)}
    keeps = any(command.endswith(" --keep") for _, command in found)
    there = {h.event for h in host.hooks if (h.event, host.command(h, keep=keeps)) in found}
    missing = tuple(h.event for h in host.hooks if h.event not in there)
    events = tuple(dict.fromkeys(event for event, _ in sorted(found)))
    return Installed(file=place.name, events=events, missing=missing, keep=keeps)


def is_installed(host: str, root: str) -> bool:
    """Whether the hooks of a host are in its file of this work tree. False where in doubt."""
    name = os.path.join(root, HOSTS[host].folder, HOSTS[host].file)
    return any(entries(load_json(name, MAX_BYTES)))


def is_used(repository: Repository) -> bool:
    """Whether anything says that gitlease is used in this repository.

    The hooks in a person's own file are called everywhere: elsewhere they keep silent, and ask no
    remote.
    """
    root = repository.toplevel
    if root is None:
        return False
    own = os.path.join(repository.common_dir, "gitlease")
    marks = (os.path.join(root, FILE), own)
    return any(os.path.lexists(mark) for mark in marks) or any(
        is_installed(host, root) for host in HOSTS
    )


# --- as JSON ----------------------------------------------------------------------------------


class _Number(float):
    """A number with its spelling: what it stands for may be more than a float holds."""

    text: str

    def __new__(cls, text: str) -> _Number:
        made = super().__new__(cls, text)
        made.text = text
        return made


def _parse(place: Place, data: bytes | None) -> Json:
    if data is None or not data.strip():
        return {}

    def once(pairs: list[tuple[str, Any]]) -> Json:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise Invalid(f"{place.name}: a key stands twice in one object")
        return found

    def no_number(word: str) -> Any:
        raise Invalid(f"{place.name}: {word} is not JSON", hints=_PLAIN)

    try:
        found = json.loads(
            data.decode("utf-8-sig"),
            object_pairs_hook=once,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=no_number,
        )
        _check_depth(place, found, DEEPEST)
    except json.JSONDecodeError as error:
        raise Invalid(f"{place.name}:{error.lineno}: not JSON: {error.msg}", hints=_PLAIN) from None
    except (ValueError, RecursionError):
        raise Invalid(f"{place.name}: not JSON in UTF-8", hints=_PLAIN) from None
    hooks = found.get("hooks", {}) if isinstance(found, dict) else None
    if not isinstance(hooks, dict) or not all(isinstance(x, list) for x in hooks.values()):
        raise Invalid(f"{place.name}: hooks are not written as this host reads them")
    return dict(found)


def _check_depth(place: Place, value: Any, left: int) -> None:
    """Raise Invalid for what is nested deeper than anything that a host reads."""
    if isinstance(value, dict | list):
        if not left:
            raise Invalid(f"{place.name}: nested deeper than {DEEPEST} levels")
        for inner in value.values() if isinstance(value, dict) else value:
            _check_depth(place, inner, left - 1)


def _render(data: Json, like: bytes | None) -> bytes:
    """JSON with the indentation, the line ends and the last line end of what was there."""
    text = like or b""
    first = re.search(rb"\n([ \t]+)\S", text)
    rendered = _written(data, first[1].decode() if first else "  ", "\n")
    if not text.strip() or text.endswith(b"\n"):
        rendered += "\n"
    encoded = rendered.encode()
    if b"\r\n" in text:
        encoded = encoded.replace(b"\n", b"\r\n")
    return (b"\xef\xbb\xbf" if text.startswith(b"\xef\xbb\xbf") else b"") + encoded


def _written(value: Any, indent: str, newline: str) -> str:
    """A value as JSON; ``newline`` begins a line with the indentation that it stands in."""
    if isinstance(value, _Number):
        return value.text
    if isinstance(value, str):
        return _quoted(value)
    if not isinstance(value, dict | list) or not value:
        return json.dumps(value)
    inner = newline + indent
    if isinstance(value, dict):
        items = [f"{_quoted(k)}: {_written(v, indent, inner)}" for k, v in value.items()]
        return "{" + inner + f",{inner}".join(items) + newline + "}"
    items = [_written(v, indent, inner) for v in value]
    return "[" + inner + f",{inner}".join(items) + newline + "]"


def _quoted(text: str) -> str:
    """A text in quotes; what no encoding has, half a pair of surrogates, stays an escape."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)


def _strip(data: Json, before: bytes) -> bytes:
    return _render(without_ours(data), before)
