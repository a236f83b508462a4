"""``gitlease server-hook NAME``: what the hook of a server calls with git's own input.

It accepts with 0 and refuses with 9; any other status is a fault of its own, of which the hook's
shell knows what to make. Whatever it says goes to whoever pushes.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gitlease.domain.errors import GitleaseError
from gitlease.faces.printable import clean

if TYPE_CHECKING:
    from gitlease.bootstrap_server import Refusal, Verdict

ACCEPTED, REFUSED, USAGE, FAULT = 0, 9, 2, 70
HOOK = "pre-receive"
MOST_INPUT = 8 * 1024 * 1024 + 1  # bytes: more of them say that it is too much
SHOWN = 20


def run_server_hook(argv: Sequence[str]) -> int:
    """Judge one push and give the status that the hook's shell waits for."""
    if list(argv) != [HOOK]:
        say(f"there is no server hook {' '.join(argv)[:60]!r}; there is {HOOK}")
        return USAGE
    try:
        verdict = _judged()
    except GitleaseError as error:
        say(f"this push cannot be judged: {error.message}")
        for hint in error.hints:
            say(f"hint: {hint}")
        return FAULT
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        say(f"this push cannot be judged: internal error: {what}")
        return FAULT
    tell(verdict)
    return REFUSED if verdict.blocked else ACCEPTED


def _judged() -> Verdict:
    from gitlease.bootstrap_server import judge_push

    data = sys.stdin.buffer.read(MOST_INPUT) if sys.stdin is not None else b""
    return judge_push(data)


def tell(verdict: Verdict) -> None:
    """Everything that was found; what refuses comes first, since clients show the first line."""
    every = sorted(verdict.refusals, key=lambda refusal: not refusal.stops)
    for refusal in every[:SHOWN]:
        say(_line(refusal, blocked=verdict.blocked and refusal.stops))
    hints = dict.fromkeys(hint for refusal in every[:SHOWN] for hint in refusal.hints)
    for hint in hints:
        say(f"hint: {hint}")
    for text in dict.fromkeys(verdict.warnings[:SHOWN]):
        say(f"warning: {text}")


def _line(refusal: Refusal, *, blocked: bool) -> str:
    of = f" {refusal.ref}" if refusal.ref else ""
    if blocked:
        return f"refused{of} ({refusal.rule}): {refusal.message}"
    if not refusal.stops:
        return f"warning: this push's work is not checked: {refusal.message}"
    return f"warning: would be refused{of} ({refusal.rule}): {refusal.message}"


def say(text: str) -> None:
    """One line to whoever pushes, if anybody listens."""
    with contextlib.suppress(OSError, ValueError):
        print("gitlease: " + clean(text).replace("\n", " "), file=sys.stderr, flush=True)
