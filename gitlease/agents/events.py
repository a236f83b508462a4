"""The events of coding agents and the answers to them, in one form for every host.

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

from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.settings.identity import AGENTS, MCP_EDITS, Agent

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
        """Return whether the answer can deny the tool."""
        return self in (EventKind.BEFORE_EDIT, EventKind.BEFORE_SHELL)


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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
        event = json.loads(data)
    except (ValueError, RecursionError):
        raise Invalid("the event is not JSON") from None
    if not isinstance(event, dict):
        raise Invalid("the event is not a JSON object")
    return event


def read(agent: Agent, kind: EventKind, data: Mapping[str, Any]) -> AgentEvent:
    """Return an event in our form; without a folder, its own is the root that has its files."""
    borrowers = (x for x in AGENTS.values() if x.borrows == agent.name and _is_of(x, agent, data))
    agent = next(borrowers, agent)
    paths, more = edited(data, agent.paths) if kind is EventKind.BEFORE_EDIT else ((), False)
    shell, folder = kind is EventKind.BEFORE_SHELL, ""
    # Where a shell is told a folder of its own, the command works there.
    if shell and agent.flat:
        folder = text(tool_input(data), "working_directory", "cwd")
    return AgentEvent(
        kind=kind,
        by=agent.name,
        session_id=text(data, *agent.session),
        agent_id=text(data, agent.subagent),
        cwd=folder or text(data, "cwd") or _root(data, paths),
        paths=paths,
        reason=text(data, *agent.reason),
        command=shell_command(data) if shell else "",
        more=more,
    )


def _is_of(borrower: Agent, agent: Agent, data: Mapping[str, Any]) -> bool:
    # Some agents run the hooks in another one's file, and send their own fields.
    has_own, has_others = (not data.keys().isdisjoint(x.session) for x in (borrower, agent))
    return borrower.mark in data or (has_own and not has_others)


def _root(data: Mapping[str, Any], paths: tuple[str, ...]) -> str:
    value = data.get("workspace_roots")
    listed: list[object] = value[:100] if isinstance(value, list) else []
    roots = [r for r in listed if isinstance(r, str) and r and len(r) <= MAX_WORD]
    for root in roots:
        if any(path.startswith(os.path.join(root, "")) for path in paths):
            return root
    return roots[0] if roots else ""


def answer(agent: Agent, kind: EventKind, reply: Reply) -> dict[str, Any]:
    """Return the JSON for standard output, or an empty dict."""
    # Each line for the person and for the model once.
    parts = (line for part in (reply.notice, reply.context) for line in part.split("\n"))
    asks, message = kind.asks and not reply.deny, "\n".join(dict.fromkeys(filter(None, parts)))
    if agent.flat:
        if kind.asks and reply.deny:
            first = reply.deny.partition("\n")[0]
            return {"permission": "deny", "user_message": first, "agent_message": reply.deny}
        # Never "allow" of itself, which would skip the host's own question to its user; but this
        # form has no other way to tell something before a tool.
        if asks and message:
            return {"permission": "allow", "user_message": message, "agent_message": message}
        return {"additional_context": reply.context} if reply.context and not asks else {}
    if agent.only_denies and asks and reply.context:
        reply = Reply(notice=message)
    inner: dict[str, Any] = {}
    if reply.deny:
        inner = {"permissionDecision": "deny", "permissionDecisionReason": reply.deny}
    elif reply.context:
        inner = {"additionalContext": reply.context}
    if inner:
        inner = {"hookSpecificOutput": {"hookEventName": agent.event_name(kind.value), **inner}}
    return inner | ({"systemMessage": reply.notice} if reply.notice else {})


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
    except UnicodeEncodeError:
        # A lone surrogate, which JSON can hold and no path can.
        return False
    return True


def tool_input(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tool's arguments."""
    value = data.get("tool_input")
    # Some hosts encode them as JSON in a text, or send a bare patch.
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
    # Nobody knows all tools of all servers: their names tell which of them edit.
    if tool.startswith(MCP) and re.match(MCP_EDITS, tool):
        named += _named_by(words)
    files: dict[str, None] = dict.fromkeys(named)
    for value in (words.get(name) for name in ("command", "patch", "input")):
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, str) and "*** " in part:
                files |= dict.fromkeys(patched(part))
    return tuple(files)[:MAX_PATHS], len(files) > MAX_PATHS


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
