"""``renew`` and ``extend``: keep a lease alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gitlease.core.errors import UsageError
from gitlease.core.instant import format_duration
from gitlease.faces import sentences, wire
from gitlease.faces.cli import output, types
from gitlease.faces.cli.verb import (
    LEASE_EXITS,
    flag,
    option,
    optional_resources_argument,
    resource_argument,
    verb,
)

if TYPE_CHECKING:
    from gitlease.engine.answers import Answer
    from gitlease.faces.cli.call import Call

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
    from gitlease.engine import hold

    if all and words:
        raise UsageError("--all renews everything: it takes no resources")
    if all and scope is not None:
        raise UsageError("--all renews every scope: it takes no --scope")
    if not all and not words:
        raise UsageError("missing resource: name one, or use --all")
    if all:
        answer = hold.renew_all([space.ledger for space in call.workspace.in_use], ttl=ttl)
    else:
        resources = call.resources(words)
        answer = hold.renew(call.ledger, resources, scope=scope, ttl=ttl)
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
    from gitlease.engine import hold

    resource = call.resource(word)
    answer = hold.extend(call.ledger, resource, seconds, scope=scope)
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
