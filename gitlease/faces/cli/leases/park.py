"""``park``: keep a lease when a session ends with the work unfinished."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gitlease.core.duration import format_duration
from gitlease.faces import next_steps, sentences, wire
from gitlease.faces.cli import output, types
from gitlease.faces.cli.leases.claiming import reason_option
from gitlease.faces.cli.verb import Verb, option

if TYPE_CHECKING:
    from gitlease.engine.answers import Answer
    from gitlease.faces.cli.call import Call


@click.command(
    "park",
    cls=Verb,
    help="""Stop with the work unfinished, and keep it: others are refused for a while longer.

Nothing renews a parked lease: it ends after the time given by --for, or else after the longest
that the ledger allows (its park_max, a day unless it is set); more is cut to that, and a lease that
lasts longer already is not shortened. It is bound to no session any more, and comes first in your
queue.

Any session of yours goes on with it by `claim`, or `next --claim`: that is a new grant, with a new
token and the usual time to live. `renew` and `extend` refuse it with exit 3, so that what was left
running stops; to keep it for longer, park it again. Without a session you may also park what a run
of yours holds: it is lost to that run.""",
    advice=("until tomorrow: gitlease park F001; over lunch: gitlease park F001 --for 90m",),
    examples=(
        "gitlease park F001",
        "gitlease park F001 --for 3h --note 'parser done, tests red'",
        "gitlease park F001 F002 --reason 'back tomorrow'",
    ),
    exits=(2, 3, 4, 5, 6, 7, 128),
    done="they are kept for you",
    scope="Only this scope (default: all that are yours).",
)
@click.argument(
    "words", metavar="RESOURCE...", shell_complete=types.known_names, nargs=-1, required=True
)
@option(
    "--for",
    "seconds",
    metavar="D",
    type=types.duration("duration"),
    help="How long others are kept out (3h, 1d).",
)
@reason_option
@option("--note", metavar="TEXT", type=types.note, help="Leave a note for whoever goes on with it.")
@click.pass_obj
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

    answer = sessions.park(
        call.ledger,
        call.resources(words),
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
    """Whether less was granted than was asked for, and what the most is."""
    return {"capped_to_max": answer.capped_to_max, "max_park_seconds": answer.max_park_seconds}


def show_parked(call: Call, answer: Answer) -> None:
    """A line for each lease."""
    now, most = call.now(), format_duration(answer.max_park_seconds)
    less = f", capped to the ledger's maximum of {most}" if answer.capped_to_max else ""
    for view in answer.leases:
        output.line(f"{sentences.named(view)} is {sentences.until(view, now)}{less}")
