"""``gitlease server-hook NAME [end]``: the judge that a server's hook calls with git's input.

It accepts with 0 and refuses with 9; any other status is a failure, which the hook's shell script
handles. Its output goes to the person who pushes. With ``end``, the last line of the input is that
word; otherwise the input is incomplete.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Sequence

from gitlease.kernel.rules.errors import GitleaseError, Invalid, clean
from gitlease.server.opening import judge_push
from gitlease.server.receive import PushVerdict, Refusal

ACCEPTED, REFUSED, USAGE, FAULT = 0, 9, 2, 70
HOOK, END = "pre-receive", "end"
MOST_INPUT = 8 * 1024 * 1024 + 1  # bytes; the last one shows that the input is too long
SHOWN = 20


def run_server_hook(argv: Sequence[str]) -> int:
    """Judge one push and return the exit status."""
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
        say("this push cannot be judged: it needs too much memory")
        return FAULT
    # Any traceback would be shown to whoever pushes; the script refuses by the status.
    except Exception as error:
        line = f"{type(error).__name__}: {error}".splitlines()[0]
        say(f"this push cannot be judged: internal error: {line}")
        return FAULT
    report(verdict)
    return REFUSED if verdict.blocked else ACCEPTED


def _judged(*, marked: bool) -> PushVerdict:
    # The program starts without the collector of garbage; a push may be large.
    gc.enable()
    data = sys.stdin.buffer.read(MOST_INPUT) if sys.stdin is not None else b""
    mark = f"\n{END}\n".encode() if marked else b"\n"
    # Whoever hands the input on may have been killed: the refs that are missing would pass
    # unjudged.
    if len(data) < MOST_INPUT and not data.endswith(mark):
        raise Invalid("the list of pushed refs is incomplete")
    return judge_push(data.removesuffix(mark) + b"\n")


def report(verdict: PushVerdict) -> None:
    """Print all findings, refusals first, because clients show the first line."""
    shown = verdict.refusals[:SHOWN]
    for refusal in shown:
        say(_line(refusal, blocked=verdict.blocked))
    hints = dict.fromkeys(hint for refusal in shown for hint in refusal.hints)
    for hint in hints:
        say(f"hint: {hint}")
    for text in dict.fromkeys(verdict.warnings[:SHOWN]):
        say(f"warning: {text}")


def _line(refusal: Refusal, *, blocked: bool) -> str:
    ref = f" {refusal.ref}" if refusal.ref else ""
    prefix = "refused" if blocked else "warning: would be refused"
    return f"{prefix}{ref} ({refusal.rule}): {refusal.message}"


def say(text: str) -> None:
    """Print one line to the person who pushes, unless standard error is closed."""
    with contextlib.suppress(OSError, ValueError):
        print("gitlease: " + clean(text).replace("\n", " "), file=sys.stderr, flush=True)
