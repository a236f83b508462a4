"""What happened in a coding agent, in one form for every host.

Events come from programs that change from month to month: whatever is missing or odd in them makes
an event that says less, and never a traceback.
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
DEEPEST = 4  # lists and objects within each other, as in `files: [{path: …}]`
MCP = "mcp__"  # what the names of tools of MCP servers begin with
# The arguments that name what such a tool edits.
MCP_PATHS = re.compile(r"(.*_)?(path|file|filename|filepath|source|destination|target|uri)s?", re.I)
PATCH = ("*** Add File:", "*** Update File:", "*** Delete File:", "*** Move to:")


class EventKind(Enum):
    """The moments of a session; the values are the words of the command line."""

    SESSION_START = "session-start"
    SUBAGENT_START = "subagent-start"
    BEFORE_EDIT = "before-edit"
    BEFORE_SHELL = "before-shell"
    AFTER_TOOL = "after-tool"
    SUBAGENT_STOP = "subagent-stop"
    SESSION_END = "session-end"

    @property
    def asks(self) -> bool:
        """Whether the answer decides if the tool may be used."""
        return self in (EventKind.BEFORE_EDIT, EventKind.BEFORE_SHELL)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """One event. Texts are as the host gave them, ``""`` where it gave none.

    ``paths`` are the files about to be edited, absolute or relative to ``cwd``; ``reason`` is why
    the session starts or ends; ``command`` is what a shell is about to run. ``by`` is the host that
    sent it, which may be another one than the host whose handler was called; ``more`` says that
    there were too many paths to look at.
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
    """What to tell: ``deny`` stops the edit, ``context`` is for the model, ``notice`` for people.

    An empty one changes nothing.
    """

    deny: str = ""
    context: str = ""
    notice: str = ""


def parse(data: bytes) -> Mapping[str, Any]:
    """An event as its host wrote it. Invalid for what is no JSON object, or is too large."""
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
    """The first of these fields that is a text of use, else ``""``."""
    for name in names:
        value = data.get(name)
        if isinstance(value, str) and _is_of_use(value):
            return value
    return ""


def _is_of_use(value: str) -> bool:
    """Whether a text can be a name of anything: not empty, of some length, and fit for a file."""
    if not 0 < len(value) <= MAX_WORD or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeEncodeError:  # half a pair of surrogates
        return False
    return True


def tool_input(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tool's arguments; some hosts write them as JSON in a text."""
    value = data.get("tool_input")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {"patch": value}
    return value if isinstance(value, dict) else {}


def shell_command(data: Mapping[str, Any]) -> str:
    """What a tool is about to have a shell run."""
    command = tool_input(data).get("command")
    return command if isinstance(command, str) else ""


def edited(data: Mapping[str, Any], names: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """The files that a tool is about to edit, and whether there were more than are looked at."""
    words = tool_input(data)
    named = [word for name in names if (word := text(words, name))]
    tool = text(data, "tool_name")
    if tool.startswith(MCP):
        from gitlease.install.agents.hosts import MCP_EDITS

        named += _named_by(words) if re.match(MCP_EDITS, tool) else ()
    found: dict[str, None] = dict.fromkeys(named)
    for value in (words.get(name) for name in ("command", "patch", "input")):
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, str) and "*** " in part:
                found |= dict.fromkeys(patched(part))
    return tuple(found)[:MAX_PATHS], len(found) > MAX_PATHS


def _named_by(value: object, *, is_file: bool = False, depth: int = 0) -> Iterator[str]:
    """The files that the arguments of any tool name: what looks like one counts as one."""
    if isinstance(value, str):
        word = value.removeprefix("file://")
        if is_file and _is_of_use(value) and "://" not in word:
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
    """The files that a patch of ``apply_patch`` names, both names of one that is moved."""
    for line in patch.splitlines():
        stripped = line.strip()
        for header in PATCH:
            if stripped.startswith(header):
                name = stripped.removeprefix(header).strip()
                if _is_of_use(name):
                    yield name
