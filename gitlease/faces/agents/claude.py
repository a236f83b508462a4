"""Claude Code: parsing of its hook events, and the format of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gitlease.faces.agents import cursor
from gitlease.faces.agents.answers import like_claude
from gitlease.faces.agents.events import AgentEvent, EventKind, Reply, edited, shell_command, text

NAMES = {
    EventKind.SESSION_START: "SessionStart",
    EventKind.SUBAGENT_START: "SubagentStart",
    EventKind.BEFORE_EDIT: "PreToolUse",
    EventKind.BEFORE_SHELL: "PreToolUse",
    EventKind.AFTER_TOOL: "PostToolUse",
    EventKind.SUBAGENT_STOP: "SubagentStop",
    EventKind.SESSION_END: "SessionEnd",
}
PATHS = ("file_path", "notebook_path")


def read(kind: EventKind, data: Mapping[str, Any]) -> AgentEvent:
    """Parse an event of Claude Code, or of Cursor, which can run the hooks of Claude Code."""
    if "cursor_version" in data or ("conversation_id" in data and "session_id" not in data):
        return cursor.read(kind, data)
    return in_this_shape(kind, data, by="claude", paths=PATHS)


def in_this_shape(
    kind: EventKind, data: Mapping[str, Any], *, by: str, paths: Sequence[str]
) -> AgentEvent:
    """Parse an event of this shape; ``paths`` are the arguments that name files."""
    found, more = edited(data, paths) if kind is EventKind.BEFORE_EDIT else ((), False)
    return AgentEvent(
        kind=kind,
        by=by,
        session_id=text(data, "session_id"),
        agent_id=text(data, "agent_id"),
        cwd=text(data, "cwd"),
        paths=found,
        reason=text(data, "source", "reason"),
        command=shell_command(data) if kind is EventKind.BEFORE_SHELL else "",
        more=more,
    )


def answer(kind: EventKind, reply: Reply) -> dict[str, Any]:
    """Return the JSON for standard output, or an empty dict."""
    return like_claude(reply, NAMES[kind])
