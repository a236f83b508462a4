"""Why a command did not run under leases, with exit statuses that are not the command's own."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from gitlease.core.errors import GitleaseError
from gitlease.faces.codes import INTERNAL

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call


class Fault(GitleaseError):
    """A fault of gitlease itself."""

    code: ClassVar[str] = INTERNAL


def tell_fault(call: Call, error: Exception, *, traceback: bool) -> int:
    """Tell of a fault of gitlease itself: its exit status must not be taken for the command's."""
    if traceback:
        import traceback as tracebacks

        tracebacks.print_exception(error, file=sys.stderr)
    message = f"internal error: {type(error).__name__}: {error}".splitlines()[0]
    hint = "run it again with --traceback and report what it prints"
    return tell_refusal(call, Fault(message, hints=(hint,)))


def tell_refusal(call: Call, refusal: GitleaseError) -> int:
    """Tell why it did not run, and give the exit status of that."""
    from gitlease.faces import next_steps, wire
    from gitlease.faces.cli import refusals
    from gitlease.runs.running import exit_of_refusal

    status = exit_of_refusal(refusal)
    if not call.json:
        with contextlib.suppress(OSError, ValueError):
            refusals.tell(call, refusal)
        return status
    steps = next_steps.after_refusal(call, refusal)
    warnings = list(dict.fromkeys((*call.warnings, *refusal.warnings)))
    body = {"warnings": warnings} if warnings else {}
    said = wire.failure(call.command, refusal, now=call.now(), next_steps=steps, body=body)
    said["error"]["exit"] = status
    document(said)
    return status


def document(said: dict[str, Any]) -> None:
    """One line of JSON on standard error, since standard output is the command's."""
    import json

    with contextlib.suppress(OSError, ValueError):
        print(json.dumps(said), file=sys.stderr, flush=True)
