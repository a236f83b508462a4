"""What a tool's answer and its refusal look like to an agent: a text, and the contract's JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from mcp import types

from gitlease.core.errors import GitleaseError
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import word_anywhere
from gitlease.faces import sentences, wire
from gitlease.faces.library.refusals import with_arguments
from gitlease.faces.mcp.tools import LONGEST_WAIT, ToolAnswer, call_of


def answered(tool: str, answer: ToolAnswer, now: datetime) -> types.CallToolResult:
    """The result of what was done or seen; where some of it was refused, that counts."""
    if answer.refused:
        return refused(tool, answer.refused[0], now, {}, done=answer)
    document = wire.success(
        tool, body=answer.body, warnings=answer.warnings, next_steps=answer.next_steps
    )
    lines = [*answer.lines, *(f"warning: {said}" for said in answer.warnings)]
    return _result(lines, answer.next_steps, document)


def refused(
    tool: str,
    error: GitleaseError,
    now: datetime,
    asked: Mapping[str, Any],
    *,
    done: ToolAnswer | None = None,
) -> types.CallToolResult:
    """The result of a refusal: who has it, until when, and what to do.

    ``done`` is what was done besides, where others of several leases were not refused.
    """
    every = done.refused if done else ()
    body = {"refused": [wire.refusal(x, now=now) for x in every]} if every else {}
    error.message = _in_calls(error.message)
    error.hints = tuple(map(_in_calls, error.hints))
    steps = _ways_out(error, asked)
    body = dict(done.body) | body if done else body
    document = wire.failure(tool, error, now=now, next_steps=steps, body=body)
    lines = [
        *(done.lines if done else ()),
        f"{error.code}: {sentences.refusal(error, now)}",
        *(f"{x.code}: {sentences.refusal(x, now)}" for x in every[1:]),
        *sentences.others_in_the_way(error, now),
        *(f"hint: {hint}" for hint in (*error.hints, *_advice(error))),
        *(f"warning: {said}" for said in error.warnings),
    ]
    return _result(lines, steps, document, is_error=True)


def _result(
    lines: Sequence[str], steps: Sequence[str], document: wire.Document, *, is_error: bool = False
) -> types.CallToolResult:
    text = "\n".join([*lines, *(f"next: {step}" for step in steps)])
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=content, structured_content=document, is_error=is_error)


def _in_calls(text: str) -> str:
    return with_arguments(text, on="{}: true")


def _advice(error: GitleaseError) -> Sequence[str]:
    if error.code == "lost":
        return ("stop what you did under it",)
    if error.code in sentences.IN_THE_WAY and error.views and not error.views[0].mine:
        return ("work on something else meanwhile, or ask the holder to release it",)
    return ()


def _ways_out(error: GitleaseError, asked: Mapping[str, Any]) -> list[str]:
    """Calls that are safe as they stand: none takes anything from its holder."""
    name, scope = word_anywhere(error.resource or ""), error.scope
    if error.code in ("held", "wait_timeout") and name and error.free_at and not error.by_edge:
        words = list(asked.get("resources", (name,)))
        others = dict.fromkeys(word_anywhere(x.resource) for x in error.views)
        if not {fold(x) for x in others} <= {fold(x) for x in words}:
            words, scope = list(others), None  # that are in the way by their paths
        return [call_of("wait", resources=words, scope=scope, timeout=LONGEST_WAIT)]
    if name and error.code in (*sentences.IN_THE_WAY, "lost", "unknown_outcome"):
        return [call_of("status", resources=[name])]
    if error.code == "nothing_left":
        return [call_of("status")]
    return []
