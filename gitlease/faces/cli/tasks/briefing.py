"""``brief``: one page to start a session with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gitlease.engine.queue.order import Carried
from gitlease.faces import next_steps, sentences, task_text, wire
from gitlease.faces.cli import output
from gitlease.faces.cli.tasks.queue import in_layer, lease_of
from gitlease.faces.cli.verb import READING_EXITS, ref_option, verb

if TYPE_CHECKING:
    from datetime import datetime

    from gitlease.core.ledger import Note
    from gitlease.engine.answers import QueueReading
    from gitlease.engine.queue.order import Entry
    from gitlease.faces.cli.call import Call

NEXT = 5  # tasks that may come next
CARRIED, TAKEN, NOTES, HELD = 12, 6, 6, 4  # lines of a section; the rest are counted
LONGEST_NOTE = 300


@verb(
    "brief",
    """Show one page to start a session with: who you are, your tasks and leases, recent losses and
the reasons, notes for you, leases of others in the layers that this clone uses, and the next tasks.

First, your leases on tasks that are done on the remote's main branch are completed (see
landing.release in the settings), except with --cached.

Both people and agents should run this first.""",
    examples=("gitlease brief", "gitlease brief --json", "gitlease brief --ref origin/main"),
    exits=READING_EXITS,
    done="shown, even if there is nothing to report",
    cached=True,
)
@ref_option
def brief_verb(call: Call, *, ref: str | None, cached: bool) -> None:
    given = [] if ref is None else ["--ref", ref]
    call.cached = call.typed("brief", options=["--cached", *given])
    if not cached:
        call.end_landed()
    reading = call.queue.brief(ref=ref, cached=cached)
    call.warn_of_dead_hooks()
    body = {
        "holder": call.actor.holder,
        "session": call.actor.session,
        "carrying": wire.carried(reading),
        "taken": [wire.taken(t) for t in reading.taken],
        "notes": [wire.note(n) for n in reading.notes],
        "next_tasks": [wire.entry(e, reading.views) for e in reading.next_up[:NEXT]],
        "others": [wire.lease(view) for view in reading.others],
    }
    call.note_carried(
        v for c in reading.carried if c.state is Carried.LIVE and (v := lease_of(c, reading))
    )
    call.answer(
        body,
        warnings=reading.warnings,
        next_steps=next_steps.after_brief(call, reading),
        show=lambda: _show(call, reading),
    )


def _show(call: Call, reading: QueueReading) -> None:
    now, actor = call.now(), call.actor
    run = f"session {actor.session}" if actor.session else "no session"
    output.line(f"you are {actor.holder or output.NOBODY}, {run}")
    own, elsewhere = task_text.by_session(reading, [actor.session] if actor.session else [])
    carrying = [
        (
            c.resource,
            in_layer(call, v, task_text.how(c, v, now)),
            task_text.titled(c.task),
        )
        for c in own
        for v in [lease_of(c, reading)]
    ]
    _section("you carry", _aligned(carrying), CARRIED, otherwise="you carry nothing")
    others = [f"{call.named(x)}: {task_text.held_elsewhere(x, now)}" for x in elsewhere]
    _section("your other sessions", others, CARRIED)
    _section("taken from you", [task_text.was_taken(t, now) for t in reading.taken], TAKEN)
    _section("notes", [_noted(n, now) for n in reading.notes], NOTES)
    away = task_text.not_here(reading.entries)
    nothing = f"nothing to claim: {away}" if away else "nothing to claim"
    _section("next", _aligned(_next(e) for e in reading.next_up), NEXT, otherwise=nothing)
    held = [
        f"{call.named(x)}: {sentences.whose(x)}, {sentences.until(x, now)}" for x in reading.others
    ]
    _section("held by others", held, HELD)


def _section(title: str, lines: Sequence[str], limit: int, *, otherwise: str = "") -> None:
    if not lines and not otherwise:
        return
    output.line("")
    output.line(f"{title}:" if lines else otherwise)
    output.lines(f"  {text}" for text in lines[:limit])
    if len(lines) > limit:
        output.line(f"  and {len(lines) - limit} more")


def _aligned(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Align the first column; leave empty words out."""
    listed = list(rows)
    width = max((len(row[0]) for row in listed[:CARRIED]), default=0)
    return ["  ".join((row[0].ljust(width), *filter(None, row[1:]))) for row in listed]


def _next(entry: Entry) -> tuple[str, ...]:
    task = entry.task
    waiting = task_text.waiting(entry.waits_for)
    return (
        task.resource.text,
        task_text.one_line(task.priority),
        task_text.titled(task),
        f"({waiting})" if waiting else "",
    )


def _noted(note: Note, now: datetime) -> str:
    text = task_text.one_line(sentences.noted(note, now))
    if len(text) <= LONGEST_NOTE:
        return text
    return f"{text[:LONGEST_NOTE]}… (in full: show {note.resource})"
