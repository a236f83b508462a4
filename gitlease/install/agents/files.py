"""Puts our hooks into the files of coding agents and removes them, leaving all else.

The files belong to people. They are read and written as JSON: keys keep their order and the file
its indentation, but spaces inside lines and escaped letters do not stay.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.git.files import load_json
from gitlease.git.repository import Repository
from gitlease.guard.places import has_traces
from gitlease.install.agents.hosts import HOSTS, Host, Json, entries, with_ours, without_ours
from gitlease.install.agents.json_member import PLAIN, parse_json
from gitlease.install.agents.place import (
    MAX_BYTES,
    AgentFile,
    FileDone,
    drop_aside,
    keep_aside,
    read,
    read_aside,
    write,
)
from gitlease.settings.schema import FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The events that a file has our hooks for, and those missing or outdated."""

    file: str
    events: tuple[str, ...]
    missing: tuple[str, ...]
    keep: bool = False
    problem: str = ""


def install(host: Host, place: AgentFile, *, keep: bool) -> FileDone:
    """Write our entries, and drop those of older versions. Idempotent. Invalid for a bad file.

    A file that was there is kept in ``place.aside``, for the day on which ours are removed.
    """
    there = read(place)
    before = there or b""
    data = _parse(place, before)
    wanted = with_ours(host, data, keep=keep)
    if wanted == data:
        return FileDone(place.name, "unchanged")
    if there is not None and place.aside and not any(entries(data)):
        keep_aside(place, there)
    write(place, _render(place, wanted, before))
    kept = not before.strip() or _render(place, data, before) == before
    return FileDone(place.name, "written", () if kept else (f"the layout of {place.name} changed",))


def uninstall(host: Host, place: AgentFile, earlier: Iterable[bytes] = ()) -> FileDone:
    """Remove our entries, and the file if it has nothing else and was not there before.

    ``earlier`` are versions of the file. The one from before our entries is put back to the byte,
    unless others have changed something since.
    """
    before = read(place) or b""
    data = _parse(place, before)
    if not any(entries(data)):
        return FileDone(place.name, "absent")
    rest = without_ours(data)
    aside = read_aside(place)
    for version in (*([] if aside is None else [aside]), *earlier):
        with contextlib.suppress(Invalid):
            known = _parse(place, version)
            if not any(entries(known)) and without_ours(with_ours(host, known, keep=False)) == rest:
                write(place, version, empty=True)
                drop_aside(place)
                return FileDone(place.name, "removed")
    empty = aside is None and (rest == {} or (host.flat and rest == {"version": 1}))
    write(place, b"" if empty else _render(place, rest, before))
    drop_aside(place)
    return FileDone(place.name, "removed")


def status(host: Host, place: AgentFile) -> Installed:
    """Which of our hooks a file has. An unreadable file is a problem, not an error."""
    try:
        data = _parse(place, read(place) or b"")
    except Invalid as error:
        every = tuple(hook.event for hook in host.hooks)
        return Installed(file=place.name, events=(), missing=every, problem=error.message)
    found = Counter((event, str(handler.get("command"))) for event, handler in entries(data))
    keeps = any(command.endswith(" --keep") for _, command in found)
    wanted = Counter((h.event, host.command(h, keep=keeps)) for h in host.hooks)
    missing = tuple(event for (event, command), n in wanted.items() if found[event, command] < n)
    events = tuple(dict.fromkeys(event for event, _ in sorted(found)))
    return Installed(file=place.name, events=events, missing=missing, keep=keeps)


def is_installed(host: str, root: str) -> bool:
    """Whether the hooks of a host are in its file of this work tree. False if in doubt."""
    name = os.path.join(root, HOSTS[host].folder, HOSTS[host].file)
    return any(entries(load_json(name, MAX_BYTES)))


def switched_off(host: Host, files: Iterable[AgentFile]) -> str:
    """The file that switches all hooks of a host off, ``""`` for none."""
    for place in files if host.off_switch else ():
        data = load_json(place.file, MAX_BYTES)
        if isinstance(data, dict) and data.get(host.off_switch) is True:
            return place.name
    return ""


def is_used(repository: Repository) -> bool:
    """Whether gitlease is used in this repository.

    The hooks in a person's own file are called everywhere: elsewhere they do nothing.
    """
    root = repository.toplevel
    if root is None:
        return False
    return (
        os.path.lexists(os.path.join(root, FILE))
        or has_traces(repository.common_dir)
        or any(is_installed(host, root) for host in HOSTS)
    )


def _parse(place: AgentFile, data: bytes) -> Json:
    found = parse_json(data, place.name)
    hooks = found.get("hooks", {}) if isinstance(found, dict) else None
    if not isinstance(hooks, dict) or not all(isinstance(x, list) for x in hooks.values()):
        raise Invalid(f"{place.name}: hooks are not in the form that this host reads")
    return dict(found)


def _render(place: AgentFile, data: Json, like: bytes) -> bytes:
    # The indentation and the line ends stay as they were.
    first = re.search(rb"\n([ \t]+)\S", like)
    indent = first[1].decode() if first else "  "
    try:
        text = json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False)
        rendered = text.encode()
    except (ValueError, RecursionError):
        why = f"{place.name} has a text, a number or a depth that cannot be written as JSON again"
        raise Invalid(why, hints=PLAIN) from None
    if not like.strip() or like.endswith(b"\n"):
        rendered += b"\n"
    return rendered.replace(b"\n", b"\r\n") if b"\r\n" in like else rendered
