"""``renew`` and ``extend``: keep what one holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gitlease.core.duration import format_duration
from gitlease.core.errors import UsageError
from gitlease.faces import sentences, wire
from gitlease.faces.cli import output, types
from gitlease.faces.cli.verb import LEASE_EXITS, Verb, flag, option

if TYPE_CHECKING:
    from gitlease.engine.answers import Answer
    from gitlease.faces.cli.call import Call

EXITS = (2, 3, *(x for x in LEASE_EXITS if x > 3))
OWN_SCOPES = "Only this scope (default: all that are yours)."


@click.command(
    "renew",
    cls=Verb,
    help="""The heartbeat: each lease lasts its whole time again, counted from now.

Renew about every third of the TTL while you work. A lease that lapsed, was taken over or revoked is
never taken back by this: the answer is exit 3, and you must stop what you did under it.

--all is everything of this session in every layer that this clone uses, or in the one that --layer
or --local names. It tells each lease that was lost, also when nothing is left.""",
    advice=("quick fix 5-10m, standard 15-30m, feature 1h, refactor 2h",),
    examples=(
        "gitlease renew F001",
        "gitlease renew F001 F002 --ttl 30m",
        "gitlease renew --all               # everything of this session, a push for each layer",
    ),
    exits=EXITS,
    done="all of them are renewed",
    scope=OWN_SCOPES,
)
@click.argument("words", metavar="[RESOURCE]...", shell_complete=types.known_names, nargs=-1)
@flag("--all", help="Everything that this session holds.")
@option(
    "--ttl",
    metavar="D",
    type=types.duration("ttl"),
    help="How long each lasts from now on (default: as before).",
)
@click.pass_obj
def renew_verb(
    call: Call, *, words: tuple[str, ...], all: bool, ttl: int | None, scope: str | None
) -> int:
    from gitlease.engine import hold

    if all and words:
        raise UsageError("--all renews everything: it takes no resources")
    if all and scope is not None:
        raise UsageError("--all renews every scope: it takes no --scope")
    if not all and not words:
        raise UsageError("name what to renew, or use --all")
    if all:
        call.end_landed()
        answer = hold.renew_all([space.ledger for space in call.workspace.in_use], ttl=ttl)
    else:
        answer = hold.renew(call.ledger, call.resources(words), scope=scope, ttl=ttl)
    if answer.refused:  # both are told, and the refusal counts
        call.warnings += answer.warnings
        if not call.json:
            _show_renewed(call, answer)
        renewed = [wire.lease(view) for view in answer.leases]
        body = {"status": answer.status, "leases": renewed}
        from gitlease.faces.cli import refusals

        return refusals.tell_partly(call, answer.refused, body)
    call.answer_verb(answer, wire.changed(answer), show=lambda: _show_renewed(call, answer))
    return 0


def _show_renewed(call: Call, answer: Answer) -> None:
    now = call.now()
    if not answer.leases and not answer.refused:
        output.line("you hold nothing here: nothing to renew")
    for view in answer.leases:
        output.line(f"renewed {call.named(view)} {sentences.until(view, now)}")


@click.command(
    "extend",
    cls=Verb,
    help="""Stretch a lease to at least DURATION from now, for a gap in which nobody renews it.

A long build, a review, a lunch. It is capped to the ledger's maximum, which the answer names, and
never shortens a lease.""",
    examples=(
        "gitlease extend F001 2h",
        "gitlease extend src/auth/ 90m --scope login",
    ),
    exits=EXITS,
    done="it lasts that long, or the maximum",
    scope=OWN_SCOPES,
)
@click.argument("word", metavar="RESOURCE", shell_complete=types.known_names)
@click.argument("seconds", metavar="DURATION", type=types.duration("duration"))
@click.pass_obj
def extend_verb(call: Call, *, word: str, seconds: int, scope: str | None) -> None:
    from gitlease.engine import hold

    answer = hold.extend(call.ledger, call.resource(word), seconds, scope=scope)
    body = wire.changed(answer)
    body |= {"capped_to_max": answer.capped_to_max, "max_ttl_seconds": answer.max_ttl_seconds}
    call.answer_verb(answer, body, show=lambda: _show_extended(call, answer, seconds))


def _show_extended(call: Call, answer: Answer, seconds: int) -> None:
    now = call.now()
    limit = format_duration(answer.max_ttl_seconds)
    capped = f", capped to the ledger's maximum of {limit}" if answer.capped_to_max else ""
    for view in answer.leases:
        if view.expires_in > min(seconds, answer.max_ttl_seconds):  # it is never shortened
            output.line(
                f"{sentences.named(view)} already runs {sentences.until(view, now)}{capped}"
            )
            continue
        output.line(f"extended {sentences.named(view)} {sentences.until(view, now)}{capped}")
