"""One-line sentences for people: lower case, with relative and absolute times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from gitlease import core, engine
from gitlease.core import instant
from gitlease.core.errors import GitleaseError
from gitlease.core.instant import humanize_duration
from gitlease.core.resources import GLOBAL_LAYER, WHOLE, fold

IN_THE_WAY = frozenset({"held", "wait_timeout", "not_holder"})
LISTED = 5  # conflicts that are spelt out; the rest is counted


def rfc3339(at: datetime) -> str:
    """Format as UTC to the second, rounded down, for JSON and pipes."""
    return instant.utc_text(at)


def clock_time(at: datetime, now: datetime, *, round_up: bool = False) -> str:
    """Format the time of day in UTC, with the date unless it is today, and the local time.

    The local time is added if ``now`` is not in UTC. ``round_up``: to the next second, for times
    from which on something is allowed.
    """
    if round_up and at.microsecond:
        at = at.replace(microsecond=0) + timedelta(seconds=1)
    today = at.date() == now.astimezone(UTC).date()
    return (at.strftime("%H:%M:%SZ") if today else rfc3339(at)) + _here(at, now)


def date_time(wall_ms: int, now: datetime | None) -> str:
    """Format a time with its date; without ``now`` in UTC only."""
    here = "" if now is None else _here(instant.moment_of(wall_ms), now)
    return instant.rfc3339(wall_ms) + here


def _here(at: datetime, now: datetime) -> str:
    return f" ({at.astimezone(now.tzinfo):%H:%M} here)" if now.utcoffset() else ""


def whose(view: core.LeaseView) -> str:
    """Return holder, session, host and branch: ``jo@example.com (session build-7 on laptop)``."""
    return view.holder + where(view)


def where(view: core.LeaseView, *, asked: str | None = None, short: bool = False) -> str:
    """Return session, host and branch as `` (…)``, or an empty text.

    Includes the lease's own name if another one was ``asked`` for, and a layer that is not the
    usual one; ``short`` omits layer, host and branch.
    """
    words = []
    if asked is not None and fold(view.resource) != fold(asked):
        words.append(f"lease of {view.resource}")
    words += [f"scope {view.scope}"] if view.scope != WHOLE else []
    words += [f"layer {view.layer}"] if view.layer != GLOBAL_LAYER and not short else []
    run = [f"session {view.session}"] if view.session else []
    run += [f"on {view.host}"] if view.host and not short else []
    words += [" ".join(run)] if run else []
    words += [f"branch {view.branch}"] if view.branch and not short else []
    return f" ({', '.join(words)})" if words else ""


def where_held(error: GitleaseError, view: core.LeaseView) -> str:
    """Return ``where`` for a refusal, which may name the lease in its message already."""
    is_named = f" of {view.resource}, which " in error.message
    return where(view, asked=None if is_named else error.resource)


def until(view: core.LeaseView, now: datetime, *, short: bool = False) -> str:
    """Return how long a lease lasts, or since when it has expired and when it becomes free.

    ``short`` omits the relative time of a live lease.
    """
    at = clock_time(view.expires_at, now)
    if _runs(view):
        left = "" if short else f", expires in {glance(view.expires_in)}"
        return f"{'parked ' if view.parked else ''}until {at}{left}"
    if view.state == "completed":
        return f"completed at {clock_time(view.renewed_at, now)}"
    if view.state in ("released", "revoked"):
        return view.state
    if view.is_lapsing(now):
        return f"expired at {at}, {lapsing(view, now)}"
    after = "still assigned to its holder" if edge_stays(view) else "free for others"
    return f"expired {humanize_duration(view.expires_in)} ago at {at}, {after}"


def lasts(view: core.LeaseView, now: datetime, *, short: bool = False) -> str:
    """Return ``until`` as it follows a holder: `` until 10:15:00Z``, ``, expired at 10:15:00Z``."""
    return (" " if _runs(view) else ", ") + until(view, now, short=short)


def lapsing(view: core.LeaseView, now: datetime) -> str:
    """Return until when a lease that has expired still blocks others."""
    at = clock_time(view.lapses_at or view.expires_at, now, round_up=True)
    return f"blocks others until {at}" if edge_stays(view) else f"free from {at}"


def edge_stays(view: core.LeaseView) -> bool:
    """Return whether the task stays its holder's once the lease has lapsed."""
    return view.assigned and view.free_at is None


def displaced(view: core.LeaseView) -> str:
    """Return whose lease a claim displaced: taken over with its edge, or only after its lapse."""
    how = "taken over from" if edge_stays(view) else "claimed after the lapsed lease of"
    return f"{how} {whose(view)}"


def afterwards(view: core.LeaseView, now: datetime) -> str:
    """Return what comes after the lease of an assigned task that still blocks others, or ``""``."""
    stays = edge_stays(view) and view.is_current(now)
    return f"; then still assigned to {view.holder}" if stays else ""


def glance(seconds: int) -> str:
    """Format a time left, rounded to minutes from a minute on."""
    return humanize_duration((seconds + 30) // 60 * 60 if seconds >= 60 else seconds)


def quoted(reason: str | None) -> str:
    """Format a reason for the end of a line."""
    return f': "{reason}"' if reason else ""


def refusal(error: GitleaseError, now: datetime) -> str:
    """Return the line of a refusal: resource, holder, place, time and reason."""
    view = error.views[0] if error.views else None
    if view is None or error.code not in IN_THE_WAY:
        return error.message
    line = error.message + where_held(error, view)
    if error.by_edge:
        line += f", last held until {clock_time(view.expires_at, now)}"
    else:
        line += lasts(view, now)
        # What protects a task's name is no reason to wait for its paths.
        if error.resource is not None and fold(error.resource) == fold(view.resource):
            line += afterwards(view, now)
    more = len(error.views) - 1
    return line + quoted(view.reason) + (f" (and {more} more)" if more else "")


def held(path: str, view: core.LeaseView, now: datetime) -> str:
    """Return the predicate that a file is or was held: holder, place, time and reason."""
    holder = view.holder + where(view, asked=path)
    verb = "is" if _runs(view) or view.is_current(now) else "was"
    return f"{verb} held by {holder}{lasts(view, now)}{quoted(view.reason)}"


def _runs(view: core.LeaseView) -> bool:
    return view.state in ("active", "planned") and view.expires_in > 0


def others_in_the_way(error: GitleaseError, now: datetime) -> list[str]:
    """Return a line for each further conflict; ``refusal`` has the first."""
    if error.code not in IN_THE_WAY:
        return []
    rest = error.views[1:]
    lines = [f"also {v.resource}: {whose(v)}, {until(v, now)}" for v in rest[:LISTED]]
    return lines + ([f"and {len(rest) - LISTED} more"] if len(rest) > LISTED else [])


def skew_warnings(views: Sequence[core.LeaseView]) -> tuple[str, ...]:
    """Return warnings about leases with times in the future."""
    return tuple(
        f"{v.resource} has times in the future: the clock of {whose(v)} or this machine is wrong"
        for v in views
        if v.skewed
    )


def named(view: core.LeaseView) -> str:
    """Return the resource, with a partial scope."""
    return view.resource if view.scope == WHOLE else f"{view.resource} (scope {view.scope})"


def named_in(view: core.LeaseView, layer: str) -> str:
    """Return the same, with the layer unless it is the one that is meant anyway."""
    return named(view) if view.layer == layer else f"{named(view)} in layer {view.layer}"


def unleased(name: str, waiting: Sequence[core.Ticket]) -> str:
    """Say that nobody holds a resource: it is free, or left to the first who waits for it."""
    if not waiting:
        return f"{name} is free"
    return f"{name} has no lease: left to {waiting[0].holder}, who waits for it"


def in_line(place: int, ticket: core.Ticket, now: datetime) -> str:
    """Return a waiter: ``waiting 1: jo@example.com (session build-7) for 3m, at most 12m more``."""
    seconds = now.timestamp()
    since = max(0, int(seconds - ticket.since / 1_000))
    left = max(0, int(ticket.until / 1_000 - seconds))
    return f"waiting {place}: {_who(ticket)} for {glance(since)}, at most {glance(left)} more"


def happened(event: engine.WatchEvent, now: datetime) -> str:
    """Return an event: ``10:15:00Z claimed F001 by jo@example.com until 10:30:00Z, …``."""
    view, kind = event.lease, event.kind.replace("_", " ")
    if event.kind == "taken_over" and view is not None and not view.assigned:
        kind = "claimed, after a lapse,"  # only an assignment is replaced
    line = f"{clock_time(event.at, now)} {kind} {event.resource}"
    if view is None:
        return line + ("" if event.scope == WHOLE else f" (scope {event.scope})")
    verb = "of" if event.kind in ("lapsed", "revoked") else "by"
    left = f" {until(view, now)}" if _runs(view) else ""
    return f"{line} {verb} {whose(view)}{left}{quoted(view.reason)}"


def _who(one: core.Ticket | engine.EndedLease) -> str:
    words = [f"scope {one.scope}"] if one.scope != WHOLE else []
    words += [f"session {one.session}"] if one.session else []
    return f"{one.holder} ({', '.join(words)})" if words else one.holder


def ended(one: engine.EndedLease, now: datetime) -> str:
    """Return how a lease ended: ``released by jo@example.com (session build-7) at 10:15:00Z``."""
    whose = _who(one)
    at = clock_time(instant.moment_of(one.ended_at), now)
    why = quoted(one.reason)
    if one.by == one.holder:
        return f"{one.state.value} by {whose} at {at}{why}"
    return f"{one.state.value} from {whose} by {one.by} at {at}{why}"


def stopping(why: core.Lost | str | None) -> str:
    """Return the reason why a run's command is stopped."""
    if why is None:
        return "stopping the command, as requested"
    if isinstance(why, str):
        return f"stopping the command: {why}"
    return f"{why.error.message}: stopping the command"


def noted(note: core.Note, now: datetime | None = None) -> str:
    """Return a note in one paragraph."""
    return f"note on {note.resource} by {note.author} at {date_time(note.at, now)}: {note.text}"
