"""Sentences about tasks: edited files, reasons, and the state of leases."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from gitlease import core, engine, runs, verbs
from gitlease.core.edge import EdgeEdit, People, Task, printable
from gitlease.core.errors import Hint
from gitlease.core.instant import MS, humanize_duration, moment_of
from gitlease.core.resources import WHOLE, fold
from gitlease.verbs import sentences

LONGEST_TITLE = 100  # of a title within a sentence
SHORT_ID = 7  # digits of a commit


# --- task files ---------------------------------------------------------------------------------


def edited(answer: engine.Answer) -> list[str]:
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
    deeds = []
    if edit.add is not None:
        deeds.append(("assigned", f" to {printable(edit.add)}"))
    if edit.status is not None:
        deeds.append(("set", f" to {printable(edit.status)}"))
    if edit.remove and edit.add is None:
        deeds.append(("unassigned", ""))
    said = [f"{v} {'it' if i else file}{rest}" for i, (v, rest) in enumerate(deeds)]
    return " and ".join(said) or f"changed {file}"


def settled(answer: engine.Answer) -> frozenset[str]:
    """Return the folded names of the tasks whose files were changed or committed."""
    return frozenset(w.change.resource.key for w in answer.written if w.changed or w.commit)


def unassigned(answer: engine.Answer, people: People) -> list[str]:
    """Return the former assignees, without those whose lease was displaced."""
    displaced = [view.holder for view in answer.displaced]
    return [
        printable(name)
        for name in answer.unassigned
        if not any(people.is_mine(name, holder) for holder in displaced)
    ]


# --- the queue ----------------------------------------------------------------------------------


def why_not(entry: engine.Entry, now: datetime) -> str:
    """Return why a task cannot be claimed, or that it is parked."""
    task, view = entry.task, entry.lease
    if entry.why_not is None:
        if view is None or not entry.parked:
            return ""
        return f"yours, {sentences.until(view, now, short=True)}"
    if entry.why_not is engine.WhyNot.DONE:
        return "done" if task.is_done or view is None else f"completed by {view.holder}"
    if entry.why_not is engine.WhyNot.STATUS:
        return f"status {printable(task.status.strip())} is not in tasks.statuses"
    if entry.why_not is engine.WhyNot.ELSEWHERE:
        return f"not in this checkout, but in {engine.place_of(task.ref)}"
    if entry.why_not is engine.WhyNot.WAITED_FOR:
        return f"left to {entry.who}, who waits for it"
    if entry.why_not is engine.WhyNot.FAILED and entry.setback:
        return setback(entry.setback, now)
    if entry.why_not is engine.WhyNot.ASSIGNED or view is None:
        return f"assigned to {entry.who}"
    if entry.why_not is engine.WhyNot.YOURS:
        return f"yours, live {sentences.until(view, now, short=True)}"
    part = sentences.where(view, asked=task.resource.text, short=True)
    return f"held by {view.holder}{part}{sentences.lasts(view, now, short=True)}"


def setback(found: core.Setback, now: datetime) -> str:
    """Return how often a task failed, when and by whom last, and who may take it when."""
    count, last = found.failures, found.last
    note = one_line(last.text.strip().partition("\n")[0])
    note = sentences.quoted(note if len(note) <= LONGEST_TITLE else f"{note[:LONGEST_TITLE]}…")
    times = {0: "", 1: "failed once", 2: "failed twice"}.get(count, f"failed {count} times")
    by = f"by {last.author} at {sentences.date_time(last.at, now)}"
    if found.free_at is None:
        why = "asked" if found.waits else f"{times}, last"
        return f"needs a person, {why} {by}{note}"
    until = sentences.clock_time(moment_of(found.free_at), now, round_up=True)
    return f"{times}, last {by}{note}; pools leave it alone until {until}"


def not_here(entries: Iterable[engine.Entry]) -> str:
    """Say how many of the tasks would be free if this checkout had them; "" for none."""
    count = sum(e.why_not is engine.WhyNot.ELSEWHERE for e in entries)
    many = "1 task is" if count == 1 else f"{count} tasks are"
    return f"{many} not in this checkout" if count else ""


def how(carry: engine.Carry, now: datetime) -> str:
    """Return the state of a carried task's lease."""
    if (view := carry.lease) is None:
        return "assigned, no lease"
    part = sentences.where(view, short=True)
    if carry.state in (engine.Carried.TAKEN_OVER, engine.Carried.THEIRS):
        how = "taken over" if carry.state is engine.Carried.TAKEN_OVER else "held"
        return f"{how} by {view.holder}{part}{sentences.lasts(view, now, short=True)}"
    if carry.state in (engine.Carried.LIVE, engine.Carried.PARKED):
        live = "live " if carry.state is engine.Carried.LIVE else ""
        return f"{live}{sentences.until(view, now)}{part}"
    at = sentences.clock_time(view.expires_at, now)
    return f"lapsed {humanize_duration(view.expires_in)} ago at {at}{part}"


def by_session(
    reading: engine.QueueReading, sessions: Collection[str]
) -> tuple[list[engine.Carry], list[core.LeaseView]]:
    """Divide what a person carries: their own work, and what other live sessions of theirs hold.

    ``sessions`` are the caller's own. A session may be alive while its lease or its process is.
    What others took is left out, as it stands among ``reading.taken``.
    """
    own, elsewhere = [], []
    taken = {fold(x.resource) for x in reading.taken}
    for carry in reading.carried:
        if carry.by is not None and fold(carry.resource) in taken:
            continue
        view = carry.lease
        another = view is not None and view.session is not None and view.session not in sessions
        another = another and carry.by is None
        if (
            view is not None
            and another
            and (carry.state is engine.Carried.LIVE or runs.is_process_alive(view))
        ):
            elsewhere.append(view)
        else:
            own.append(carry)
    return own, elsewhere


def held_elsewhere(view: core.LeaseView, now: datetime) -> str:
    """Return whose of a person's own sessions has a lease."""
    place = f", on {view.host}" if view.host else ""
    since = sentences.clock_time(view.claimed_at, now)
    if view.state == "active":
        ended = ": its process has ended" if runs.is_process_alive(view) is False else ""
        return f"held by your other session {view.session}{place}, since {since}{ended}"
    return f"lapsed, but your other session {view.session}{place} still runs, since {since}"


def was_taken(taken: engine.Taken, now: datetime | None = None) -> str:
    """Return a loss: resource, new holder, time and reason."""
    done = "claimed, after yours lapsed," if taken.lapsed else taken.what.replace("_", " ")
    scope = "" if taken.scope in ("", WHOLE) else f" (scope {taken.scope})"
    why, at = sentences.quoted(taken.reason), round(taken.at.timestamp() * MS)
    return f"{taken.resource}{scope} {done} by {taken.by} at {sentences.date_time(at, now)}{why}"


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


def ask(door: verbs.Door, resource: str, holder: str, *, scope: str | None = None) -> str | Hint:
    """Return the hint for a task of which nothing but an assignment to another is left.

    People are shown the deliberate takeover. Agents run what they read: they are not.
    """
    if door.for_agent:
        return Hint("next", {}, f"ask {holder}, or take another task")
    if not door.ledger.actor.holder:
        return f"ask {holder} to release it"
    part: dict[str, object] = {} if scope in (None, WHOLE) else {"scope": scope}
    terms = {"resources": [resource], "takeover": True, "reason": "TEXT"} | part
    return Hint("claim", terms, f"ask {holder} to release it, or take it over")
