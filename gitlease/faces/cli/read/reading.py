"""``list`` and ``log``: the leases and the history of the ledger, from the caller's view."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gitlease.core.errors import UsageError
from gitlease.core.lease import same_person
from gitlease.core.moves.operations import LAPSED, TAKEOVER
from gitlease.core.resources.resource import WHOLE
from gitlease.faces import sentences, wire
from gitlease.faces.cli import output, types
from gitlease.faces.cli.output import Row
from gitlease.faces.cli.verb import READING_EXITS, flag, option, verb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

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

    from gitlease.core.errors import NotFound

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
    if not cached:
        call.end_landed()
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
    state = "parked" if view.parked else "" if view.state == "active" else view.state
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
        show=lambda: _show_log(reading, call.now()),
    )


def _show_log(reading: Reading, now: datetime) -> None:
    output.table(
        ("WHEN", "WHAT", "RESOURCE", "SCOPE", "BY", "SESSION", "TOKEN", "WHY"),
        [_event_row(event, now) for event in reading.events],
        otherwise="nothing has happened yet",
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
