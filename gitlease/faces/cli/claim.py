"""``claim``: take a lease, or renew one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from gitlease.domain.duration import parse_duration
from gitlease.domain.resource import WHOLE, parse_scope, path_resource, resolve_path
from gitlease.faces import sentences, wire
from gitlease.faces.cli import output
from gitlease.faces.cli.verb import LEASE_EXITS, Verb, flag

if TYPE_CHECKING:
    from gitlease.answers import Answer
    from gitlease.domain.errors import LeaseHeld
    from gitlease.domain.resource import Resource
    from gitlease.faces.cli.call import Call

WAIT = "15m"


@click.command(
    "claim",
    cls=Verb,
    help="""Take the lease of each RESOURCE: all of them, or none.

A resource is a name (a task id such as F001, deploy-prod, port-8080) or a path (src/auth/,
'src/**/*.py', path:Makefile). Whoever else claims it, or paths that could match the same file, is
told that you hold it and until when. A claim of a live lease of your own renews it.""",
    advice=(
        "quick fix 5-10m, standard 15-30m, feature 1h, refactor 2h",
        "Prefer short and renew while you work: a lease you forget ends by itself.",
    ),
    examples=(
        "gitlease claim F001",
        "gitlease claim F001 --ttl 30m --reason 'rate limits'",
        "gitlease claim src/auth/ docs/auth.md",
        "gitlease claim F001 --path src/auth/ --path tests/auth/",
        "gitlease claim F001 --scope parser    # others may claim its other scopes",
        "gitlease claim F001 --wait 15m        # block until it is free",
    ),
    exits=LEASE_EXITS,
    done="you hold all of them",
    scope="Take only this part of its work (default: the whole).",
)
@click.argument("words", metavar="RESOURCE...", nargs=-1, required=True)
@click.option("--path", "paths", metavar="P", multiple=True, help="Cover this path as well.")
@click.option("--ttl", metavar="D", help="How long it lasts unless renewed (15m, 1h30m).")
@click.option("--wait", metavar="D", help="Wait until it is free, at most this long.")
@click.option("--reason", metavar="TEXT", help="Why: shown to whoever is refused.")
@flag("--takeover", help="Also replace another's assignment; needs --reason.")
@flag("--reopen", help="Also claim what was completed.")
@click.pass_obj
def claim_verb(
    call: Call,
    *,
    words: tuple[str, ...],
    paths: tuple[str, ...],
    ttl: str | None,
    wait: str | None,
    reason: str | None,
    takeover: bool,
    reopen: bool,
    scope: str | None,
) -> None:
    """Parse everything, then claim."""
    seconds = None if ttl is None else parse_duration(ttl, what="ttl")
    patience = None if wait is None else parse_duration(wait, what="wait")
    part = WHOLE if scope is None else parse_scope(scope)
    why = checked_reason(reason)
    resources = call.resources(words)
    covered = _covered(call, paths)
    asked = (("--scope", scope), ("--ttl", ttl), ("--reason", reason))
    call.retry = _again(call, resources, covered, asked)
    answer = call.service.claim(
        resources,
        scope=part,
        ttl=seconds,
        paths=tuple(found for path in covered if (found := path.pattern) is not None),
        reason=why,
        takeover=takeover,
        reopen=reopen,
        wait=patience,
        on_wait=_waiting(call, wait),
    )
    steps = _next_steps(call, answer, scope)
    call.answer(
        _body(answer),
        warnings=answer.warnings,
        views=answer.leases,
        next_steps=list(steps),
        hints=[f"{step}  # {use}" for step, use in steps.items()],
        show=lambda: _show(call, answer),
    )


def checked_reason(reason: str | None) -> str | None:
    """A reason that may be stored and shown. UsageError otherwise."""
    from gitlease.domain.operations import MAX_REASON, check_text

    return None if reason is None else check_text(reason, what="reason", limit=MAX_REASON)


def _covered(call: Call, words: Sequence[str]) -> list[Resource]:
    repository = call.workspace.repository
    return [
        path_resource(resolve_path(word, folder=repository.folder, root=repository.toplevel))
        for word in words
    ]


def _again(
    call: Call,
    resources: Sequence[Resource],
    covered: Sequence[Resource],
    options: Sequence[tuple[str, str | None]],
) -> str:
    """The same claim, waiting; it asks for nothing that is another's."""
    words = ["--wait", WAIT]
    for path in covered:
        words += ["--path", call.word(path)]
    for name, value in options:
        words += [] if value is None else [name, value]
    return call.typed("claim", *resources, options=words)


def _waiting(call: Call, wait: str | None) -> Callable[[LeaseHeld], None]:
    """Tell who is waited for, once for each lease in the way."""
    told: list[str] = []

    def tell(held: LeaseHeld) -> None:
        who = held.views[0].lease_id if held.views else held.message
        if told[-1:] == [who]:
            return
        told.append(who)
        output.aside(f"waiting up to {wait}: {sentences.refusal(held, call.now())}")

    return tell


def _body(answer: Answer) -> wire.Document:
    body = wire.changed(answer.status, answer.edge, answer.leases)
    return body | {"notes": [wire.note(n) for n in answer.notes]}


STEPS = (
    ("renew", "keep it while you work"),
    ("done", "when the work is finished"),
    ("release", "when you stop before that"),
)


def _next_steps(call: Call, answer: Answer, scope: str | None) -> dict[str, str]:
    """Commands for what was claimed, each with what it is for."""
    names = [view.resource for view in answer.leases]
    part = [] if scope is None else ["--scope", scope]
    return {
        call.typed(verb, *names, options=part): use
        for verb, use in STEPS
        if verb != "done" or len(names) == 1
    }


def _show(call: Call, answer: Answer) -> None:
    now = call.now()
    for view in answer.leases:
        done = "renewed your own" if view.renewals else "claimed"
        left = f"{sentences.until(view, now)}, token {view.token}"
        output.line(f"{done} {sentences.named(view)} {left}")
    for old in answer.displaced:
        output.line(f"taken over from {sentences.whose(old)}{sentences.quoted(old.reason)}")
    for note in answer.notes:
        output.line(sentences.noted(note))
