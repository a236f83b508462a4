"""The events of coding agents, in one form for every host.

Hosts change from month to month, so missing or odd fields make an event with less information, and
never an error.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass

MAX_BYTES = 4 * 1024 * 1024
MAX_PATHS = 1_000
MAX_WORD = 4_096
DEEPEST = 4  # nested lists and objects, as in `files: [{path: …}]`
MCP = "mcp__"  # the prefix of the names of MCP tools
# The arguments that name the files that such a tool edits.
MCP_PATHS = re.compile(r"(.*_)?(path|file|filename|filepath|source|destination|target|uri)s?", re.I)
PATCH = ("*** Add File:", "*** Update File:", "*** Delete File:", "*** Move to:")


class EventKind(Enum):
    """The kinds of events; the values are words of the command line."""

    SESSION_START = "session-start"
    SUBAGENT_START = "subagent-start"
    BEFORE_EDIT = "before-edit"
    BEFORE_SHELL = "before-shell"
    AFTER_TOOL = "after-tool"
    SUBAGENT_STOP = "subagent-stop"
    SESSION_END = "session-end"

    @property
    def asks(self) -> bool:
        """Whether the answer can deny the tool."""
        return self in (EventKind.BEFORE_EDIT, EventKind.BEFORE_SHELL)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """One event. Missing texts are ``""``.

    ``paths`` are the files to be edited, absolute or relative to ``cwd``; ``more`` marks a
    truncated list. ``reason`` is the reason for the start or end of the session, ``command`` the
    shell command to be run. ``by`` is the sending host, which may differ from the handler's host.
    """

    kind: EventKind
    by: str
    session_id: str = ""
    agent_id: str = ""
    cwd: str = ""
    paths: tuple[str, ...] = ()
    reason: str = ""
    command: str = ""
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer: ``deny`` stops the tool, ``context`` is for the model, ``notice`` for people."""

    deny: str = ""
    context: str = ""
    notice: str = ""


def parse(data: bytes) -> Mapping[str, Any]:
    """Parse an event. Invalid if it is not a JSON object, or is too large."""
    if len(data) > MAX_BYTES:
        raise Invalid(f"the event is larger than {MAX_BYTES // 1024 // 1024} MiB")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise Invalid("the event is not JSON") from None
    if not isinstance(found, dict):
        raise Invalid("the event is not a JSON object")
    return found


def text(data: Mapping[str, Any], *names: str) -> str:
    """Return the first of these fields that is a usable text, else ``""``."""
    for name in names:
        value = data.get(name)
        if isinstance(value, str) and _is_usable(value):
            return value
    return ""


def _is_usable(value: str) -> bool:
    if not 0 < len(value) <= MAX_WORD or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def tool_input(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tool's arguments; some hosts encode them as JSON in a text."""
    value = data.get("tool_input")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {"patch": value}
    return value if isinstance(value, dict) else {}


def shell_command(data: Mapping[str, Any]) -> str:
    """Return the shell command that a tool is about to run."""
    command = tool_input(data).get("command")
    return command if isinstance(command, str) else ""


def edited(data: Mapping[str, Any], names: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """Return the files that a tool is about to edit, and whether the list was truncated."""
    words = tool_input(data)
    named = [word for name in names if (word := text(words, name))]
    tool = text(data, "tool_name")
    if tool.startswith(MCP):
        from gitlease.install.agents import MCP_EDITS

        named += _named_by(words) if re.match(MCP_EDITS, tool) else ()
    found: dict[str, None] = dict.fromkeys(named)
    for value in (words.get(name) for name in ("command", "patch", "input")):
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, str) and "*** " in part:
                found |= dict.fromkeys(patched(part))
    return tuple(found)[:MAX_PATHS], len(found) > MAX_PATHS


def _named_by(value: object, *, is_file: bool = False, depth: int = 0) -> Iterator[str]:
    """Yield the arguments of any tool that look like file names."""
    if isinstance(value, str):
        word = value.removeprefix("file://")
        if is_file and _is_usable(value) and "://" not in word:
            yield word
    elif depth > DEEPEST:
        return
    elif isinstance(value, list):
        for part in value[: MAX_PATHS + 1]:
            yield from _named_by(part, is_file=is_file, depth=depth + 1)
    elif isinstance(value, dict):
        for name, part in value.items():
            named = MCP_PATHS.fullmatch(name) is not None
            yield from _named_by(part, is_file=named, depth=depth + 1)


def patched(patch: str) -> Iterator[str]:
    """Yield the files named in a patch of ``apply_patch``, including the targets of moves."""
    for line in patch.splitlines():
        stripped = line.strip()
        for header in PATCH:
            if stripped.startswith(header):
                name = stripped.removeprefix(header).strip()
                if _is_usable(name):
                    yield name
