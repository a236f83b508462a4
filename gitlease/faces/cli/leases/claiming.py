"""What every verb that claims has in common: its options, the wait, and how its answer is told."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gitlease.core.duration import format_duration
from gitlease.core.frozen import dataclass
from gitlease.core.resources.resource import WHOLE
from gitlease.faces import next_steps, sentences
from gitlease.faces.cli import output, types
from gitlease.faces.cli.verb import Decorated, flag, option

HEARTBEAT_OF = ("claude:", "codex:", "cursor:")  # sessions that hooks of their host keep alive

if TYPE_CHECKING:
    from gitlease.core.errors import LeaseHeld
    from gitlease.core.resources.resource import Resource
    from gitlease.engine.answers import Answer, ClaimOptions
    from gitlease.faces.cli.call import Call

LENGTHS = (
    "quick fix 5-10m, standard 15-30m, feature 1h, refactor 2h",
    "Prefer short and renew while you work: a lease you forget ends by itself.",
)

ttl_option = option(
    "--ttl",
    metavar="D",
    type=types.duration("ttl"),
    help="How long it lasts unless renewed (15m, 1h).",
)
wait_option = option(
    "--wait",
    metavar="D",
    type=types.duration("wait"),
    help="Wait until it is free, at most this long.",
)
reason_option = option(
    "--reason", metavar="TEXT", type=types.reason, help="Why: shown to whoever is refused."
)
takeover_option = flag("--takeover", help="Also replace another's assignment; needs --reason.")
expect_option = option(
    "--expect-holder",
    metavar="H",
    type=types.holder,
    help="With --takeover: only if it is H's; refused otherwise.",
)
reopen_option = flag("--reopen", help="Also claim what was completed.")
new_option = flag("--new", help="Refuse what you hold already, instead of renewing it.")
any_option = flag("--any", help="Also names that are no tasks.")
path_option = option("--path", "paths", metavar="P", multiple=True, help="Cover this path as well.")
commit_option = flag(
    "--commit",
    help="Record the change of the task file as a commit of its own; --no-commit leaves it in the "
    "work tree (default: edges.commit).",
    default=None,
)
CLAIMING = (ttl_option, wait_option, reason_option, takeover_option, expect_option, reopen_option)


def claim_options(verb: Decorated) -> Decorated:
    """Decorate a verb with the options of a claim that every verb has which may wait for one."""
    for decorate in reversed(CLAIMING):
        verb = decorate(verb)
    return verb


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """How a claim is asked for, by the options of its verb; None for what was not given."""

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
        """The same for the engine, with the paths to cover."""
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
        """The command of the same claim, waiting; it asks for nothing that is another's."""
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


def tell_waiting(call: Call, seconds: int | None) -> Callable[[LeaseHeld], None]:
    """Tell who is waited for, once for each lease in the way."""
    told: list[str] = []
    limit = f" up to {format_duration(seconds)}" if seconds else ""

    def tell(held: LeaseHeld) -> None:
        who = held.views[0].lease_id if held.views else held.message
        if told[-1:] != [who]:
            told.append(who)
            output.aside(f"waiting{limit}: {sentences.refusal(held, call.now())}")

    return tell


def expect_wait(wait: int | None) -> None:
    """Collect garbage again, which a short call goes without, where it may be a long one."""
    if wait is not None:
        gc.enable()


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

    call.warnings += _too_short(call, answer)
    call.answer_verb(
        answer,
        wire.claimed(answer) | (more or {}),
        next_steps=next_steps.after_claim(call, answer.leases, scope),
        show=lambda: show_claimed(call, answer, also),
    )


def _too_short(call: Call, answer: Answer) -> list[str]:
    """What to say of leases that the heartbeat of a coding agent may not keep."""
    session = call.actor.session or ""
    if not session.startswith(HEARTBEAT_OF):
        return []
    from gitlease.guard.heartbeat import SHORTEST_KEPT

    least = min((view.ttl_seconds for view in answer.leases), default=SHORTEST_KEPT)
    if least >= SHORTEST_KEPT:
        return []
    short, kept = format_duration(least), format_duration(SHORTEST_KEPT)
    return [
        f"{short} is shorter than the {kept} that the heartbeat of session {session} can keep: "
        "it ends in a longer pause between two tools"
    ]


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
        output.lines(task_words.edited(answer))
    output.lines(also)
    output.lines(sentences.noted(note, now) for note in answer.notes)
