"""The options, the wait and the answer that all claiming verbs share."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gitlease.core.frozen import dataclass
from gitlease.core.instant import format_duration
from gitlease.core.resources.resource import WHOLE
from gitlease.faces import next_steps, sentences
from gitlease.faces.cli import output, types
from gitlease.faces.cli.verb import Decorated, flag, option

HEARTBEAT_OF = ("claude:", "codex:", "cursor:")  # sessions kept alive by their host's hooks

if TYPE_CHECKING:
    from gitlease.core.errors import LeaseHeld
    from gitlease.core.resources.resource import Resource
    from gitlease.engine.answers import Answer, ClaimOptions
    from gitlease.faces.cli.call import Call

LENGTHS = (
    "quick fix 5-10m, standard 15-30m, feature 1h, refactor 2h",
    "Prefer short leases and renew while you work: a forgotten lease ends by itself.",
)
SCOPE = "Claim only this part of the work (default: all of it)."

ttl_option = option(
    "--ttl",
    metavar="D",
    type=types.duration("ttl"),
    help="How long the lease lasts unless renewed (15m, 1h).",
)
wait_option = option(
    "--wait",
    metavar="D",
    type=types.duration("wait"),
    help="Wait at most this long until it is free.",
)
reason_option = option(
    "--reason", metavar="TEXT", type=types.reason, help="Why; shown to anyone who is refused."
)
takeover_option = flag("--takeover", help="Replace someone else's assignment; needs --reason.")
expect_option = option(
    "--expect-holder",
    metavar="H",
    type=types.holder,
    help="With --takeover: only if it is assigned to H.",
)
reopen_option = flag("--reopen", help="Claim completed work again.")
new_option = flag("--new", help="Refuse a lease you already hold instead of renewing it.")
any_option = flag("--any", help="Accept names that are not tasks.")
path_option = option(
    "--path",
    "paths",
    metavar="P",
    multiple=True,
    shell_complete=types.files,
    help="Cover this path, too.",
)
commit_option = flag(
    "--commit",
    help="Commit the edit of the task file by itself; --no-commit leaves it in the work tree "
    "(default: edges.commit).",
    default=None,
)
CLAIMING = (ttl_option, wait_option, reason_option, takeover_option, expect_option, reopen_option)


def claim_options(verb: Decorated) -> Decorated:
    """Decorate a verb that may wait for its claim with the options of a claim."""
    for decorate in reversed(CLAIMING):
        verb = decorate(verb)
    return verb


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """The options of a claim as typed; None for an option that was not given."""

    ttl: int | None = None
    wait: int | None = None
    reason: str | None = None
    takeover: bool = False
    expect_holder: str | None = None
    reopen: bool = False
    scope: str | None = None
    any: bool = False
    new: bool = False
    commit: bool | None = None

    def options(self, covered: Sequence[Resource] = ()) -> ClaimOptions:
        """Return the engine's options, with further paths to cover."""
        from gitlease.engine.answers import ClaimOptions

        return ClaimOptions(
            scope=WHOLE if self.scope is None else self.scope,
            ttl=self.ttl,
            paths=tuple(found for path in covered if (found := path.pattern) is not None),
            reason=self.reason,
            takeover=self.takeover,
            expect_holder=self.expect_holder,
            reopen=self.reopen,
            new=self.new,
            any_name=self.any,
            commit=self.commit,
        )

    def waiting(
        self,
        call: Call,
        verb: str,
        resources: Sequence[Resource],
        wait: str,
        *,
        then: Sequence[str] = (),
        covered: Sequence[Resource] = (),
    ) -> str:
        """Return the same claim with ``--wait``, and without ``--takeover`` and ``--reopen``."""
        ttl = None if self.ttl is None else format_duration(self.ttl)
        given: list[tuple[str, str | None]] = [
            ("--wait", wait),
            *(("--path", call.word(path)) for path in covered),
        ]
        given += [("--scope", self.scope), ("--ttl", ttl), ("--reason", self.reason)]
        options = [word for name, value in given if value is not None for word in (name, value)]
        options += [word for word, given in (("--any", self.any), ("--new", self.new)) if given]
        if self.commit is not None:
            options.append("--commit" if self.commit else "--no-commit")
        return call.typed(verb, *resources, then=then, options=options)


def report_waiting(call: Call, seconds: int | None) -> Callable[[LeaseHeld], None]:
    """Return a callback that prints each new lease in the way once."""
    last = ""
    limit = f" up to {format_duration(seconds)}" if seconds else ""

    def report(held: LeaseHeld) -> None:
        nonlocal last
        blocker = held.views[0].lease_id if held.views else held.message
        if blocker != last:
            last = blocker
            output.aside(f"waiting{limit}: {sentences.refusal(held, call.now())}")

    return report


def expect_wait(wait: int | None) -> None:
    """Turn garbage collection on again if the call may last long."""
    if wait is not None:
        gc.enable()


def answer_claim(
    call: Call,
    answer: Answer,
    *,
    scope: str | None,
    more: dict[str, object] | None = None,
    also: Sequence[str] = (),
    verbose: bool = False,
) -> None:
    """Answer a claim, with ``more`` keys in the JSON and ``also`` these lines for people.

    ``verbose`` shows people the ids of the leases.
    """
    from gitlease.faces import wire

    call.warnings += _warn_of_short_ttl(call, answer)
    call.warn_of_dead_hooks()
    call.answer_verb(
        answer,
        wire.claimed(answer) | (more or {}),
        next_steps=next_steps.after_claim(call, answer.leases, scope),
        show=lambda: show_claimed(call, answer, also, verbose=verbose),
    )


def _warn_of_short_ttl(call: Call, answer: Answer) -> list[str]:
    session = call.actor.session or ""
    if not session.startswith(HEARTBEAT_OF):
        return []
    from gitlease.guard.heartbeat import SHORTEST_KEPT

    least = min((view.ttl_seconds for view in answer.leases), default=SHORTEST_KEPT)
    if least >= SHORTEST_KEPT:
        return []
    short, kept = format_duration(least), format_duration(SHORTEST_KEPT)
    return [
        f"a lease of {short} may expire between two tool calls: the heartbeat of session "
        f"{session} keeps leases of {kept} or more alive"
    ]


def show_claimed(
    call: Call, answer: Answer, also: Sequence[str] = (), *, verbose: bool = False
) -> None:
    """Print the claimed leases, their former holders, edited files and notes."""
    now = call.now()
    for view in answer.leases:
        verb = "renewed your own" if view.renewals else "claimed"
        left = f"{sentences.until(view, now)}, token {view.token}, holder {view.holder}"
        id = f", lease {view.lease_id}" if verbose else ""
        output.line(f"{verb} {sentences.named(view)} {left}{id}")
    for old in answer.displaced:
        output.line(f"{sentences.displaced(old)}{sentences.quoted(old.reason)}")
    if answer.written or answer.unassigned:
        from gitlease.faces import task_text

        for name in task_text.unassigned(answer, call.ledger.edges.rules.people):
            output.line(f"taken over from {name}")
        output.lines(task_text.edited(answer))
    output.lines(also)
    output.lines(sentences.noted(note, now) for note in answer.notes)
