"""``session``: list your sessions, and end them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from gitlease.core.errors import UsageError
from gitlease.core.instant import humanize_duration, parse_duration
from gitlease.faces.cli import output, types
from gitlease.faces.cli.output import Row
from gitlease.faces.cli.verb import flag, option, taking, verb
from gitlease.verbs import sentences, task_text, wire
from gitlease.verbs.sessions import claims_again, parked_at_most, parked_lines
from gitlease.verbs.table import LEASE_EXITS, Result

if TYPE_CHECKING:
    from datetime import datetime

    from gitlease.engine.answers import Answer
    from gitlease.engine.ledger_session import LedgerSession
    from gitlease.engine.sessions import OwnSession
    from gitlease.faces.cli.call import Call

ACTIONS = ("list", "end")
SHOWN = 5  # resources of a session in a table
LONGEST = ""  # the value of --park without a duration


@verb(
    "session",
    """List your sessions that hold leases (list), or end a session (end).

A session is one worker of yours: an agent, a terminal, a job. `end` expires the leases of session
ID, or of your current session (see `gitlease whoami`), in every layer that this clone uses, or only
in --layer. Your tasks stay assigned to you, and any of your sessions can resume them. Leases on
anything else are released. Ending a session that holds nothing succeeds. Leases without a session,
and those of other people, are not touched.

`end --all` ends every session that `list` shows, in other clones and on other machines, too.
Whatever runs there stops, as with a lost lease.

With --release your tasks are given back as well, like `gitlease release`. With --park live leases
are kept for your next session, like `gitlease park`.""",
    examples=(
        "gitlease session list",
        "gitlease session end",
        "gitlease session end build-7 --release --note 'the tests are red'",
        "gitlease session end --park 3h        # keep everything for three hours",
        "gitlease session end --all            # all your sessions",
    ),
    exits=LEASE_EXITS,
    no=("held",),
    done="listed; for end: the session holds nothing",
    cached=True,
)
@click.argument("action", metavar="list|end", shell_complete=types.one_of(*ACTIONS))
@click.argument("name", metavar="[ID]", required=False)
@flag("--all", help="End all your sessions.")
@flag("--release", help="Also unassign yourself from the tasks.")
@option(
    "--park",
    metavar="[D]",
    is_flag=False,
    flag_value=LONGEST,
    help="Park the leases for D, or as long as the ledger allows, instead of ending them.",
)
@option("--note", metavar="TEXT", type=types.note, help="Leave a note on each resource.")
@taking("done", but=("resource", "any", "scope"))
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
        call.anonymous = True
        _list(call, cached=cached)
        return None
    if cached:
        raise UsageError("end needs the remote: it cannot be combined with --cached")
    if commit is not None and not release:
        raise UsageError("--commit needs --release: without it no task file changes")
    if all and name is not None:
        raise UsageError("ID cannot be combined with --all")
    options = EndOptions(release, park is not None, _period(park), note, commit)
    return _end_all(call, options) if all else _end(call, name, options)


# --- end ------------------------------------------------------------------------------------------


class EndOptions(NamedTuple):
    """The options of ``session end``."""

    release: bool
    park: bool
    seconds: int | None
    note: str | None
    commit: bool | None


def _end(call: Call, name: str | None, options: EndOptions) -> int:
    from gitlease.engine import sessions

    session = call.actor.session if name is None else name
    if session is None:
        raise UsageError(
            "no session to end",
            hints=(
                f"name one: {call.typed('session', 'end', 'ID')}",
                f"to list the sessions that hold leases: {call.typed('session', 'list')}",
            ),
        )
    answer = sessions.end_session(_layers(call), session, **options._asdict())
    lines = [f"session {session} holds nothing"] if answer.found_nothing else []
    return _answer(call, answer, {"session": session}, lines)


def _end_all(call: Call, options: EndOptions) -> int:
    from gitlease.engine import sessions

    answer, ended = sessions.end_every_session(_layers(call), **options._asdict())
    counts = [{"session": name, "leases": number} for name, number in ended]
    lines = [
        f"session {name}: ended {number} lease{'' if number == 1 else 's'}"
        for name, number in ended
    ]
    nothing = not ended and not answer.refused
    lines += ["none of your sessions holds a lease"] if nothing else []
    return _answer(call, answer, {"sessions": counts}, lines)


def _answer(call: Call, answer: Answer, body: wire.Document, lines: Sequence[str]) -> int:
    parked = answer.status == "parked"
    if not answer.refused:
        call.note_carried(answer.leases)
    return call.respond(
        Result(
            body=body | wire.ended(answer) | (parked_at_most(answer) if parked else {}),
            lines=lambda: [*_lines(call, answer), *lines],
            leases=answer.leases,
            refused=answer.refused,
            warnings=answer.warnings,
            then=claims_again(call, answer) if parked else (),
        )
    )


def _period(park: str | None) -> int | None:
    if not park:
        return None
    try:
        return parse_duration(park)
    except UsageError as error:
        hint = "name the session before --park: session end ID --park"
        raise error.with_(hints=(*error.hints, hint)) from None


def _lines(call: Call, answer: Answer) -> list[str]:
    if answer.status == "parked":
        return parked_lines(call, answer)
    return [
        f"released {call.named(view)}"
        if view.state == "released"
        else f"ended {call.named(view)}, which stays assigned to you"
        for view in answer.leases
    ] + task_text.edited(answer)


# --- list -----------------------------------------------------------------------------------------


def _list(call: Call, *, cached: bool) -> None:
    from gitlease.engine import sessions

    call.cached = partial(call.typed, "session", "list", options=["--cached"])
    reading, now = sessions.sessions(_layers(call), cached=cached), call.now()
    call.answer(
        {"sessions": [_document(found, now) for found in reading.sessions]},
        warnings=reading.warnings,
        show=lambda: output.table(
            ("SESSION", "CURRENT", "LEASES", "FOR", "UNTIL", "RESOURCES"),
            [_row(call, found, now) for found in reading.sessions],
            otherwise="none of your sessions holds a lease",
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
    head = (found.session, "current" if found.current else "", str(len(found.leases)))
    return Row(
        cells=(
            *head,
            humanize_duration(_age(found, now)),
            sentences.clock_time(found.expires_at, now),
            ", ".join(names[:SHOWN]) + more,
        ),
        style="green" if found.current else "",
    )
