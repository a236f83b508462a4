"""How a refusal is told: the fact, what else stands in the way, and what to type next."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gitlease.domain.errors import AnotherLedger
from gitlease.domain.lease import same_person
from gitlease.domain.resource import WHOLE
from gitlease.faces import sentences, wire
from gitlease.faces.cli import output
from gitlease.faces.cli.claiming import WAIT
from gitlease.faces.codes import INTERNAL, exit_of

if TYPE_CHECKING:
    from gitlease.domain.errors import GitleaseError
    from gitlease.faces.cli.call import Call


def tell(call: Call, error: GitleaseError, body: Mapping[str, Any] | None = None) -> int:
    """Print a refusal and give its exit status. ``body`` is what was done besides."""
    steps, now = next_steps(call, error), call.now()
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
    output.hint([*error.hints, *_advice(call, error), *steps])
    return exit_of(error.code)


def next_steps(call: Call, error: GitleaseError) -> list[str]:
    """Commands that are safe to run as they stand: none takes a lease from its holder."""
    code, resource = error.code, error.resource
    if code in ("held", "wait_timeout") and call.retry is not None and error.free_at is not None:
        return list(dict.fromkeys([_wait(call, error), call.retry]))
    if resource is not None and code in ("held", "not_holder", "unknown_outcome", "wait_timeout"):
        return [call.typed("show", resource)]
    finished = any(view.state == "completed" for view in error.views)
    if resource is not None and code == "lost" and not finished:
        return [call.typed("claim", resource)]
    if code == "nothing_left":
        return [call.whole_queue or call.typed("queue", options=["--all"])]
    if code == "unavailable" and call.cached is not None:
        return [call.cached]
    if code == "usage":
        return [" ".join(w for w in (call.prog, call.command, "--help") if w)]
    return []


def _wait(call: Call, error: GitleaseError) -> str:
    """The wait that takes nothing, for whoever is to decide anew once it is free."""
    if call.command == "wait" or error.resource is None:
        return call.retry or ""
    part = [] if error.scope in (None, WHOLE) else ["--scope", f"{error.scope}"]
    return call.typed("wait", error.resource, options=["--timeout", WAIT, *part])


def _advice(call: Call, error: GitleaseError) -> Sequence[str]:
    """Sentences for a person alone: what a program had better not do by itself."""
    if isinstance(error, AnotherLedger):
        return (f"if it was replaced or restored on purpose, accept it with {call.typed('init')}",)
    if error.code not in ("held", "wait_timeout"):
        return ()
    if not error.views:
        return (_only(error.holder),) if error.holder else ()
    first = error.views[0]
    if same_person(first.holder, call.actor.holder) and first.session:
        return (f"it is your own, of session {first.session}",)
    if error.free_at is None:
        return (_only(first.holder),)
    return ()


def _only(holder: str) -> str:
    return f"only {holder} can release it; ask them"


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
