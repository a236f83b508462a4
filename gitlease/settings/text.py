"""The text of a new ``.gitlease.yaml``: it teaches by comments, and sets only what it is given."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gitlease.settings.schema import FILE_STEM, KEYS, usual_handles

Lines = Iterator[tuple[str, bool]]
"""Lines without their ``#``, each with whether it is set; those that are not get one."""

# Words that every reader of YAML takes for text; all others are put in quotes.
_PLAIN = re.compile(r"(?!(?:null|true|false|yes|no|on|off|y|n)$)[A-Za-z][A-Za-z0-9_-]*", re.I)
_BESIDE = 20  # the column of what is said beside a line

_HEAD = """\
# Settings of gitlease for everyone who works in this repository.
# Commented lines are defaults; uncomment to change.
# What is in effect in this clone, and why: gitlease config
schema: 1

#lease:
#  ttl: 15m          # a claim lapses this long after its last renewal
#  remote: origin    # where the ledgers are kept
#  layer: global     # another layer is another set of leases

"""
_EMAILS = """
# Names of people in task files, by their email:
#people:
#  jo@example.com: "@jo"
"""
_HANDLES = """
# People who are not @jo for jo@example.com in task files:
#people:
#  jo@example.com: "@jay"
"""
_TAIL = """
# An edge as a commit of its own; otherwise an edited task file stops `git pull --rebase`:
#edges:
#  commit: false

# Commits and pushes that touch what somebody else holds:
#guard:
#  mode: block       # or warn, or off
#  offline: warn     # when the remote cannot be reached

# Claims that nobody is working on:
#stale:
#  after: 7d
#  release: false

# When a task says done on the remote's main branch, its holder's lease ends:
#landing:
#  release: done     # or merged (and all its commits are there), or never
"""


def default_yaml() -> str:
    """The text of a new settings file: it teaches, and changes nothing."""
    return settings_yaml({})


def settings_yaml(live: Mapping[str, Any], *, about: Sequence[str] = ()) -> str:
    """The same with some of the settings of ``tasks`` set, by dotted key.

    Mappings have only the members that are set. ``about`` is said above the tasks, a line each.
    """
    said = "".join(f"# {line}\n" for line in about)
    files = KEYS["tasks.files"].default
    handles = usual_handles(live.get("tasks.files", files))
    lines = (line if is_set else f"#{line}" for line, is_set in _tasks(live, files, handles))
    people = _HANDLES if live.get("tasks.handles", handles) else _EMAILS
    return _HEAD + said + "\n".join(lines) + "\n" + people + _TAIL


def _tasks(live: Mapping[str, Any], files: Sequence[str], handles: bool) -> Lines:
    yield "tasks:", bool(live)
    yield _line(live, "tasks.files", files, "")
    yield _line(live, "tasks.completed", [], "folders whose tasks count as done")
    yield _line(live, "tasks.required", True, "claiming a name without a task file needs --any")
    yield _line(live, "tasks.handles", handles, "whether jo@example.com is written @jo")
    yield from _members(live, "tasks.fields", "the names of these fields in task files")
    yield from _members(live, "tasks.statuses", "gitlease writes the first word of each")


def _line(live: Mapping[str, Any], key: str, usual: Any, beside: str) -> tuple[str, bool]:
    name, value = key.rpartition(".")[2], live.get(key, usual)
    return _with(f"  {name}: {_shown(value)}", beside), key in live


def _members(live: Mapping[str, Any], key: str, beside: str) -> Lines:
    is_set: Mapping[str, Any] = live.get(key, {})
    yield _with(f"  {key.rpartition('.')[2]}:", beside), bool(is_set)
    for name, usual in KEYS[key].default.items():
        yield f"    {name}: {_shown(is_set.get(name, usual))}", name in is_set


def _with(line: str, beside: str) -> str:
    return f"{line:<{_BESIDE - 1}} # {beside}" if beside else line


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return (
            value
            if _PLAIN.fullmatch(value) or value == FILE_STEM
            else json.dumps(value, ensure_ascii=False)
        )
    return f"[{', '.join(map(_shown, value))}]"
