"""Cursor: parsing of its hook events, and the format of answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gitlease.faces.agents.answers import all_of
from gitlease.faces.agents.events import (
    MAX_WORD,
    AgentEvent,
    EventKind,
    Reply,
    edited,
    shell_command,
    text,
    tool_input,
)

PATHS = ("file_path", "path", "target_file", "notebook_path", "target_notebook")


def read(kind: EventKind, data: Mapping[str, Any]) -> AgentEvent:
    """Parse an event of Cursor; the default folder is the workspace root of the edited file."""
    paths, more = edited(data, PATHS) if kind is EventKind.BEFORE_EDIT else ((), False)
    shell = kind is EventKind.BEFORE_SHELL
    folder = text(tool_input(data), "working_directory", "cwd") if shell else ""
    return AgentEvent(
        kind=kind,
        by="cursor",
        session_id=text(data, "conversation_id", "session_id"),
        agent_id=text(data, "subagent_id"),
        cwd=folder or text(data, "cwd") or _root(data, paths),
        paths=paths,
        reason=text(data, "reason", "composer_mode"),
        command=shell_command(data) if shell else "",
        more=more,
    )


def _root(data: Mapping[str, Any], paths: tuple[str, ...]) -> str:
    found = data.get("workspace_roots")
    listed: list[object] = found[:100] if isinstance(found, list) else []
    roots = [r for r in listed if isinstance(r, str) and r and len(r) <= MAX_WORD]
    for root in roots:
        if any(path.startswith(os.path.join(root, "")) for path in paths):
            return root
    return roots[0] if roots else ""


def answer(kind: EventKind, reply: Reply) -> dict[str, Any]:
    """Return the JSON for standard output, which Cursor always requires."""
    if kind.asks:
        if reply.deny:
            return {
                "permission": "deny",
                "user_message": reply.deny.partition("\n")[0],
                "agent_message": reply.deny,
            }
        said = all_of(reply)
        return {"permission": "allow", "user_message": said, "agent_message": said} if said else {}
    if reply.context:
        return {"additional_context": reply.context}
    return {}
