"""The verbs about sessions: ``session list`` and ``session end``."""

from __future__ import annotations

from typing import Any

from gitlease.kernel.ledger import sessions
from gitlease.kernel.ledger.answers import Answer
from gitlease.kernel.ledger.sessions import OwnSession
from gitlease.kernel.rules.errors import UsageError
from gitlease.kernel.rules.instant import humanize_duration
from gitlease.verbs import parameters as takes
from gitlease.verbs import sentences, wire
from gitlease.verbs.table import (
    AT_A_CLONE,
    LEASE_EXITS,
    READING_EXITS,
    Door,
    Result,
    Table,
    changed,
    verb,
)

SHOWN = 5  # resources of a session in a table


@verb(
    "session list",
    """List your sessions that hold leases.""",
    examples=("gitlease session list",),
    exits=READING_EXITS,
    done="listed",
    reads=True,
    doors=AT_A_CLONE,
)
def session_list_verb(door: Door, *, cached: takes.Cached = False) -> Result:
    reading, now = sessions.sessions(door.every_ledger(), cached=cached), door.now()

    def age(one: OwnSession) -> int:
        return max(0, int((now - one.since).total_seconds()))

    def row(one: OwnSession) -> tuple[str, ...]:
        names = [sentences.named_in(view, door.ledger.layer) for view in one.leases]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        head = (one.session, "current" if one.current else "", str(len(names)))
        since, until = humanize_duration(age(one)), sentences.clock_time(one.expires_at, now)
        return (*head, since, until, ", ".join(names[:SHOWN]) + more)

    def lines() -> list[Table]:
        return [
            Table(
                headings=("SESSION", "CURRENT", "LEASES", "FOR", "UNTIL", "RESOURCES"),
                rows=[row(one) for one in reading.sessions],
                styles=["green" if one.current else "" for one in reading.sessions],
                otherwise="none of your sessions holds a lease",
            )
        ]

    found = [
        {
            "session": one.session,
            "current": one.current,
            "leases": len(one.leases),
            "resources": [view.resource for view in one.leases],
            "since": wire.seconds(one.since),
            "age": age(one),
            "expires_at": wire.seconds(one.expires_at),
        }
        for one in reading.sessions
    ]
    return Result(
        body={"sessions": found}, lines=lines, value=reading.sessions, warnings=reading.warnings
    )


@verb(
    "session end",
    """List your sessions that hold leases (list), or end a session (end).

A session is one worker of yours: an agent, a terminal, a job. `end` expires the leases of session
ID, or of your current session (see `gitlease whoami`), in every layer that this clone uses, or only
in --layer. Your tasks stay assigned to you, and any of your sessions can resume them. Leases on
anything else are released. Ending a session that holds nothing succeeds. Leases without a session,
and those of other people, are not touched.

`end --all` ends every session that `list` shows, in other clones and on other machines, too.
Whatever runs there stops, as with a lost lease.

With --release your tasks are given back as well, like `gitlease release`.""",
    examples=(
        "gitlease session list",
        "gitlease session end",
        "gitlease session end build-7 --release --note 'the tests are red'",
        "gitlease session end --all            # all your sessions",
    ),
    exits=LEASE_EXITS,
    no=("held",),
    done="listed; for end: the session holds nothing",
    doors=AT_A_CLONE,
)
def session_end_verb(
    door: Door,
    id: takes.SessionId = None,
    *,
    all: takes.EndAll = False,
    release: takes.ReleaseToo = False,
    note: takes.EachNote = None,
    commit: takes.Commit = None,
) -> Result:
    # Without a release the tasks stay assigned, as their files say.
    if commit is not None and not release:
        raise UsageError(
            f"{door.option('commit')} needs {door.option('release')}: without it no task file "
            "changes"
        )
    if all and id is not None:
        raise UsageError(f"ID cannot be combined with {door.option('all')}")
    terms: dict[str, Any] = {
        "release": release,
        "note": note,
        "commit": commit,
    }
    layers, session = door.every_ledger(), door.ledger.actor.session if id is None else id
    if all:
        answer, counts = sessions.end_every_session(layers, **terms)
        body: wire.Document = {"sessions": [{"session": x, "leases": y} for x, y in counts]}
        lines = [f"session {x}: ended {y} lease{'' if y == 1 else 's'}" for x, y in counts]
        # A layer that could not be read may have some.
        if not counts and not answer.refused:
            lines.append("none of your sessions holds a lease")
    else:
        answer, body = sessions.end_session(layers, session, **terms), {"session": session}
        lines = [f"session {session} holds nothing"] if answer.found_nothing else []
    return changed(answer, body | wire.ended(answer), lambda: [*_ended_lines(door, answer), *lines])


def _ended_lines(door: Door, answer: Answer) -> list[str]:
    layer = door.ledger.layer
    return [
        f"released {sentences.named_in(view, layer)}"
        if view.state == "released"
        else f"ended {sentences.named_in(view, layer)}, which stays assigned to you"
        for view in answer.leases
    ] + sentences.edited(answer)
