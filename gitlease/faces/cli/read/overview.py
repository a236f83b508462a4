"""``status`` and ``whoami``: the ledger at a glance, and the caller's identity."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from gitlease.core.instant import humanize_duration
from gitlease.core.lease import same_person
from gitlease.faces import sentences, wire
from gitlease.faces.cli import output
from gitlease.faces.cli.read.reading import check_layer
from gitlease.faces.cli.verb import READING_EXITS, verb

if TYPE_CHECKING:
    from gitlease.core.lease import Actor
    from gitlease.core.view import LeaseView
    from gitlease.engine.answers import Reading
    from gitlease.faces.cli.call import Call


Active = tuple[str, str | None, int, datetime]
"""A holder, one of their sessions, its number of leases and its last activity."""


@verb(
    "status",
    """Show the ledger at a glance: where it is, how many leases are live, and which sessions are
active.""",
    examples=("gitlease status", "gitlease status --json", "gitlease status --cached"),
    exits=READING_EXITS,
    done="answered",
    cached=True,
)
def status_verb(call: Call, *, cached: bool) -> None:
    from gitlease.engine.reading import read_leases

    call.cached = call.typed("status", options=["--cached"])
    reading, now = read_leases(call.ledger, cached=cached), call.now()
    check_layer(call, reading)
    views = [view for view in reading.leases if view.is_current(now)]
    active = _active(views)
    body = {
        "leases": [wire.lease(view) for view in views],
        "holder": call.actor.holder,
        "session": call.actor.session,
        "ledger": _ledger(call, reading),
        "active": [
            {
                "holder": holder,
                "session": session,
                "leases": count,
                "last_activity": wire.seconds(last),
            }
            for holder, session, count, last in active
        ],
    }
    warnings, hints = _unknown_main(call, cached=cached)
    call.answer(
        body,
        warnings=(*reading.warnings, *warnings),
        next_steps=hints,
        views=views,
        show=lambda: _show_status(call, reading, views, active),
    )


def _unknown_main(call: Call, *, cached: bool) -> tuple[list[str], list[str]]:
    """Return a warning, and what to type, if it is not known which branch work lands on."""
    if call.workspace.settings.landing_release == "never":
        return [], []
    if not cached:
        call.workspace.learn_main_branch()
    if (remote := call.workspace.place.headless_remote()) is None:
        return [], []
    text = f"the default branch of {remote} is not known here: landed work is not noticed"
    return [text], [f"git remote set-head {remote} -a"]


def _active(views: Sequence[LeaseView]) -> list[Active]:
    grouped: dict[tuple[str, str | None], list[LeaseView]] = {}
    for view in views:
        grouped.setdefault((view.holder, view.session), []).append(view)
    found = [(*who, len(some), max(v.renewed_at for v in some)) for who, some in grouped.items()]
    return sorted(found, key=lambda active: active[3], reverse=True)


def _ledger(call: Call, reading: Reading) -> wire.Document:
    from gitlease.wiring.workspace import without_secrets

    ledger, ways = call.ledger, call.workspace.location.ways
    elsewhere = ways is not None and (len(ways.writes) > 1 or ledger.store.moved)
    return {
        "place": ledger.store.place,
        "written_to": without_secrets(ways.reads if elsewhere else ways.writes[0])
        if ways
        else None,
        "fetched_from": without_secrets(ways.reads) if ways else None,
        "layer": ledger.layer,
        "id": reading.ledger_id,
        "revision": reading.revision,
    }


def _ends(ledger: wire.Document) -> list[tuple[str, str]]:
    reads, writes = ledger["fetched_from"], ledger["written_to"]
    if reads == writes:
        return []
    words = f"gitlease reads and writes {writes}; others fetch from {reads}"
    return [("URLs", words)]


def _show_status(
    call: Call, reading: Reading, views: Sequence[LeaseView], active: Sequence[Active]
) -> None:
    now, actor, ledger = call.now(), call.actor, _ledger(call, reading)
    known = f"id {ledger['id']}, revision {ledger['revision']}" if ledger["id"] else "none yet"
    holder = actor.holder or output.NOBODY
    you = f"{holder}, session {actor.session}" if actor.session else holder
    facts = [
        ("ledger", f"{ledger['layer']} on {ledger['place']}, {known}"),
        *_ends(ledger),
        ("you", you),
        _counted(views, sum(_ran_out(view, now) for view in reading.leases), actor),
    ]
    lapsing = [view for view in views if view.is_lapsing(now)]
    for view in lapsing[: sentences.LISTED]:
        facts.append(
            ("expired", f"{view.resource} of {sentences.whose(view)}, {sentences.until(view, now)}")
        )
    for holder, session, count, last in active:
        ago = humanize_duration(int((now - last).total_seconds()))
        who = holder if session is None else f"{holder}, session {session}"
        leases = "1 lease" if count == 1 else f"{count} leases"
        facts.append(("active", f"{who}, {leases}, last seen {ago} ago"))
    output.facts(facts)


def _ran_out(view: LeaseView, now: datetime) -> bool:
    # expired, but not free for anyone: within the margin, or still assigned
    return view.state == "expired" and (view.assigned or view.is_current(now))


def _counted(views: Sequence[LeaseView], expired: int, actor: Actor) -> tuple[str, str]:
    live = sum(view.state == "active" for view in views)
    yours = [view for view in views if same_person(view.holder, actor.holder)]
    here = sum(view.mine for view in yours)
    words = f"{live} live" + (f", {expired} expired" if expired else "") + f", {len(yours)} yours"
    words += f" ({here} in this session)" if here != len(yours) else ""
    return "leases", words


@verb(
    "whoami",
    """Show your holder and session in the ledger, and the source of each.

The holder is git's user.email, never an argument. A session distinguishes your runs. It comes from
--session, GITLEASE_SESSION, git config lease.session, a coding agent's own id, or the linked
worktree.""",
    examples=("gitlease whoami", "gitlease whoami --session build-7", "gitlease whoami --json"),
    exits=(2, 7, 128),
    done="answered",
)
def whoami_verb(call: Call) -> None:
    identity = call.workspace.identity
    actor = identity.actor
    sources = {"holder": identity.holder_source, "session": identity.session_source}
    body = {"holder": actor.holder, "session": actor.session, "sources": sources}

    def show() -> None:
        known = (("holder", actor.holder), ("session", actor.session))
        facts = [(name, f"{x} ({sources[name]})" if x else "none") for name, x in known]
        output.facts(facts)

    absent = identity.no_holder
    warnings, hints = ([absent.message], absent.hints) if absent else ([], ())
    call.answer(body, warnings=warnings, next_steps=hints, show=show)
