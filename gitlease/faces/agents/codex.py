"""Codex: its hook events, and the answers that it reads.

Both have the shape of Claude Code's, but that files are edited by patches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitlease.faces.agents.answers import all_of, like_claude
from gitlease.faces.agents.claude import NAMES, in_this_shape
from gitlease.faces.agents.events import AgentEvent, EventKind, Reply

PATHS = ("file_path", "path")


def read(kind: EventKind, data: Mapping[str, Any]) -> AgentEvent:
    """One event of Codex."""
    return in_this_shape(kind, data, by="codex", paths=PATHS)


def answer(kind: EventKind, reply: Reply) -> dict[str, Any]:
    """The JSON on standard output; empty: none is needed.

    Before a tool only what stops it is read by every version: a note goes to the person.
    """
    if kind.asks and reply.context and not reply.deny:
        reply = Reply(notice=all_of(reply))
    return like_claude(reply, NAMES[kind])
