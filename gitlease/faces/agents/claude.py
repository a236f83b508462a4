"""Claude Code: its hook events, and the answers that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gitlease.faces.agents import cursor
from gitlease.faces.agents.answers import like_claude
from gitlease.faces.agents.events import Event, Kind, Reply, edited, text

NAMES = {
    Kind.SESSION_START: "SessionStart",
    Kind.SUBAGENT_START: "SubagentStart",
    Kind.BEFORE_EDIT: "PreToolUse",
    Kind.AFTER_TOOL: "PostToolUse",
    Kind.SUBAGENT_STOP: "SubagentStop",
    Kind.SESSION_END: "SessionEnd",
}
PATHS = ("file_path", "notebook_path")


def read(kind: Kind, data: Mapping[str, Any]) -> Event:
    """One event of Claude Code, or of Cursor, which can run the hooks of Claude Code."""
    if "cursor_version" in data or ("conversation_id" in data and "session_id" not in data):
        return cursor.read(kind, data)
    return in_this_shape(kind, data, by="claude", paths=PATHS)


def in_this_shape(kind: Kind, data: Mapping[str, Any], *, by: str, paths: Sequence[str]) -> Event:
    """An event in the shape of Claude Code's; ``paths`` are the arguments that name files."""
    found, more = edited(data, paths) if kind is Kind.BEFORE_EDIT else ((), False)
    return Event(
        kind=kind,
        by=by,
        session_id=text(data, "session_id"),
        agent_id=text(data, "agent_id"),
        cwd=text(data, "cwd"),
        paths=found,
        reason=text(data, "source", "reason"),
        more=more,
    )


def answer(kind: Kind, reply: Reply) -> dict[str, Any]:
    """The JSON on standard output; empty: none is needed."""
    return like_claude(reply, NAMES[kind])
