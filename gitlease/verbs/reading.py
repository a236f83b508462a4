"""The verbs that read the ledger: ``list``, ``log``, ``status`` and ``whoami``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from shlex import quote

from gitlease.kernel.git.repository import without_secrets
from gitlease.kernel.ledger.answers import EndedLease, Reading
from gitlease.kernel.ledger.stepping import read_leases, read_log
from gitlease.kernel.rules.errors import GitleaseError, UsageError
from gitlease.kernel.rules.instant import humanize_duration, rfc3339
from gitlease.kernel.rules.lease import Actor, same_person
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.moves.operations import LAPSED, TAKEOVER, Event
from gitlease.kernel.rules.resources import WHOLE
from gitlease.verbs import parameters as takes
from gitlease.verbs import sentences, wire
from gitlease.verbs.sentences import glance
from gitlease.verbs.table import (
    AT_A_CLONE,
    READING_EXITS,
    Details,
    Door,
    DoorOfClone,
    Result,
    Table,
    verb,
)

MINE, MY_OTHER, THEIRS = "mine", "my-other-session", "theirs"
NOBODY, NOTHING = "nobody yet, since git has no user.email", "nothing has happened yet"
HEADINGS = "WHOSE RESOURCE SCOPE HOLDER SESSION STATE EXPIRES WHERE REASON"
PUSH_HEADINGS, NO_PUSHES = "WHEN SECONDS RESULT WHAT", "this clone has pushed nothing lately"
HOUR = 3_600_000  # milliseconds
EVENT_HEADINGS = "WHEN WHAT RESOURCE SCOPE BY SESSION TOKEN WHY"


def whose(view: LeaseView | EndedLease, actor: Actor) -> str:
    """Return whether a lease is mine, of another session of mine, or theirs."""
    mine = MINE if view.mine else MY_OTHER
    return mine if view.mine or same_person(view.holder, actor.holder) else THEIRS


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
    reads=True,
)
def list_verb(
    door: Door,
    *,
    mine: takes.Mine = False,
    all: takes.EndedToo = False,
    cached: takes.Cached = False,
) -> Result:
    if mine:
        # Nobody has nothing: an empty list would hide that git lacks a user.email.
        door.ledger.check_holder()
    reading, now = read_leases(door.ledger, ended=all, cached=cached), door.now()
    # Within the margin after its end a lease still keeps others out.
    shown = [door.own(view) for view in reading.leases if all or view.is_current(now)]
    views = [view for view in shown if view.mine or not mine]
    ended = [one for one in reading.ended if one.mine or not mine]
    body: wire.Document = {"leases": [wire.lease(view) for view in views]}
    body |= {"ended": [wire.ended_lease(one) for one in ended]} if all else {}
    return Result(
        body=body,
        lines=lambda: [_leases_table(views, ended, door.ledger.actor, now)],
        leases=views,
        value=ended,
        warnings=reading.warnings,
    )


def _leases_table(
    views: Sequence[LeaseView], ended: Sequence[EndedLease], actor: Actor, now: datetime
) -> Table:
    styles = {MINE: "green", THEIRS: "yellow"}
    return Table(
        headings=HEADINGS.split(),
        rows=[
            *(_row(view, whose(view, actor), now) for view in views),
            *(_ended_row(one, whose(one, actor), now) for one in ended),
        ],
        styles=[
            "dim" if view.state != "active" else styles.get(whose(view, actor), "")
            for view in views
        ]
        + ["dim"] * len(ended),
        otherwise="no leases",
    )


def _row(view: LeaseView, ours: str, now: datetime) -> tuple[str, ...]:
    in_words = glance(abs(view.expires_in))
    left = f"in {in_words}" if view.expires_in > 0 else f"{in_words} ago"
    left += f", {sentences.lapsing(view, now)}" if view.is_lapsing(now) else ""
    place = " ".join(w for w in (view.host, f"({view.branch})" if view.branch else "") if w)
    scope = "" if view.scope == WHOLE else view.scope
    session, reason = view.session or "", view.reason or ""
    paths = " ".join(view.paths)
    covered = f"{view.resource} ({paths})" if paths else view.resource
    state: str = "" if view.state == "active" else view.state
    ended = f"process ended ({sentences.MAY_RUN})"
    state = ended if sentences.process_ended(view) else state
    return (ours, covered, scope, view.holder, session, state, left, place, reason)


def _ended_row(one: EndedLease, ours: str, now: datetime) -> tuple[str, ...]:
    ago = f"{glance(max(0, int(now.timestamp()) - one.ended_at // 1_000))} ago"
    scope = "" if one.scope == WHOLE else one.scope
    head = (ours, one.resource, scope, one.holder, one.session or "")
    return (*head, one.state.value, ago, "", one.reason or "")


@verb(
    "log",
    """Show the audit trail, newest first: who claimed, took over, released, revoked, and why.

With --pushes, show what this clone pushed to the ledger lately instead, without asking the
remote.""",
    examples=(
        "gitlease log",
        "gitlease log F001",
        "gitlease log --since 2d",
        "gitlease log -n 20 --json",
        "gitlease log --pushes",
    ),
    exits=READING_EXITS,
    done="answered",
    tool="Who claimed, took over, released or revoked, and why; newest first.",
    reads=True,
)
def log_verb(
    door: Door,
    resource: takes.Of = None,
    *,
    limit: takes.Limit = 50,
    since: takes.Since = None,
    cached: takes.Cached = False,
    pushes: takes.Pushes = False,
) -> Result:
    if pushes:
        if resource is not None:
            raise UsageError(f"{door.option('pushes')} shows the pushes for all: name no resource")
        return _pushes(door, limit, since)
    reading = read_log(door.ledger, resource=resource, limit=limit, since=since, cached=cached)

    def lines() -> Iterable[Table]:
        rows = [_event_row(event, door.now()) for event in reading.events]
        return [Table(headings=EVENT_HEADINGS.split(), rows=rows, otherwise=NOTHING)]

    return Result(
        body={"events": [wire.event(event) for event in reading.events]},
        lines=lines,
        value=reading.events,
        warnings=reading.warnings,
    )


def _pushes(door: Door, limit: int, since: int | None) -> Result:
    session, now = door.ledger, door.now()
    every = [*reversed(session.store.pushes(session.layer))]
    found = [x for x in every if since is None or x.at >= since][:limit]
    recent = [x for x in every if x.at > now.timestamp() * 1_000 - HOUR]
    lost = sum(x.fate != "landed" for x in recent)

    def lines() -> Iterable[Table | str]:
        rows = [
            (sentences.date_time(x.at, now), f"{x.took / 1_000:.1f}", x.fate, x.what) for x in found
        ]
        yield Table(headings=PUSH_HEADINGS.split(), rows=rows, otherwise=NO_PUSHES)
        if found:
            number = "1 push" if len(recent) == 1 else f"{len(recent)} pushes"
            yield f"in the last hour: {number}, {lost} of which did not land"

    body = [
        {
            "at": rfc3339(x.at),
            "seconds": x.took / 1_000,
            "result": x.fate,
            "what": x.what,
            "sent": x.sent,
        }
        for x in found
    ]
    return Result(body={"pushes": body}, lines=lines, value=found)


def _event_row(event: Event, now: datetime) -> tuple[str, ...]:
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
    return (local, kind, resource, scope, by, session, token, why)


Active = tuple[str, str | None, int, datetime]
"""A holder, one of their sessions, its number of leases and its last activity."""


@verb(
    "status",
    """Show the ledger at a glance: where it is, how many leases are live, and which sessions are
active.""",
    examples=("gitlease status", "gitlease status --json", "gitlease status --cached"),
    exits=READING_EXITS,
    done="answered",
    reads=True,
    doors=AT_A_CLONE,
)
def status_verb(door: DoorOfClone, *, cached: takes.Cached = False) -> Result:
    reading, now, actor = read_leases(door.ledger, cached=cached), door.now(), door.ledger.actor
    views = [view for view in reading.leases if view.is_current(now)]
    active, ledger = _active(views), _ledger(door, reading)
    warnings, commands = _unknown_main(door, cached=cached)
    return Result(
        body={
            "leases": [wire.lease(view) for view in views],
            "holder": actor.holder,
            "session": actor.session,
            "ledger": ledger,
            "active": [
                {
                    "holder": holder,
                    "session": session,
                    "leases": count,
                    "last_activity": wire.seconds(last),
                }
                for holder, session, count, last in active
            ],
        },
        lines=lambda: [Details(rows=_status_rows(ledger, reading, views, active, actor, now))],
        leases=views,
        value=reading,
        warnings=(*reading.warnings, *warnings, *_doubts(door)),
        commands=commands,
    )


def _unknown_main(door: DoorOfClone, *, cached: bool) -> tuple[list[str], list[str]]:
    """Return a warning, and what to type, if it is not known which branch work lands on."""
    # Then nothing is looked for on the main branch.
    if door.workspace.settings.landing_release == "never":
        return [], []
    if not cached:
        # An older git notes the remote's default branch with a clone alone: else it is asked.
        door.workspace.learn_main_branch()
    main = door.workspace.place.main()
    if main.commit and not main.ref:
        remote, _, branch = main.name.partition("/")
        text = f"{main.name} is not tracked here: landed work is not noticed"
        return [text], [f"git remote set-branches --add {quote(remote)} {quote(branch)}"]
    if (remote := door.workspace.place.headless_remote() or "") == "":
        return [], []
    text = f"the default branch of {remote} is not known here: landed work is not noticed"
    return [text], [f"git remote set-head {remote} -a"]


def _doubts(door: DoorOfClone) -> tuple[str, ...]:
    """What is unknown of the tasks on the main branch."""
    try:
        found = door.ledger.edges.everywhere()
    except GitleaseError:  # what is wrong with the task files is for others to say
        return ()
    from gitlease.tasks.queue import doubt_messages

    return doubt_messages(found)


def _active(views: Sequence[LeaseView]) -> list[Active]:
    grouped: dict[tuple[str, str | None], list[LeaseView]] = {}
    for view in views:
        grouped.setdefault((view.holder, view.session), []).append(view)
    found = [(*who, len(some), max(v.renewed_at for v in some)) for who, some in grouped.items()]
    return sorted(found, key=lambda active: active[3], reverse=True)


def _ledger(door: DoorOfClone, reading: Reading) -> wire.Document:
    ledger, ways = door.ledger, door.workspace.location.ways
    return {
        "place": ledger.store.place,
        # A URL may have a password in it, which no answer shows.
        "written_to": without_secrets(ways.writes[0] if ways.is_one else ways.reads)
        if ways
        else None,
        "fetched_from": without_secrets(ways.reads) if ways else None,
        "layer": ledger.layer,
        "id": reading.ledger_id,
        "revision": reading.revision,
    }


def _status_rows(
    ledger: wire.Document,
    reading: Reading,
    views: Sequence[LeaseView],
    active: Sequence[Active],
    actor: Actor,
    now: datetime,
) -> list[tuple[str, str]]:
    known = f"id {ledger['id']}, revision {ledger['revision']}" if ledger["id"] else "none yet"
    reads, writes = ledger["fetched_from"], ledger["written_to"]
    others = f"gitlease reads and writes {writes}; others fetch from {reads}"
    holder = actor.holder or NOBODY
    # As the board counts them.
    lapsed = [view for view in reading.leases if view.state == "expired"]
    abandoned = sum(view.abandoned for view in lapsed)
    rows = [
        ("ledger", f"{ledger['layer']} on {ledger['place']}, {known}"),
        ("URLs", "" if reads == writes else others),
        ("you", f"{holder}, session {actor.session}" if actor.session else holder),
        ("leases", _counted(views, len(lapsed) - abandoned, abandoned, actor)),
    ]
    lapsing = [view for view in views if view.is_lapsing(now)]
    for view in lapsing[: sentences.LISTED]:
        until = sentences.until(view, now)
        rows.append(("expired", f"{view.resource} of {sentences.whose(view)}, {until}"))
    ended = {view.session for view in views if sentences.process_ended(view)}
    for holder, session, count, last in active:
        ago = humanize_duration(int((now - last).total_seconds()))
        who = holder if session is None else f"{holder}, session {session}"
        leases = "1 lease" if count == 1 else f"{count} leases"
        over = f", process ended ({sentences.MAY_RUN})" if session in ended else ""
        rows.append(("active", f"{who}, {leases}, last seen {ago} ago{over}"))
    return rows


def _counted(views: Sequence[LeaseView], expired: int, abandoned: int, actor: Actor) -> str:
    live = sum(view.state == "active" for view in views)
    yours = [view for view in views if same_person(view.holder, actor.holder)]
    here = sum(view.mine for view in yours)
    words = f"{live} live" + (f", {expired} expired" if expired else "")
    words += (f", {abandoned} abandoned" if abandoned else "") + f", {len(yours)} yours"
    return words + (f" ({here} in this session)" if here != len(yours) else "")


@verb(
    "whoami",
    """Show your holder and session in the ledger, and the source of each.

The holder is git's user.email, never an argument. A session distinguishes your runs. It comes from
--session, GITLEASE_SESSION, git config lease.session, a coding agent's own id, or the linked
worktree.""",
    examples=("gitlease whoami", "gitlease whoami --session build-7", "gitlease whoami --json"),
    exits=(2, 7, 128),
    done="answered",
    reads=True,
)
def whoami_verb(door: Door) -> Result:
    actor, holder_source, session_source, absent = door.who()
    known = {"holder": actor.holder, "session": actor.session}
    sources = {"holder": holder_source, "session": session_source}
    rows = [(name, f"{word} ({sources[name]})" if word else "none") for name, word in known.items()]
    warnings = [absent.message] if absent else []
    # It answers all the same where a copy of a ledger cannot be read.
    with contextlib.suppress(GitleaseError):
        warnings += [
            text for ledger in door.every_ledger() for text in ledger.mailbox.other_identity()
        ]
    return Result(
        body={**known, "sources": sources},
        lines=lambda: [Details(rows=rows)],
        warnings=warnings,
        commands=absent.hints if absent else (),
    )
