"""The verbs that take and keep leases, and the options of all claims."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gitlease.core.errors import UsageError
from gitlease.core.frozen import dataclass
from gitlease.core.instant import format_duration
from gitlease.core.resources.resource import WHOLE
from gitlease.faces.cli import output, types
from gitlease.faces.cli.verb import (
    LEASE_EXITS,
    Decorated,
    flag,
    option,
    optional_resources_argument,
    resource_argument,
    resources_argument,
    verb,
)
from gitlease.verbs import sentences, wire

if TYPE_CHECKING:
    from gitlease.core.errors import LeaseHeld
    from gitlease.core.resources.resource import Resource
    from gitlease.engine.answers import Answer, ClaimOptions
    from gitlease.faces.cli.call import Call

HEARTBEAT_OF = ("claude:", "codex:", "cursor:")  # sessions kept alive by their host's hooks


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
    "--commit/--no-commit",
    help="Commit the edit of the task file by itself, or leave it in the work tree "
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

    from gitlease.faces.cli.refusals import after_claim

    call.warnings += _warn_of_short_ttl(call, answer)
    call.warn_of_dead_hooks()
    call.answer_verb(
        answer,
        wire.claimed(answer) | (more or {}),
        next_steps=after_claim(call, answer.leases, scope),
        show=lambda: show_claimed(call, answer, also, verbose=verbose),
    )


def _warn_of_short_ttl(call: Call, answer: Answer) -> list[str]:
    session = call.actor.session or ""
    if not session.startswith(HEARTBEAT_OF):
        return []
    from gitlease.guard.service import SHORTEST_KEPT

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
        from gitlease.verbs import task_text

        for name in task_text.unassigned(answer, call.ledger.edges.rules.people):
            output.line(f"taken over from {name}")
        output.lines(task_text.edited(answer))
    output.lines(also)
    output.lines(sentences.noted(note, now) for note in answer.notes)


@verb(
    "claim",
    """Take a lease on each RESOURCE: on all of them, or on none.

A resource is a name (a task id such as F001, deploy-prod, port-8080) or a path (src/auth/,
'src/**/*.py', path:Makefile). Anyone else who claims it, or a path that could match the same file,
is refused and sees who holds it and until when. If you already hold it, your lease is renewed; you
are warned if you claimed it in another terminal or on another machine. --new refuses this instead.

If the resource is a task, you are also assigned in its task file. The assignment outlasts the
lease. The edit stays in your work tree unless you commit it. In a repository with task files, other
names need --any.

A task assigned to someone else stays theirs after their lease has expired. If there is no sign of
work on it for the ledger's edges.abandoned_after (default: 7 days), a claim takes it over and
notifies them. Until then, ask them. If they cannot answer, --takeover with a --reason replaces
their assignment, but never a live lease.""",
    advice=LENGTHS,
    examples=(
        "gitlease claim F001",
        "gitlease claim F001 --ttl 30m --reason 'rate limits'",
        "gitlease claim F001 --commit          # and commit the line in its task file, alone",
        "gitlease claim src/auth/ docs/auth.md",
        "gitlease claim F001 --path src/auth/ --path tests/auth/",
        "gitlease claim F001 --scope parser    # others may claim its other scopes",
        "gitlease claim F001 --wait 15m        # block until it is free",
        "gitlease claim deploy-prod --any      # a name that is not a task",
    ),
    exits=LEASE_EXITS,
    done="you hold all of them",
    scope=SCOPE,
)
@resources_argument
@path_option
@claim_options
@any_option
@new_option
@commit_option
@option("-v", "verbose", is_flag=True, help="Also print the id of each lease.")
def claim_verb(
    call: Call,
    /,
    *,
    words: tuple[str, ...],
    paths: tuple[str, ...],
    verbose: bool,
    **options: Any,
) -> None:
    from gitlease.engine import claim

    request = ClaimRequest(**options)
    resources, covered = call.to_claim(words, paths, any_name=request.any)
    call.covers = covered
    call.retry = partial(request.waiting, call, "claim", resources, covered=covered)
    expect_wait(request.wait)
    answer = claim.claim(
        call.ledger,
        resources,
        request.options(covered),
        wait=request.wait,
        on_wait=report_waiting(call, request.wait),
    )
    answer_claim(call, answer, scope=request.scope, verbose=verbose)


EXITS = (2, 3, *(x for x in LEASE_EXITS if x > 3))
OWN_SCOPES = "Only this scope (default: all scopes you hold)."


@verb(
    "renew",
    """The heartbeat: each lease lasts for its full TTL again, counted from now.

Renew about every third of the TTL while you work. A lease that expired, was taken over or revoked
is never taken back: renew exits with 3, and you must stop the work under it.

--all renews everything this session holds, in every layer that this clone uses, or in the one named
by --layer or --local. It lists each lost lease, even if none is left.""",
    advice=("quick fix 5-10m, standard 15-30m, feature 1h, refactor 2h",),
    examples=(
        "gitlease renew F001",
        "gitlease renew F001 F002 --ttl 30m",
        "gitlease renew --all               # everything this session holds, one push per layer",
    ),
    exits=EXITS,
    done="all of them are renewed",
    scope=OWN_SCOPES,
)
@optional_resources_argument
@flag("--all", help="Renew everything this session holds.")
@option(
    "--ttl",
    metavar="D",
    type=types.duration("ttl"),
    help="The TTL from now on (default: as before).",
)
def renew_verb(
    call: Call, *, words: tuple[str, ...], all: bool, ttl: int | None, scope: str | None
) -> int:
    from gitlease.engine import acts

    if all and words:
        raise UsageError("--all renews everything: it takes no resources")
    if all and scope is not None:
        raise UsageError("--all renews every scope: it takes no --scope")
    if not all and not words:
        raise UsageError("missing resource: name one, or use --all")
    if all:
        answer = acts.renew_all([space.ledger for space in call.workspace.in_use], ttl=ttl)
    else:
        resources = call.resources(words)
        answer = acts.renew(call.ledger, resources, scope=scope, ttl=ttl)
    body = wire.changed(answer)
    if answer.refused:
        body = {"status": answer.status, "leases": body["leases"]}
    return call.answer_verb(answer, body, show=lambda: _show_renewed(call, answer))


def _show_renewed(call: Call, answer: Answer) -> None:
    now = call.now()
    if not answer.leases and not answer.refused:
        output.line("you hold nothing here: nothing to renew")
    for view in answer.leases:
        if view.state == "completed":
            output.line(f"completed {call.named(view)}")
        else:
            output.line(f"renewed {call.named(view)} {sentences.until(view, now)}")


@verb(
    "extend",
    """Make a lease last at least DURATION from now, for a gap without renewals.

Use it before a long build, a review or lunch. The ledger's maximum applies, and the answer names it
if it was reached. A lease is never shortened.""",
    examples=(
        "gitlease extend F001 2h",
        "gitlease extend src/auth/ 90m --scope login",
    ),
    exits=EXITS,
    done="the lease lasts that long, or the maximum",
    scope=OWN_SCOPES,
)
@resource_argument
@click.argument("seconds", metavar="DURATION", type=types.duration("duration"))
def extend_verb(call: Call, *, word: str, seconds: int, scope: str | None) -> None:
    from gitlease.engine import acts

    resource = call.resource(word)
    answer = acts.extend(call.ledger, resource, seconds, scope=scope)
    body = wire.changed(answer)
    body |= {"capped_to_max": answer.capped_to_max, "max_ttl_seconds": answer.max_ttl_seconds}
    call.answer_verb(answer, body, show=lambda: _show_extended(call, answer, seconds))


def _show_extended(call: Call, answer: Answer, seconds: int) -> None:
    now = call.now()
    limit = format_duration(answer.max_ttl_seconds)
    capped = f", capped to the ledger's maximum of {limit}" if answer.capped_to_max else ""
    for view in answer.leases:
        if view.state == "completed":
            output.line(f"completed {call.named(view)}")
            continue
        name, until = sentences.named(view), sentences.until(view, now)
        longer = view.expires_in > min(seconds, answer.max_ttl_seconds)  # never shortened
        said = f"{name} already runs {until}" if longer else f"extended {name} {until}"
        output.line(f"{said}{capped}")


@verb(
    "park",
    """Stop with the work unfinished, and keep others out for a while.

Nothing renews a parked lease. It ends after --for, or after the ledger's maximum (park_max,
default: one day), which also caps --for. A lease that already lasts longer is not shortened. A
parked lease is bound to no session, and comes first in your queue.

Any of your sessions can resume it with `claim` or `next --claim`. This is a new grant, with a new
token and the usual TTL. `renew` and `extend` refuse a parked lease with exit 3, so that anything
still running under it stops. To keep it longer, park it again. Without a session, you may also park
the lease of one of your runs; that run then loses it.""",
    advice=("until tomorrow: gitlease park F001; over lunch: gitlease park F001 --for 90m",),
    examples=(
        "gitlease park F001",
        "gitlease park F001 --for 3h --note 'parser done, tests red'",
        "gitlease park F001 F002 --reason 'back tomorrow'",
    ),
    exits=(2, 3, 4, 5, 6, 7, 128),
    done="the leases are parked",
    scope=OWN_SCOPES,
)
@resources_argument
@option(
    "--for",
    "seconds",
    metavar="D",
    type=types.duration("duration"),
    help="How long to keep others out (3h, 1d).",
)
@reason_option
@option("--note", metavar="TEXT", type=types.note, help="Leave a note for the next session.")
def park_verb(
    call: Call,
    *,
    words: tuple[str, ...],
    seconds: int | None,
    reason: str | None,
    note: str | None,
    scope: str | None,
) -> None:
    from gitlease.engine import sessions
    from gitlease.faces.cli.refusals import after_park

    resources = call.resources(words)
    answer = sessions.park(
        call.ledger,
        resources,
        seconds=seconds,
        scope=scope,
        reason=reason,
        note=note,
    )
    call.answer_verb(
        answer,
        wire.changed(answer) | capped(answer),
        next_steps=after_park(call, answer.leases),
        show=lambda: show_parked(call, answer),
    )


def capped(answer: Answer) -> wire.Document:
    """Return the JSON keys that report a capped parking time."""
    return {"capped_to_max": answer.capped_to_max, "max_park_seconds": answer.max_park_seconds}


def show_parked(call: Call, answer: Answer) -> None:
    """Print a line for each parked lease."""
    now, most = call.now(), format_duration(answer.max_park_seconds)
    less = f", capped to the ledger's maximum of {most}" if answer.capped_to_max else ""
    for view in answer.leases:
        output.line(f"{sentences.named(view)} is {sentences.until(view, now)}{less}")
