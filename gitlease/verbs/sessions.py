"""The verbs about sessions: ``park``, for a later one, ``session list`` and ``session end``."""

from __future__ import annotations

from typing import Any

from gitlease.core.errors import Hint, UsageError
from gitlease.core.instant import format_duration, humanize_duration
from gitlease.core.resources import WHOLE
from gitlease.engine import sessions
from gitlease.engine.answers import Answer
from gitlease.engine.sessions import OwnSession
from gitlease.verbs import parameters as takes
from gitlease.verbs import sentences, wire
from gitlease.verbs.table import (
    AT_A_CLONE,
    LEASE_EXITS,
    OWN_EXITS,
    READING_EXITS,
    Door,
    Result,
    Table,
    changed,
    verb,
)

SHOWN = 5  # resources of a session in a table


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
    exits=OWN_EXITS,
    done="the leases are parked",
)
def park_verb(
    door: Door,
    resources: takes.Resources,
    *,
    duration: takes.ParkFor = None,
    reason: takes.Reason = None,
    note: takes.ParkNote = None,
    scope: takes.OwnScope = None,
) -> Result:
    answer = door.act(
        "park",
        resources,
        lambda ledger, some: sessions.park(
            ledger, some, seconds=duration, scope=scope, reason=reason, note=note
        ),
        scope=scope,
    )
    body = wire.changed(answer) | _parked_at_most(answer)
    then = _claims_again(door, answer)
    return changed(answer, body, lambda: _parked_lines(door, answer), then=then)


def _parked_at_most(answer: Answer) -> wire.Document:
    """Return the keys that report a capped parking time."""
    return {"capped_to_max": answer.capped_to_max, "max_park_seconds": answer.max_park_seconds}


def _parked_lines(door: Door, answer: Answer) -> list[str]:
    """Return a line for each parked lease."""
    now, most = door.now(), format_duration(answer.max_park_seconds)
    less = f", capped to the ledger's maximum of {most}" if answer.capped_to_max else ""
    return [f"{sentences.named(x)} is {sentences.until(x, now)}{less}" for x in answer.leases]


def _claims_again(door: Door, answer: Answer) -> tuple[Hint, ...]:
    """Return the claims that resume parked leases: one of each scope and layer."""
    parts: dict[tuple[str, str], list[str]] = {}
    for view in answer.leases:
        parts.setdefault((view.scope, view.layer), []).append(view.resource)
    return tuple(
        Hint(
            "claim",
            {"resources": names}
            | ({} if scope == WHOLE else {"scope": scope})
            | ({"any": True} if any(map(door.needs_any, names)) else {})
            # Without this call's session: a parked lease is bound to none.
            | {"layer": layer, "session": None},
            "resume it, in any of your sessions",
        )
        for (scope, layer), names in parts.items()
    )


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
    doors=AT_A_CLONE,
)
def session_end_verb(
    door: Door,
    id: takes.SessionId = None,
    *,
    all: takes.EndAll = False,
    release: takes.ReleaseToo = False,
    park: takes.ParkInstead = False,
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
        # A bare --park is True: for as long as the ledger allows.
        "park": park is not False,
        "seconds": None if isinstance(park, bool) else park,
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
    parked = answer.status == "parked"
    return changed(
        answer,
        body | wire.ended(answer) | (_parked_at_most(answer) if parked else {}),
        lambda: [*(_parked_lines if parked else _ended_lines)(door, answer), *lines],
        then=_claims_again(door, answer) if parked else (),
    )


def _ended_lines(door: Door, answer: Answer) -> list[str]:
    layer = door.ledger.layer
    return [
        f"released {sentences.named_in(view, layer)}"
        if view.state == "released"
        else f"ended {sentences.named_in(view, layer)}, which stays assigned to you"
        for view in answer.leases
    ] + sentences.edited(answer)
