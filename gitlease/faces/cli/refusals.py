"""Refusals as people read them.

``run`` passes on its command's exit status, so its own refusals have others, and its output goes to
standard error, which may be closed.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gitlease.faces.cli import output
from gitlease.verbs import sentences, wire
from gitlease.verbs.next_steps import advice_after, steps_after
from gitlease.verbs.table import Fault, exit_of

if TYPE_CHECKING:
    from gitlease.core.errors import GitleaseError
    from gitlease.faces.cli.call import Call


def tell(call: Call, error: GitleaseError, body: Mapping[str, Any] | None = None) -> int:
    """Print a refusal and return its exit status. ``body`` reports a part that was done."""
    if call.command != "run":
        return _tell(call, error, body, exit_of(error.code))
    from gitlease.runs.supervisor import exit_of_refusal

    status = exit_of_refusal(error)
    with contextlib.suppress(OSError, ValueError):
        _tell(call, error, body, status)
    return status


def _tell(call: Call, error: GitleaseError, body: Mapping[str, Any] | None, status: int) -> int:
    steps, now = _steps_after(call, error), call.now()
    error = error.with_(hints=tuple(map(call.worded, error.hints)))
    warnings = tuple(
        dict.fromkeys((*call.warnings, *error.warnings, *sentences.skew_warnings(error.views)))
    )
    if call.json:
        more = dict(body or {}) | ({"warnings": list(warnings)} if warnings else {})
        document = wire.failure(call.command, error, now=now, next_steps=steps, body=more)
        document["error"]["exit"] = status
        if call.command == "run":
            output.last_line(document)
            return status
        output.document(document)
    output.aside(sentences.refusal(error, now), output.RED)
    for text in sentences.others_in_the_way(error, now):
        output.aside(text)
    if not call.json:
        output.warn(warnings)
    hints = [*error.hints, *map(call.worded, advice_after(call, error))]
    output.hint([*steps, *hints] if error.code == "not_found" else [*hints, *steps])
    return status


def tell_partly(call: Call, refused: Sequence[GitleaseError], body: Mapping[str, Any]) -> int:
    """Print the refusals after a partial success; the first one decides the exit status."""
    now = call.now()
    if not call.json:
        for error in refused[1:]:
            output.aside(sentences.refusal(error, now), output.RED)
    more = {"refused": [wire.refusal(error, now=now) for error in refused]}
    return tell(call, refused[0], {**body, **more})


def report_fault(call: Call, error: Exception, *, traceback: bool) -> int:
    """Print an internal error in one line, with a hint."""
    if traceback:
        import traceback as tracebacks

        tracebacks.print_exception(error, file=sys.stderr)
    message = f"internal error: {type(error).__name__}: {error}".splitlines()[0]
    hint = "run it again with --traceback and report what it prints"
    return tell(call, Fault(message, hints=(hint,)))


def _steps_after(call: Call, error: GitleaseError) -> list[str]:
    steps = [*map(call.command_of, steps_after(call, error, call.called))]
    if error.code == "usage" and not steps:
        return [" ".join(w for w in (call.prog, call.command, "--help") if w)]
    return steps
