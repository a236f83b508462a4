"""The result of a tool as an agent sees it: a text, and the contract's JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    """The result of a tool; if part of it was refused, it is an error."""
    if answer.refused:
        return refused(tool, answer.refused[0], now, {}, answer=answer)
    document = wire.success(
        tool, body=answer.body, warnings=answer.warnings, next_steps=answer.next_steps
    )
    lines = [*answer.lines, *_warnings(answer.warnings)]
    return _result(lines, answer.next_steps, document)


def refused(
    tool: str,
    error: GitleaseError,
    now: datetime,
    arguments: Mapping[str, Any],
    *,
    answer: ToolAnswer | None = None,
) -> types.CallToolResult:
    """The result of a refusal: who has the lease, until when, and what to do.

    ``answer`` is that of a call which was refused in part.
    """
    all_refused = answer.refused if answer else ()
    body = dict(answer.body) if answer else {}
    if all_refused:
        body["refused"] = [wire.refusal(x, now=now) for x in all_refused]
    error.message = _in_calls(error.message)
    error.hints = tuple(map(_in_calls, error.hints))
    steps = _next_calls(error, arguments)
    document = wire.failure(tool, error, now=now, next_steps=steps, body=body)
    lines = [
        *(answer.lines if answer else ()),
        f"{error.code}: {sentences.refusal(error, now)}",
        *(f"{x.code}: {sentences.refusal(x, now)}" for x in all_refused[1:]),
        *sentences.others_in_the_way(error, now),
        *(f"hint: {hint}" for hint in (*error.hints, *_advice(error))),
        *_warnings(error.warnings),
    ]
    return _result(lines, steps, document, is_error=True)


def put_in_words(error: GitleaseError, words: Callable[[str], str]) -> None:
    """Change the texts of a refusal as the clients of a server may read them."""
    error.message = words(error.message)
    error.hints = tuple(map(words, error.hints))
    error.warnings = tuple(map(words, error.warnings))


def _result(
    lines: Sequence[str], steps: Sequence[str], document: wire.Document, *, is_error: bool = False
) -> types.CallToolResult:
    text = "\n".join([*lines, *(f"next: {step}" for step in steps)])
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=content, structured_content=document, is_error=is_error)


def _warnings(warnings: Sequence[str]) -> list[str]:
    return [f"warning: {text}" for text in warnings]


def _in_calls(text: str) -> str:
    return with_arguments(text, on="{}: true")


def _advice(error: GitleaseError) -> Sequence[str]:
    if error.code == "lost":
        return ("stop the work that it covers",)
    if error.by_edge and error.holder:
        return (f"ask {error.to_ask}, or take another task",)
    if error.code in sentences.IN_THE_WAY and error.views and not error.views[0].mine:
        return ("work on something else, or ask the holder to release it",)
    return ()


def _next_calls(error: GitleaseError, arguments: Mapping[str, Any]) -> list[str]:
    # All are safe: none takes a lease from its holder.
    name, scope = word_anywhere(error.resource or ""), error.scope
    if error.code in ("held", "wait_timeout") and name and error.free_at and not error.by_edge:
        words = list(arguments.get("resources", (name,)))
        others = dict.fromkeys(word_anywhere(x.resource) for x in error.views)
        if not {fold(x) for x in others} <= {fold(x) for x in words}:
            words, scope = list(others), None  # these conflict by their paths
        return [call_of("wait", resources=words, scope=scope, timeout=LONGEST_WAIT)]
    if name and error.code in (*sentences.IN_THE_WAY, "lost", "unknown_outcome"):
        return [call_of("status", resources=[name])]
    if error.code == "nothing_left":
        return [call_of("status")]
    return []
