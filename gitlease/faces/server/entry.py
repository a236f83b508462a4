"""``gitlease server-hook NAME [end]``: what the hook of a server calls with git's own input.

It accepts with 0 and refuses with 9; any other status is a fault of its own, of which the hook's
shell knows what to make. Whatever it says goes to whoever pushes. With ``end`` the input has that
word in a line of its own at its end, without which it is not whole.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import GitleaseError, Invalid, clean

if TYPE_CHECKING:
    from gitlease.wiring.server import PushVerdict, Refusal

ACCEPTED, REFUSED, USAGE, FAULT = 0, 9, 2, 70
HOOK, END = "pre-receive", "end"
MOST_INPUT = 8 * 1024 * 1024 + 1  # bytes: more of them say that it is too much
SHOWN = 20


def run_server_hook(argv: Sequence[str]) -> int:
    """Judge one push and give the status that the hook's shell waits for."""
    if list(argv) not in ([HOOK], [HOOK, END]):
        say(f"unknown server hook {' '.join(argv)[:60]!r}; known: {HOOK}")
        return USAGE
    try:
        verdict = _judged(marked=END in argv)
    except GitleaseError as error:
        say(f"this push cannot be judged: {error.message}")
        for hint in error.hints:
            say(f"hint: {hint}")
        return FAULT
    except MemoryError:
        say("this push cannot be judged: it takes more memory than a judgement may have")
        return FAULT
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        say(f"this push cannot be judged: internal error: {what}")
        return FAULT
    tell(verdict)
    return REFUSED if verdict.blocked else ACCEPTED


def _judged(*, marked: bool) -> PushVerdict:
    from gitlease.wiring.server import judge_push

    gc.enable()  # there is no telling how much is judged
    data = sys.stdin.buffer.read(MOST_INPUT) if sys.stdin is not None else b""
    mark = f"\n{END}\n".encode() if marked else b"\n"
    if len(data) < MOST_INPUT and not data.endswith(mark):
        raise Invalid("what is pushed came only in part")
    return judge_push(data.removesuffix(mark) + b"\n")


def tell(verdict: PushVerdict) -> None:
    """Everything that was found; what refuses comes first, since clients show the first line."""
    shown = verdict.refusals[:SHOWN]
    for refusal in shown:
        say(_line(refusal, blocked=verdict.blocked))
    hints = dict.fromkeys(hint for refusal in shown for hint in refusal.hints)
    for hint in hints:
        say(f"hint: {hint}")
    for text in dict.fromkeys(verdict.warnings[:SHOWN]):
        say(f"warning: {text}")


def _line(refusal: Refusal, *, blocked: bool) -> str:
    of = f" {refusal.ref}" if refusal.ref else ""
    if blocked:
        return f"refused{of} ({refusal.rule}): {refusal.message}"
    return f"warning: would be refused{of} ({refusal.rule}): {refusal.message}"


def say(text: str) -> None:
    """One line to whoever pushes, if anybody listens."""
    with contextlib.suppress(OSError, ValueError):
        print("gitlease: " + clean(text).replace("\n", " "), file=sys.stderr, flush=True)
