"""Codex: events and answers like Claude Code's, but it edits files with patches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitlease.faces.agents.answers import all_of, like_claude
from gitlease.faces.agents.claude import NAMES, in_this_shape
from gitlease.faces.agents.events import AgentEvent, EventKind, Reply

PATHS = ("file_path", "path")


def read(kind: EventKind, data: Mapping[str, Any]) -> AgentEvent:
    """Parse an event of Codex."""
    return in_this_shape(kind, data, by="codex", paths=PATHS)


def answer(kind: EventKind, reply: Reply) -> dict[str, Any]:
    """Return the JSON for standard output, or an empty dict.

    Before a tool, some versions only read a denial, so a note goes to the person.
    """
    if kind.asks and reply.context and not reply.deny:
        reply = Reply(notice=all_of(reply))
    return like_claude(reply, NAMES[kind])
