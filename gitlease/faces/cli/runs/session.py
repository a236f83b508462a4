"""``session``: the runs of one's own, and the end of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from gitlease.core.duration import humanize_duration, parse_duration
from gitlease.core.errors import UsageError
from gitlease.faces import next_steps, sentences, task_words, wire
from gitlease.faces.cli import output, refusals, types
from gitlease.faces.cli.leases.claiming import commit_option
from gitlease.faces.cli.leases.park import capped, show_parked
from gitlease.faces.cli.output import Row
from gitlease.faces.cli.verb import LEASE_EXITS, Verb, flag, option

if TYPE_CHECKING:
    from datetime import datetime

    from gitlease.engine.answers import Answer
    from gitlease.engine.ledger_session import LedgerSession
    from gitlease.engine.sessions import OwnSession
    from gitlease.faces.cli.call import Call

ACTIONS = ("list", "end")
SHOWN = 5  # resources of a session that a table names
LONGEST = ""  # what --park says without a duration


@click.command(
    "session",
    cls=Verb,
    help="""Your sessions: those that hold anything (list), and the end of one (end).

A session is one run of yours: an agent, a terminal, a job. End has everything run out that is bound
to session ID, else to the one that you speak as here (`gitlease whoami` names it), in every layer
that this clone uses (--layer: in that one). Your tasks stay assigned to you, for any session of
yours to go on with; what is no task is released. It may be repeated: with nothing held it succeeds
all the same. A lease that is bound to no session stays as it is, and so does another person's.

End --all ends every session of yours that the list shows, in other clones and on other machines
too: what runs there stops as with a lost lease.

With --release your tasks are given back as well, as `gitlease release` does. With --park what is
still live is kept for your next session, as `gitlease park` does.

Piped, each line of the list has, separated by tabs: session, current (or nothing), number of
leases, since, expires_at, resources.""",
    examples=(
        "gitlease session list",
        "gitlease session end",
        "gitlease session end build-7 --release --note 'the tests are red'",
        "gitlease session end --park 3h        # keep it all for three hours",
        "gitlease session end --all            # every session of yours",
    ),
    exits=LEASE_EXITS,
    no=("held",),
    done="answered; for end: the session holds nothing",
    cached=True,
)
@click.argument("action", metavar="list|end", shell_complete=types.one_of(*ACTIONS))
@click.argument("name", metavar="[ID]", required=False)
@flag("--all", help="End every session of yours.")
@flag("--release", help="Give its tasks back: take yourself out of their files.")
@option(
    "--park",
    metavar="[D]",
    is_flag=False,
    flag_value=LONGEST,
    help="Park them, for D or as long as the ledger allows, instead of having them run out.",
)
@option("--note", metavar="TEXT", type=types.note, help="Leave a note with each of them.")
@commit_option
@click.pass_obj
def session_verb(
    call: Call,
    *,
    action: str,
    name: str | None,
    all: bool,
    release: bool,
    park: str | None,
    note: str | None,
    commit: bool | None,
    cached: bool,
) -> int | None:
    if action not in ACTIONS:
        raise UsageError(f"{action[:60]!r} is not one of {', '.join(ACTIONS)}")
    if action == "list":
        ending = (
            *(("ID", name), ("--all", all or None), ("--release", release or None)),
            *(("--park", park), ("--note", note), ("--commit", commit)),
        )
        if wrong := next((word for word, given in ending if given is not None), None):
            raise UsageError(f"{wrong} cannot be combined with list")
        _list(call, cached=cached)
        return None
    if cached:
        raise UsageError("end needs the remote: it cannot be combined with --cached")
    if commit is not None and not release:
        raise UsageError("your tasks stay assigned to you: --commit needs --release")
    if all and name is not None:
        raise UsageError("ID cannot be combined with --all")
    how = Ending(release, park is not None, _period(park), note, commit)
    return _end_every(call, how) if all else _end(call, name, how)


# --- end ------------------------------------------------------------------------------------------


class Ending(NamedTuple):
    """How sessions are to end."""

    release: bool
    park: bool
    seconds: int | None
    note: str | None
    commit: bool | None


def _end(call: Call, name: str | None, how: Ending) -> int | None:
    from gitlease.engine import sessions

    session = _named(call, name)
    answer = sessions.end_session(_layers(call), session, **how._asdict())
    nothing = not answer.leases and not answer.refused
    lines = [f"session {session} holds nothing"] if nothing else []
    return _tell(call, answer, {"session": session}, lines)


def _end_every(call: Call, how: Ending) -> int | None:
    from gitlease.engine import sessions

    answer, ended = sessions.end_every_session(_layers(call), **how._asdict())
    counts = [{"session": name, "leases": number} for name, number in ended]
    lines = [
        f"session {name}: ended {number} lease{'' if number == 1 else 's'}"
        for name, number in ended
    ]
    nothing = not ended and not answer.refused
    lines += ["no session of yours holds anything"] if nothing else []
    return _tell(call, answer, {"sessions": counts}, lines)


def _tell(call: Call, answer: Answer, body: wire.Document, lines: Sequence[str]) -> int | None:
    """Answer with what was ended; ``lines`` say more of it to a person."""
    body |= wire.ended(answer)
    steps: list[str] = []
    if answer.status == "parked":
        body |= capped(answer)
        steps = list(next_steps.after_park(call, answer.leases))

    def show() -> None:
        _show_leases(call, answer)
        output.lines(lines)

    if answer.refused:  # both are told, and the refusal counts
        call.warnings += answer.warnings
        if not call.json:
            show()
        return refusals.tell_partly(call, answer.refused, body)
    call.answer_verb(answer, body, next_steps=steps, show=show)
    return None


def _period(park: str | None) -> int | None:
    if not park:
        return None
    try:
        return parse_duration(park)
    except UsageError as error:
        error.hints += ("name the session before --park: session end ID --park",)
        raise


def _named(call: Call, name: str | None) -> str:
    """The session that is to end. UsageError where none is named and none is known."""
    if name is not None:
        return name
    if call.actor.session is not None:
        return call.actor.session
    raise UsageError(
        "no session to end",
        hints=(
            f"name one: {call.typed('session', 'end', 'ID')}",
            f"{call.typed('session', 'list')} shows those of yours that hold anything",
        ),
    )


def _show_leases(call: Call, answer: Answer) -> None:
    if answer.status == "parked":
        show_parked(call, answer)
        return
    for view in answer.leases:
        if view.state == "released":
            output.line(f"released {call.named(view)}")
        else:
            output.line(f"{call.named(view)} has run out, and stays assigned to you")
    output.lines(task_words.edited(answer))


# --- list -----------------------------------------------------------------------------------------


def _list(call: Call, *, cached: bool) -> None:
    from gitlease.engine import sessions

    call.cached = call.typed("session", "list", options=["--cached"])
    reading, now = sessions.sessions(_layers(call), cached=cached), call.now()
    call.answer(
        {"sessions": [_document(found, now) for found in reading.sessions]},
        warnings=reading.warnings,
        show=lambda: output.table(
            ("SESSION", "CURRENT", "LEASES", "FOR", "UNTIL", "RESOURCES"),
            [_row(call, found, now) for found in reading.sessions],
            otherwise="no session of yours holds anything",
        ),
    )


def _layers(call: Call) -> list[LedgerSession]:
    return [space.ledger for space in call.workspace.in_use]


def _age(found: OwnSession, now: datetime) -> int:
    return max(0, int((now - found.since).total_seconds()))


def _document(found: OwnSession, now: datetime) -> wire.Document:
    return {
        "session": found.session,
        "current": found.current,
        "leases": len(found.leases),
        "resources": [view.resource for view in found.leases],
        "since": wire.seconds(found.since),
        "age": _age(found, now),
        "expires_at": wire.seconds(found.expires_at),
    }


def _row(call: Call, found: OwnSession, now: datetime) -> Row:
    names = [call.named(view) for view in found.leases]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    current, number = "current" if found.current else "", str(len(found.leases))
    return Row(
        cells=(
            found.session,
            current,
            number,
            humanize_duration(_age(found, now)),
            sentences.clock_time(found.expires_at, now),
            ", ".join(names[:SHOWN]) + more,
        ),
        fields=(
            found.session,
            current,
            number,
            wire.seconds(found.since),
            wire.seconds(found.expires_at),
            " ".join(view.resource for view in found.leases),
        ),
        style="green" if found.current else "",
    )
