"""What every verb that claims has in common: its options, the wait, and how its answer is told."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from gitlease.core.duration import parse_duration
from gitlease.core.frozen import dataclass
from gitlease.core.resources.resource import WHOLE, parse_scope
from gitlease.faces import next_steps, sentences
from gitlease.faces.cli import output
from gitlease.faces.cli.verb import flag
from gitlease.faces.next_steps import WAIT

if TYPE_CHECKING:
    from gitlease.core.errors import LeaseHeld
    from gitlease.core.resources.resource import Resource
    from gitlease.engine.answers import Answer, ClaimOptions
    from gitlease.faces.cli.call import Call

LENGTHS = (
    "quick fix 5-10m, standard 15-30m, feature 1h, refactor 2h",
    "Prefer short and renew while you work: a lease you forget ends by itself.",
)

ttl_option = click.option("--ttl", metavar="D", help="How long it lasts unless renewed (15m, 1h).")
wait_option = click.option("--wait", metavar="D", help="Wait until it is free, at most this long.")
reason_option = click.option("--reason", metavar="TEXT", help="Why: shown to whoever is refused.")
takeover_option = flag("--takeover", help="Also replace another's assignment; needs --reason.")
reopen_option = flag("--reopen", help="Also claim what was completed.")
commit_option = flag(
    "--commit",
    help="Record the change of the task file as a commit of its own; --no-commit leaves it in the "
    "work tree (default: edges.commit).",
    default=None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How a claim is asked for, in the words that were typed; None for what was not given."""

    ttl: str | None = None
    wait: str | None = None
    reason: str | None = None
    takeover: bool = False
    reopen: bool = False
    scope: str | None = None
    any: bool = False
    commit: bool | None = None

    def terms(self, covered: Sequence[Resource] = ()) -> ClaimOptions:
        """The words as values, with the paths to cover. UsageError for bad ones."""
        from gitlease.engine.answers import ClaimOptions

        return ClaimOptions(
            scope=WHOLE if self.scope is None else parse_scope(self.scope),
            ttl=None if self.ttl is None else parse_duration(self.ttl, what="ttl"),
            paths=tuple(found for path in covered if (found := path.pattern) is not None),
            reason=checked_reason(self.reason),
            takeover=self.takeover,
            reopen=self.reopen,
            any_name=self.any,
            commit=self.commit,
        )

    def patience(self) -> int | None:
        """Seconds for which it may wait; None not to wait at all."""
        return None if self.wait is None else parse_duration(self.wait, what="wait")

    def waiting(self) -> list[str]:
        """The options of the same claim, waiting; it asks for nothing that is another's."""
        given = (("--scope", self.scope), ("--ttl", self.ttl), ("--reason", self.reason))
        words = [word for name, value in given if value is not None for word in (name, value)]
        return [*words, *(["--any"] if self.any else []), *recorded(self.commit)]


def again(
    call: Call,
    verb: str,
    resources: Sequence[Resource],
    wish: Wish,
    *,
    then: Sequence[str] = (),
    covered: Sequence[Resource] = (),
) -> str:
    """The same command, waiting."""
    paths = [word for path in covered for word in ("--path", call.word(path))]
    options = ["--wait", WAIT, *paths, *wish.waiting()]
    return call.typed(verb, *resources, then=then, options=options)


def recorded(commit: bool | None) -> list[str]:
    """The switch of a commit as it was given."""
    return [] if commit is None else ["--commit" if commit else "--no-commit"]


def checked_reason(reason: str | None) -> str | None:
    """A reason that may be stored and shown. UsageError otherwise."""
    from gitlease.core.moves.operations import MAX_REASON, check_text

    return None if reason is None else check_text(reason, what="reason", limit=MAX_REASON)


def tell_waiting(call: Call, wait: str | None) -> Callable[[LeaseHeld], None]:
    """Tell who is waited for, once for each lease in the way."""
    told: list[str] = []

    def tell(held: LeaseHeld) -> None:
        who = held.views[0].lease_id if held.views else held.message
        if told[-1:] == [who]:
            return
        told.append(who)
        limit = f" up to {wait}" if wait else ""
        output.aside(f"waiting{limit}: {sentences.refusal(held, call.now())}")

    return tell


@contextmanager
def ended_by_sigterm(patience: int | None) -> Iterator[None]:
    """Let SIGTERM end a wait like Ctrl-C does, so that the place in the line is given back."""
    if patience is not None:
        gc.enable()  # off in a short call, and a wait may be long
    if patience is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def answer_claim(
    call: Call,
    answer: Answer,
    *,
    scope: str | None,
    more: dict[str, object] | None = None,
    also: Sequence[str] = (),
) -> None:
    """Give the answer of a claim; ``more`` is its own body, and ``also`` its own lines."""
    from gitlease.faces import wire

    steps = next_steps.after_claim(call, answer.leases, scope)
    call.answer(
        wire.claimed(answer) | (more or {}),
        warnings=answer.warnings,
        views=answer.leases,
        next_steps=list(steps),
        hints=next_steps.hints(steps),
        show=lambda: show_claimed(call, answer, also),
    )


def show_claimed(call: Call, answer: Answer, also: Sequence[str] = ()) -> None:
    """Print what was claimed, from whom it was taken over, and the notes for whoever has it now."""
    now = call.now()
    for view in answer.leases:
        done = "renewed your own" if view.renewals else "claimed"
        left = f"{sentences.until(view, now)}, token {view.token}"
        output.line(f"{done} {sentences.named(view)} {left}")
    for old in answer.displaced:
        output.line(f"taken over from {sentences.whose(old)}{sentences.quoted(old.reason)}")
    if answer.written or answer.unassigned:
        from gitlease.faces import task_words

        for name in task_words.unassigned(answer, call.ledger.edges.rules.people):
            output.line(f"taken over from {name}")
        for text in task_words.edited(answer):
            output.line(text)
    for text in also:
        output.line(text)
    for note in answer.notes:
        output.line(sentences.noted(note))
