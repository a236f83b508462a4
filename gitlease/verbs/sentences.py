"""One-line sentences for people: lower case, with relative and absolute times.

Of leases first, then of tasks: their files, the queue, and why one cannot be claimed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from gitlease.kernel.rules.edge import EdgeEdit, People, Task, printable
from gitlease.kernel.rules.errors import GitleaseError, Hint
from gitlease.kernel.rules.instant import MS, humanize_duration, moment_of, rfc3339, utc_text
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.ledger import Note, Setback, Ticket
from gitlease.kernel.rules.loss import Lost
from gitlease.kernel.rules.resources import GLOBAL_LAYER, WHOLE, fold
from gitlease.verbs.table import Door

if TYPE_CHECKING:
    from gitlease.kernel.ledger.answers import Answer, EndedLease, Taken
    from gitlease.kernel.ledger.watch import WatchEvent
    from gitlease.tasks.queue import Carry, Entry, QueueReading


IN_THE_WAY = frozenset({"held", "wait_timeout", "not_holder"})
LISTED = 5  # conflicts that are spelt out; the rest is counted


def clock_time(at: datetime, now: datetime, *, round_up: bool = False) -> str:
    """Format the time of day in UTC, with the date unless it is today, and the local time.

    The local time is added if ``now`` is not in UTC. ``round_up``: to the next second, for times
    from which on something is allowed.
    """
    if round_up and at.microsecond:
        at = at.replace(microsecond=0) + timedelta(seconds=1)
    # Both in UTC, where the date may be another than here.
    today = at.date() == now.astimezone(UTC).date()
    return (at.strftime("%H:%M:%SZ") if today else utc_text(at)) + _here(at, now)


def date_time(wall_ms: int, now: datetime | None) -> str:
    """Format a time with its date; without ``now`` in UTC only."""
    here = "" if now is None else _here(moment_of(wall_ms), now)
    return rfc3339(wall_ms) + here


def _here(at: datetime, now: datetime) -> str:
    return f" ({at.astimezone(now.tzinfo):%H:%M} here)" if now.utcoffset() else ""


def whose(view: LeaseView) -> str:
    """Return holder, session, host and branch: ``jo@example.com (session build-7 on laptop)``."""
    return view.holder + where(view)


def where(view: LeaseView, *, asked: str | None = None, short: bool = False) -> str:
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


def where_held(error: GitleaseError, view: LeaseView) -> str:
    """Return ``where`` for a refusal, which may name the lease in its message already."""
    is_named = f" of {view.resource}, which " in error.message
    return where(view, asked=None if is_named else error.resource)


def until(view: LeaseView, now: datetime, *, short: bool = False) -> str:
    """Return how long a lease lasts, or since when it has expired and when it becomes free.

    ``short`` omits the relative time of a live lease.
    """
    at = clock_time(view.expires_at, now)
    if _runs(view):
        left = "" if short else f", expires in {glance(view.expires_in)}"
        return f"until {at}{left}"
    if view.state == "completed":
        return f"completed at {clock_time(view.renewed_at, now)}"
    if view.state in ("released", "revoked"):
        return view.state
    if view.is_lapsing(now):
        return f"expired at {at}, {lapsing(view, now)}"
    after = "still assigned to its holder" if edge_stays(view) else "free for others"
    return f"expired {humanize_duration(view.expires_in)} ago at {at}, {after}"


def lasts(view: LeaseView, now: datetime, *, short: bool = False) -> str:
    """Return ``until`` as it follows a holder: `` until 10:15:00Z``, ``, expired at 10:15:00Z``."""
    joint = " " if _runs(view) else ", "
    return joint + until(view, now, short=short)


def lapsing(view: LeaseView, now: datetime) -> str:
    """Return until when a lease that has expired still blocks others."""
    at = clock_time(view.lapses_at or view.expires_at, now, round_up=True)
    return f"blocks others until {at}" if edge_stays(view) else f"free from {at}"


def edge_stays(view: LeaseView) -> bool:
    """Return whether the task stays its holder's once the lease has lapsed."""
    # With a time from which it is free, the edge ends with the lease.
    return view.assigned and view.free_at is None


def displaced(view: LeaseView) -> str:
    """Return whose lease a claim displaced: taken over with its edge, or only after its lapse."""
    how = "taken over from" if edge_stays(view) else "claimed after the lapsed lease of"
    return f"{how} {whose(view)}"


def afterwards(view: LeaseView, now: datetime) -> str:
    """Return what comes after the lease of an assigned task that still blocks others, or ``""``."""
    stays = edge_stays(view) and view.is_current(now)
    return f"; then still assigned to {view.holder}" if stays else ""


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


def held(path: str, view: LeaseView, now: datetime) -> str:
    """Return the predicate that a file is or was held: holder, place, time and reason."""
    holder = view.holder + where(view, asked=path)
    # What has lapsed may be claimed by anybody: it only was held.
    verb = "is" if _runs(view) or view.is_current(now) else "was"
    return f"{verb} held by {holder}{lasts(view, now)}{quoted(view.reason)}"


def _runs(view: LeaseView) -> bool:
    return view.state in ("active", "planned") and view.expires_in > 0


def others_in_the_way(error: GitleaseError, now: datetime) -> list[str]:
    """Return a line for each further conflict; ``refusal`` has the first."""
    rest = error.views[1:] if error.code in IN_THE_WAY else ()
    lines = [f"also {v.resource}: {whose(v)}, {until(v, now)}" for v in rest[:LISTED]]
    return lines + ([f"and {len(rest) - LISTED} more"] if len(rest) > LISTED else [])


def named(view: LeaseView) -> str:
    """Return the resource, with a partial scope."""
    return view.resource if view.scope == WHOLE else f"{view.resource} (scope {view.scope})"


def named_in(view: LeaseView, layer: str = GLOBAL_LAYER) -> str:
    """Return the same, with the layer unless it is the one that is meant anyway.

    Mostly that is the usual one: any other says which leases are meant.
    """
    return named(view) if view.layer == layer else f"{named(view)} in layer {view.layer}"


def unleased(name: str, waiting: Sequence[Ticket]) -> str:
    """Say that nobody holds a resource: it is free, or left to the first who waits for it."""
    if not waiting:
        return f"{name} is free"
    return f"{name} has no lease: left to {waiting[0].holder}, who waits for it"


def in_line(place: int, ticket: Ticket, now: datetime) -> str:
    """Return a waiter: ``waiting 1: jo@example.com (session build-7) for 3m, at most 12m more``."""
    seconds = now.timestamp()
    # The ticket has the time of its writer's clock, which may be ahead of this one.
    since = max(0, int(seconds - ticket.since / 1_000))
    left = max(0, int(ticket.until / 1_000 - seconds))
    return f"waiting {place}: {_who(ticket)} for {glance(since)}, at most {glance(left)} more"


def happened(event: WatchEvent, now: datetime) -> str:
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


def _who(one: Ticket | EndedLease) -> str:
    words = [f"scope {one.scope}"] if one.scope != WHOLE else []
    words += [f"session {one.session}"] if one.session else []
    return f"{one.holder} ({', '.join(words)})" if words else one.holder


def ended(one: EndedLease, now: datetime) -> str:
    """Return how a lease ended: ``released by jo@example.com (session build-7) at 10:15:00Z``."""
    at = clock_time(moment_of(one.ended_at), now)
    by = f"by {_who(one)}" if one.by == one.holder else f"from {_who(one)} by {one.by}"
    return f"{one.state.value} {by} at {at}{quoted(one.reason)}"


def stopping(why: Lost | str | None) -> str:
    """Return the reason why a run's command is stopped."""
    if why is None:
        return "stopping the command, as requested"
    if isinstance(why, str):
        return f"stopping the command: {why}"
    return f"{why.error.message}: stopping the command"


def noted(note: Note, now: datetime | None = None) -> str:
    """Return a note in one paragraph."""
    return f"note on {note.resource} by {note.author} at {date_time(note.at, now)}: {note.text}"


LONGEST_TITLE = 100  # of a title within a sentence
SHORT_ID = 7  # digits of a commit


# --- task files ---------------------------------------------------------------------------------


def edited(answer: Answer) -> list[str]:
    """Return a line for each task file that was changed or committed."""
    lines = []
    for written in answer.written:
        file, commit = path(written.change.file), (written.commit or "")[:SHORT_ID]
        if written.changed:
            left = ", as in the last commit" if written.in_head else ": commit it"
            left = f", committed as {commit}" if commit else left
            lines.append(_edit(written.change.edit, file) + left)
        elif commit:  # the edit existed before; only its commit was missing
            lines.append(f"committed {file} as {commit}")
    return lines


def _edit(edit: EdgeEdit, file: str) -> str:
    """Describe an edit: ``assigned tasks/F001.md to @jo and set it to doing``."""
    deeds = [("assigned", f" to {printable(edit.add)}")] if edit.add is not None else []
    deeds += [("set", f" to {printable(edit.status)}")] if edit.status is not None else []
    deeds += [("unassigned", "")] if edit.remove and edit.add is None else []
    said = [f"{v} {'it' if i else file}{rest}" for i, (v, rest) in enumerate(deeds)]
    return " and ".join(said) or f"changed {file}"


def settled(answer: Answer) -> frozenset[str]:
    """Return the folded names of the tasks whose files were changed or committed."""
    return frozenset(w.change.resource.key for w in answer.written if w.changed or w.commit)


def unassigned(answer: Answer, people: People) -> list[str]:
    """Return the former assignees, without those whose lease was displaced."""
    displaced = [view.holder for view in answer.displaced]
    return [
        printable(name)
        for name in answer.unassigned
        if not any(people.is_mine(name, holder) for holder in displaced)
    ]


# --- the queue ----------------------------------------------------------------------------------


def why_not(entry: Entry, now: datetime) -> str:
    """Return why a task cannot be claimed; "" if it can."""
    task, view = entry.task, entry.lease
    if entry.why_not is None:
        return ""
    from gitlease.tasks.queue import WhyNot

    if entry.why_not is WhyNot.DONE:
        return "done" if task.is_done or view is None else f"completed by {view.holder}"
    if entry.why_not is WhyNot.STATUS:
        return f"status {printable(task.status.strip())} is not in tasks.statuses"
    if entry.why_not is WhyNot.ELSEWHERE:
        from gitlease.kernel.ledger.edges import place_of

        return f"not in this checkout, but in {place_of(task.ref)}"
    if entry.why_not is WhyNot.WAITED_FOR:
        return f"left to {entry.who}, who waits for it"
    if entry.why_not is WhyNot.FAILED and entry.setback:
        return setback(entry.setback, now)
    if entry.why_not is WhyNot.ASSIGNED or view is None:
        return f"assigned to {entry.who}"
    if entry.why_not is WhyNot.YOURS:
        return f"yours, live {until(view, now, short=True)}"
    part = where(view, asked=task.resource.text, short=True)
    return f"held by {view.holder}{part}{lasts(view, now, short=True)}"


def setback(found: Setback, now: datetime) -> str:
    """Return how often a task failed, when and by whom last, and who may take it when."""
    count, last = found.failures, found.last
    # The first line alone: a pool's note may end with lines of a log.
    note = one_line(last.text.strip().partition("\n")[0])
    note = quoted(note if len(note) <= LONGEST_TITLE else f"{note[:LONGEST_TITLE]}…")
    times = {0: "", 1: "failed once", 2: "failed twice"}.get(count, f"failed {count} times")
    by = f"by {last.author} at {date_time(last.at, now)}"
    if found.waits:
        return f"waits until it is claimed by name, kept {by}{note}"
    if found.free_at is None:
        return f"needs a person, {times}, last {by}{note}"
    until = clock_time(moment_of(found.free_at), now, round_up=True)
    return f"{times}, last {by}{note}; pools leave it alone until {until}"


def not_here(entries: Iterable[Entry]) -> str:
    """Say how many of the tasks would be free if this checkout had them; "" for none."""
    from gitlease.tasks.queue import WhyNot

    count = sum(e.why_not is WhyNot.ELSEWHERE for e in entries)
    many = "1 task is" if count == 1 else f"{count} tasks are"
    return f"{many} not in this checkout" if count else ""


def how(carry: Carry, now: datetime) -> str:
    """Return the state of a carried task's lease."""
    if (view := carry.lease) is None:
        return "assigned, no lease"
    part = where(view, short=True)
    from gitlease.tasks.queue import Carried

    if carry.state in (Carried.TAKEN_OVER, Carried.THEIRS):
        how = "taken over" if carry.state is Carried.TAKEN_OVER else "held"
        return f"{how} by {view.holder}{part}{lasts(view, now, short=True)}"
    if carry.state is Carried.LIVE:
        return f"live {until(view, now)}{part}"
    at = clock_time(view.expires_at, now)
    if carry.state is Carried.WAITING:
        return f"waits for you since {at}{part}"
    return f"lapsed {humanize_duration(view.expires_in)} ago at {at}{part}"


def by_session(
    reading: QueueReading, sessions: Collection[str]
) -> tuple[list[Carry], list[LeaseView]]:
    """Divide what a person carries: their own work, and what other live sessions of theirs hold.

    ``sessions`` are the caller's own. What others took is left out.
    """
    from gitlease.runs.records import is_process_alive
    from gitlease.tasks.queue import Carried

    own, elsewhere = [], []
    taken = {fold(x.resource) for x in reading.taken}
    for carry in reading.carried:
        # It stands among `reading.taken` already.
        if carry.by is not None and fold(carry.resource) in taken:
            continue
        view = carry.lease
        another = view is not None and view.session is not None and view.session not in sessions
        another = another and carry.by is None
        if (
            view is not None
            and another
            # With a lapsed lease a session may still be at work, as long as its process runs.
            and (carry.state is Carried.LIVE or is_process_alive(view))
        ):
            elsewhere.append(view)
        else:
            own.append(carry)
    return own, elsewhere


def nothing_carried(reading: QueueReading, session: str | None) -> str:
    """Say that a caller carries nothing; not if it is only another session that does."""
    if not reading.carried:
        return "you carry nothing"
    if all(carry.by is not None for carry in reading.carried):
        return "you carry nothing any more"
    where = "outside of your sessions" if session is None else f"in session {session}"
    return f"you carry nothing {where}"


def held_elsewhere(view: LeaseView, now: datetime) -> str:
    """Return whose of a person's own sessions has a lease."""
    place = f", on {view.host}" if view.host else ""
    since = clock_time(view.claimed_at, now)
    if view.state == "active":
        ended = f": its process has ended ({MAY_RUN})" if process_ended(view) else ""
        return f"held by your other session {view.session}{place}, since {since}{ended}"
    # It leads the session's terminal, or is its run: whether anything is done there is not known.
    return (
        f"lapsed, but the process of your other session {view.session}{place} has not ended,"
        f" since {since}"
    )


# A killed process takes along nothing that it has started in a session of its own.
MAY_RUN = "what it started may still run"


def process_ended(view: LeaseView) -> bool | None:
    """Return whether the process of a live lease's session has ended; None if that is unknown."""
    if view.state != "active" or view.session is None:
        return None
    from gitlease.runs.records import is_process_alive

    alive = is_process_alive(view)
    return None if alive is None else not alive


def was_taken(taken: Taken, now: datetime | None = None) -> str:
    """Return a loss: resource, new holder, time and reason."""
    done = "claimed, after yours lapsed," if taken.lapsed else taken.what.replace("_", " ")
    scope = "" if taken.scope in ("", WHOLE) else f" (scope {taken.scope})"
    why, at = quoted(taken.reason), round(taken.at.timestamp() * MS)
    return f"{taken.resource}{scope} {done} by {taken.by} at {date_time(at, now)}{why}"


# --- one task -----------------------------------------------------------------------------------


def facts(task: Task, waits_for: Sequence[str]) -> list[tuple[str, str]]:
    """Return the facts of a task file for ``output.facts``."""
    return [
        ("title", one_line(task.title)),
        ("status", one_line(task.status)),
        ("assigned", listed(task.everyone)),
        ("priority", one_line(task.priority)),
        ("waits_for", listed(waits_for)),
        ("file", path(task.file)),
    ]


def titled(task: Task | None) -> str:
    """Return the title in one line, truncated."""
    title = one_line(task.title) if task else ""
    return title if len(title) <= LONGEST_TITLE else title[:LONGEST_TITLE] + "…"


def waiting(waits_for: Sequence[str]) -> str:
    """Return the open dependencies in words, or an empty text."""
    return f"waits for {listed(waits_for)}" if waits_for else ""


def listed(names: Iterable[str]) -> str:
    """Join names of a task file in one line."""
    return ", ".join(map(printable, names))


def one_line(text: str) -> str:
    """Normalise whitespace to single spaces."""
    return " ".join(text.split())


def path(file: str) -> str:
    """Return a path, escaped if it is not printable."""
    return file if file.isprintable() else ascii(file)


def ask(door: Door, resource: str, holder: str, *, scope: str | None = None) -> str | Hint:
    """Return the hint for a task of which nothing but an assignment to another is left.

    People are shown the deliberate takeover. Agents run what they read: they are not.
    """
    if door.for_agent:
        return Hint("next", {}, f"ask {holder}, or take another task")
    # Without a user.email there is nobody to take it over.
    if not door.ledger.actor.holder:
        return f"ask {holder} to release it"
    part: dict[str, object] = {} if scope in (None, WHOLE) else {"scope": scope}
    terms = {"resources": [resource], "takeover": True, "reason": "TEXT"} | part
    return Hint("claim", terms, f"ask {holder} to release it, or take it over")


def glance(seconds: int) -> str:
    """A time left, rounded to minutes from a minute on."""
    return humanize_duration((seconds + 30) // 60 * 60 if seconds >= 60 else seconds)
