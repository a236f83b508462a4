"""The verbs that read: ``list``, ``log``, ``status`` and ``whoami``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from gitlease.core.errors import NotFound, UsageError
from gitlease.core.instant import humanize_duration
from gitlease.core.lease import same_person
from gitlease.core.moves.operations import LAPSED, TAKEOVER
from gitlease.core.resources.resource import WHOLE
from gitlease.faces.cli import output, types
from gitlease.faces.cli.output import Row
from gitlease.faces.cli.verb import READING_EXITS, flag, option, verb
from gitlease.verbs import sentences, wire

if TYPE_CHECKING:
    from gitlease.core.lease import Actor
    from gitlease.core.moves.operations import Event
    from gitlease.core.resources.resource import Resource
    from gitlease.core.view import LeaseView
    from gitlease.engine.answers import EndedLease, Reading
    from gitlease.faces.cli.call import Call

MINE, MY_OTHER, THEIRS = "mine", "my-other-session", "theirs"


def whose(view: LeaseView | EndedLease, actor: Actor) -> str:
    """Return whether a lease is mine, of another session of mine, or theirs."""
    if view.mine:
        return MINE
    return MY_OTHER if same_person(view.holder, actor.holder) else THEIRS


def check_layer(call: Call, reading: Reading | None = None) -> None:
    """Raise NotFound for a ``--layer`` without a ledger: it is probably mistyped.

    Without a ``reading``, this asks the remote.
    """
    if call.layer is None or (reading is not None and reading.ledger_id is not None):
        return
    if reading is None and call.ledger.look().head.ledger is not None:
        return
    from difflib import get_close_matches

    known = [space.layer for space in call.with_words(layer=None, _opened=None).workspace.in_use]
    if call.layer.lower() in known:  # configured, but still without a claim
        return
    near = get_close_matches(call.layer, known, cutoff=0.5)
    hints = [f"did you mean {', '.join(near)}?"] if near else []
    message = f"there is no layer {call.layer}: nobody has claimed anything in it"
    raise NotFound(message, hints=tuple(hints))


def check_names(call: Call, resources: Sequence[Resource]) -> None:
    """Raise NotFound for a mistyped layer or name."""
    from gitlease.engine.reading import check_known

    check_layer(call)
    check_known(call.ledger, resources)


@verb(
    "list",
    """List the leases of the ledger, and whose they are.

Lapsed and ended leases are hidden unless you use --all, which also lists what was released or
revoked lately.""",
    examples=(
        "gitlease list",
        "gitlease list --mine",
        "gitlease list --all --json",
        "gitlease list --cached        # without asking the remote",
    ),
    exits=READING_EXITS,
    done="answered",
    cached=True,
)
@flag("--mine", help="Only leases of this session.")
@flag("--all", help="Include lapsed, completed, released and revoked leases.")
def list_verb(call: Call, *, mine: bool, all: bool, cached: bool) -> None:
    from gitlease.engine.reading import read_leases

    switches = [name for name, given in (("--mine", mine), ("--all", all)) if given]
    call.cached = call.typed("list", options=["--cached", *switches])
    call.anonymous = not mine
    reading, now = read_leases(call.ledger, ended=all, cached=cached), call.now()
    check_layer(call, reading)
    shown = [view for view in reading.leases if all or view.is_current(now)]
    views = [view for view in shown if view.mine or not mine]
    ended = [one for one in reading.ended if one.mine or not mine]
    body = {"leases": [wire.lease(view) for view in views]}
    call.answer(
        body | ({"ended": [wire.ended_lease(one) for one in ended]} if all else {}),
        warnings=reading.warnings,
        views=views,
        show=lambda: _show_list(call, views, ended, now),
    )


def _show_list(
    call: Call, views: Sequence[LeaseView], ended: Sequence[EndedLease], now: datetime
) -> None:
    headings = "WHOSE RESOURCE SCOPE HOLDER SESSION STATE EXPIRES WHERE REASON"
    rows = [_row(view, call.actor, now) for view in views]
    rows += [_ended_row(one, call.actor, now) for one in ended]
    output.table(headings.split(), rows, otherwise="no leases")


def _row(view: LeaseView, actor: Actor, now: datetime) -> Row:
    ours = whose(view, actor)
    in_words = sentences.glance(abs(view.expires_in))
    left = f"in {in_words}" if view.expires_in > 0 else f"{in_words} ago"
    left += f", {sentences.lapsing(view, now)}" if view.is_lapsing(now) else ""
    place = " ".join(w for w in (view.host, f"({view.branch})" if view.branch else "") if w)
    scope = "" if view.scope == WHOLE else view.scope
    session, reason = view.session or "", view.reason or ""
    paths = " ".join(view.paths)
    covered = f"{view.resource} ({paths})" if paths else view.resource
    state: str = "parked" if view.parked else "" if view.state == "active" else view.state
    if not state and view.session is not None:
        from gitlease.runs.records import is_process_alive

        state = "process ended" if is_process_alive(view) is False else ""
    return Row(
        cells=(ours, covered, scope, view.holder, session, state, left, place, reason),
        style="dim" if view.state != "active" else {MINE: "green", THEIRS: "yellow"}.get(ours, ""),
    )


def _ended_row(one: EndedLease, actor: Actor, now: datetime) -> Row:
    ago = f"{sentences.glance(max(0, int(now.timestamp()) - one.ended_at // 1_000))} ago"
    scope = "" if one.scope == WHOLE else one.scope
    cells = (whose(one, actor), one.resource, scope, one.holder, one.session or "")
    return Row(cells=(*cells, one.state.value, ago, "", one.reason or ""), style="dim")


@verb(
    "log",
    """Show the audit trail, newest first: who claimed, took over, released, revoked, and why.""",
    examples=(
        "gitlease log",
        "gitlease log F001",
        "gitlease log --since 2d",
        "gitlease log -n 20 --json",
    ),
    exits=READING_EXITS,
    done="answered",
    cached=True,
)
@click.argument("word", metavar="[RESOURCE]", shell_complete=types.known_names, required=False)
@option("-n", "--limit", metavar="N", default="50", help="Show at most N events (default: 50).")
@option(
    "--since",
    metavar="T",
    type=types.since,
    help="Only events since a UTC time (2026-01-31T10:00Z) or for a duration (2d).",
)
def log_verb(call: Call, *, word: str | None, limit: str, since: int | None, cached: bool) -> None:
    from gitlease.engine.reading import read_log

    if not limit.isascii() or not limit.isdigit() or int(limit[:9]) < 1:
        raise UsageError(f"limit {limit[:20]!r} is not a positive number")
    resource = None if word is None else call.resource(word)
    named = [] if resource is None else [resource]
    call.cached = call.typed("log", *named, options=["--cached"])
    reading = read_log(
        call.ledger, resource=resource, limit=int(limit[:9]), since=since, cached=cached
    )
    call.answer(
        {"events": [wire.event(event) for event in reading.events]},
        warnings=reading.warnings,
        show=lambda: output.table(
            ("WHEN", "WHAT", "RESOURCE", "SCOPE", "BY", "SESSION", "TOKEN", "WHY"),
            [_event_row(event, call.now()) for event in reading.events],
            otherwise="nothing has happened yet",
        ),
    )


def _event_row(event: Event, now: datetime) -> Row:
    token = "" if event.token is None else str(event.token)
    scope = "" if event.scope in (None, WHOLE) else str(event.scope)
    kind, resource, session = event.kind, event.resource or "", event.session or ""
    by, why = event.by, event.reason or event.detail or ""
    if kind in TAKEOVER and event.detail:  # two events: the claim, and what it followed
        claims = kind == TAKEOVER[0]
        kind = "claimed" if claims else LAPSED
        by = by if claims else event.holder or ""
        why = ": ".join(filter(None, (event.detail, event.reason))) if claims else ""
    elif kind == TAKEOVER[1]:
        why = ": ".join(filter(None, (f"from {event.holder}", event.reason)))
    local = sentences.date_time(event.at, now)
    return Row((local, kind, resource, scope, by, session, token, why))


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
