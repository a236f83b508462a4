"""How a refusal is told: the fact, what else stands in the way, and what to type next."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from gitlease.core.errors import GitleaseError
from gitlease.faces import next_steps, sentences, wire
from gitlease.faces.cli import output
from gitlease.faces.codes import INTERNAL, exit_of

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call


class Violations(GitleaseError):
    """What was looked at is not as it should be."""

    code: ClassVar[str] = "violations"


def tell(call: Call, error: GitleaseError, body: Mapping[str, Any] | None = None) -> int:
    """Print a refusal and give its exit status. ``body`` is what was done besides."""
    steps, now = next_steps.after_refusal(call, error), call.now()
    warnings = tuple(
        dict.fromkeys((*call.warnings, *error.warnings, *sentences.skew_warnings(error.views)))
    )
    if call.json:
        more = dict(body or {}) | ({"warnings": list(warnings)} if warnings else {})
        output.document(wire.failure(call.command, error, now=now, next_steps=steps, body=more))
    output.aside(sentences.refusal(error, now))
    for text in sentences.others_in_the_way(error, now):
        output.aside(text)
    if not call.json:
        output.warn(warnings)
    output.hint([*error.hints, *next_steps.advice(call, error), *steps])
    return exit_of(error.code)


def tell_fault(call: Call, error: Exception, *, traceback: bool) -> int:
    """Print a fault of gitlease itself: one line, and how to learn more."""
    message = f"internal error: {type(error).__name__}: {error}".splitlines()[0]
    if call.json:
        output.document(wire.fault(call.command, INTERNAL, message))
    if traceback:
        import traceback as tracebacks

        tracebacks.print_exception(error, file=sys.stderr)
    output.aside(message)
    output.hint(["run it again with --traceback and report what it prints"])
    return exit_of(INTERNAL)
