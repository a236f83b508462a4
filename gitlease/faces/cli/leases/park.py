"""``park``: keep a lease across sessions while the work is unfinished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitlease.core.instant import format_duration
from gitlease.faces import next_steps, sentences, wire
from gitlease.faces.cli import output, types
from gitlease.faces.cli.leases.claiming import reason_option
from gitlease.faces.cli.leases.holding import OWN_SCOPES
from gitlease.faces.cli.verb import option, resources_argument, verb

if TYPE_CHECKING:
    from gitlease.engine.answers import Answer
    from gitlease.faces.cli.call import Call


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
        next_steps=next_steps.after_park(call, answer.leases),
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
