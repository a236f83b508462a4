"""The verbs about tasks: ``queue``, ``next``, ``brief``, ``set``; and ``show``, of any resource."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gitlease.core.resources.resource import WHOLE, scopes_overlap
from gitlease.engine.queue import Carried, WhyNot
from gitlease.faces.cli import output, refusals
from gitlease.faces.cli.output import Row
from gitlease.faces.cli.verb import flag, ref_option, resource_argument, verb
from gitlease.verbs import sentences, task_text, wire
from gitlease.verbs.reading import NOBODY, whose
from gitlease.verbs.table import READING_EXITS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from gitlease.core.edge import Task
    from gitlease.core.lease import Actor
    from gitlease.core.ledger import Note, Ticket
    from gitlease.core.resources.resource import Resource
    from gitlease.core.view import LeaseView
    from gitlease.engine.answers import FoundTask, QueueReading
    from gitlease.engine.queue import Carry, Entry
    from gitlease.faces.cli.call import Call

HEADINGS = ("TASK", "PRIORITY", "STATUS", "ASSIGNED", "TITLE", "WAITS FOR", "WHY NOT")
OWN_HEADINGS = ("TASK", "LEASE", "PRIORITY", "STATUS", "TITLE", "WAITS FOR")
STYLES = {WhyNot.YOURS: "green", WhyNot.HELD: "yellow", WhyNot.ASSIGNED: "yellow", None: ""}
OWN_STYLES = {Carried.LIVE: "green", Carried.PARKED: "cyan", Carried.TAKEN_OVER: "yellow"}


@verb(
    "queue",
    """List the tasks that you may claim, best first: your parked ones, then by priority, then those
whose dependencies are done, then the oldest.

--all includes the others, each with the reason why you may not claim it. --mine lists what you
carry instead, in any state (--all adds nothing): the tasks assigned to you and your leases, each
with the state of its lease: live, parked, lapsed, taken over, theirs (held by someone who is also
assigned, or came after you), or none. Parked ones come first, leases in other layers last.""",
    examples=(
        "gitlease queue",
        "gitlease queue --all                  # include held, assigned and done tasks",
        "gitlease queue --mine                 # your tasks and leases",
        "gitlease queue --ref origin/main      # the task files of that branch",
    ),
    exits=READING_EXITS,
    done="listed, even if there is nothing to claim",
    cached=True,
)
@flag("--mine", help="List your tasks and leases.")
@flag("--all", help="Include tasks that you may not claim, with the reason.")
@ref_option
def queue_verb(call: Call, *, mine: bool, all: bool, ref: str | None, cached: bool) -> None:
    switches = [name for name, given in (("--mine", mine), ("--all", all)) if given]
    call.cached = partial(call.typed, "queue", options=["--cached", *switches, *_from(ref)])
    call.anonymous = not mine
    read = call.queue.mine if mine else call.queue.queue
    reading, now = read(ref=ref, cached=cached), call.now()
    if mine:
        waits = open_dependencies(reading)
        tasks = wire.carried(reading)
        rows = [_own_row(call, c, reading, waits, now) for c in reading.carried]
        headings: Sequence[str] = OWN_HEADINGS
        nothing = "you carry nothing"
    else:
        shown = [e for e in reading.entries if all or e.claimable]
        tasks = [wire.entry(e, reading.views) for e in shown] if call.json else []
        rows = [] if call.json else [_row(e, reading, now) for e in shown]
        headings, nothing = HEADINGS, "there are no tasks" if all else "nothing to claim"
    steps, headed = ({}, []) if mine or reading.entries else _without_tasks(call)
    if not (mine or all) and (away := task_text.not_here(reading.entries)):
        headed = [away]
        steps = {call.typed("queue", options=["--all", *_from(ref)]): "show where they are"}
    call.answer(
        {"tasks": tasks},
        warnings=[*reading.warnings, *headed],
        next_steps=steps,
        show=lambda: output.table(headings, rows, otherwise=nothing),
    )


def _without_tasks(call: Call) -> tuple[dict[str, str], list[str]]:
    """Return what helps if there are no tasks: init, if it has a proposal, and a warning."""
    from gitlease.wiring.workspace import proposed_settings

    proposed = proposed_settings(call.workspace, ())
    if proposed is None:
        return {}, []
    steps = {call.typed("init"): "see settings that fit the files here"} if proposed.fits else {}
    return steps, task_text.headed(proposed.headed)


def _from(ref: str | None) -> list[str]:
    return [] if ref is None else ["--ref", ref]


def lease_of(found: Entry | Carry, reading: QueueReading) -> LeaseView | None:
    """Return the lease of a task, from the caller's point of view."""
    return None if found.lease is None else reading.views[found.lease.lease_id]


def open_dependencies(reading: QueueReading) -> dict[str, tuple[str, ...]]:
    """Return the open dependencies of each task, by its folded name."""
    return {e.task.resource.key: e.waits_for for e in reading.entries}


def _row(entry: Entry, reading: QueueReading, now: datetime) -> Row:
    view = lease_of(entry, reading)
    status, priority, assigned, waits_for, title = _columns(entry.task, entry.waits_for)
    name = entry.task.resource.text
    in_words = task_text.why_not(entry, view, now)
    return Row(
        cells=(name, priority, status, assigned, title, waits_for, in_words),
        style=STYLES.get(entry.why_not, "dim"),
    )


def in_layer(call: Call, view: LeaseView | None, text: str) -> str:
    """Append the layer of a lease unless it is the one of this command."""
    other = view is not None and view.layer != call.workspace.layer
    return f"{text}, in layer {view.layer}" if view is not None and other else text


def _own_row(
    call: Call,
    found: Carry,
    reading: QueueReading,
    waits: Mapping[str, Sequence[str]],
    now: datetime,
) -> Row:
    view = lease_of(found, reading)
    waits_for = waits.get(found.task.resource.key, ()) if found.task else ()
    status, priority, _, open_still, title = _columns(found.task, waits_for)
    how = in_layer(call, view, task_text.how(found, view, now))
    return Row(
        cells=(found.resource, how, priority, status, title, open_still),
        style=OWN_STYLES.get(found.state, ""),
    )


def _columns(task: Task | None, waits_for: Sequence[str]) -> tuple[str, ...]:
    if task is None:
        return ("",) * 5
    return (
        task_text.one_line(task.status),
        task_text.one_line(task.priority),
        task_text.listed(task.everyone),
        task_text.listed(waits_for),
        task_text.one_line(task.title),
    )


NEXT = 5  # tasks that may come next
CARRIED, TAKEN, NOTES, HELD = 12, 6, 6, 4  # lines of a section; the rest are counted
LONGEST_NOTE = 300


@verb(
    "brief",
    """Show one page to start a session with: who you are, your tasks and leases, recent losses and
the reasons, notes for you, leases of others in the layers that this clone uses, and the next tasks.

Your leases on tasks that are done on the remote's main branch are completed first (see
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
    call.cached = partial(call.typed, "brief", options=["--cached", *given])
    reading = call.queue.brief(ref=ref, cached=cached)
    call.warnings += call.dead_hooks()
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
        next_steps=refusals.after_brief(call, reading),
        show=lambda: _show(call, reading),
    )


def _show(call: Call, reading: QueueReading) -> None:
    now, actor = call.now(), call.actor
    run = f"session {actor.session}" if actor.session else "no session"
    output.line(f"you are {actor.holder or NOBODY}, {run}")
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


ENDED_SHOWN = 3  # lines for people; JSON has all of them


@verb(
    "show",
    """Show one resource: its holder, where, until when and why, its notes, who waits for it, and
which of its leases were released or revoked lately.

For a task, this includes the title, status and assignees from its task file. It also succeeds if
the resource is free: read the output, or the state in the JSON.""",
    examples=(
        "gitlease show F001",
        "gitlease show F001 --ref main         # the task file on main",
        "gitlease show src/auth/ --json",
    ),
    exits=READING_EXITS,
    done="shown, even if it is free",
    scope="Only leases that overlap this scope.",
    cached=True,
)
@resource_argument
@ref_option
def show_verb(call: Call, *, word: str, ref: str | None, scope: str | None, cached: bool) -> None:
    from gitlease.engine.reading import read_leases

    part = WHOLE if scope is None else scope
    resource = call.resource(word)
    chosen = (("--ref", ref), ("--scope", scope))
    given = [word for name, value in chosen if value is not None for word in (name, value)]
    call.cached = partial(call.typed, "show", resource, options=["--cached", *given])
    reading = read_leases(call.ledger, resource=resource, ended=True, cached=cached)
    found = call.queue.find(resource, ref=ref)
    views = [view for view in reading.leases if scopes_overlap(view.scope, part)]
    tickets = [ticket for ticket in reading.waiting if scopes_overlap(ticket.scope, part)]
    ended = [one for one in reading.ended if scopes_overlap(one.scope, part)]
    entry = found.entry
    alone = entry is not None and entry.why_not is WhyNot.ASSIGNED  # nothing but the edge is left
    who = entry.who if entry is not None and alone else None
    hints = refusals.assigned(call, resource.text, who, scope=scope) if who is not None else ()
    body = {
        "leases": [wire.lease(view) for view in views],
        "task": wire.task(entry.task, waits_for=entry.waits_for) if entry else None,
        "notes": [wire.note(note) for note in reading.notes],
        "waiting": wire.waiting(tickets),
        "ended": [wire.ended_lease(one) for one in ended],
    }

    def show() -> None:
        _show_resource(call, found, views)
        if not views:
            output.line(_unleased(resource, part, found, tickets, call.now()))
            if (
                entry is None
                and not (reading.leases or reading.notes)
                and call.needs_any(resource.text)
            ):
                output.line("no task file and no record has this name")
        output.lines(f"hint: {hint}" for hint in hints)
        output.lines(sentences.noted(note, call.now()) for note in reading.notes)
        for place, ticket in enumerate(tickets, start=1):
            output.line(sentences.in_line(place, ticket, call.now()))
        output.lines(sentences.ended(one, call.now()) for one in ended[:ENDED_SHOWN])

    call.answer(body, warnings=(*reading.warnings, *found.warnings), views=views, show=show)


def _show_resource(call: Call, found: FoundTask, views: Sequence[LeaseView]) -> None:
    entry = found.entry
    task = task_text.facts(entry.task, entry.waits_for) if entry else []
    blocks = [_facts(view, call.actor, call.now()) for view in views]
    output.facts([*task, *blocks[0]] if blocks else task)
    for block in blocks[1:]:
        output.facts(block)


def _unleased(
    resource: Resource, scope: str, found: FoundTask, tickets: Sequence[Ticket], now: datetime
) -> str:
    entry, view = found.entry, found.view
    name = entry.task.resource if entry else resource
    elsewhere = view and view.resource == str(name) and not scopes_overlap(view.scope, scope)
    if entry is None or elsewhere or entry.why_not is None:
        return sentences.unleased(str(name), tickets)
    return f"{name} has no lease: {task_text.why_not(entry, view, now)}"


def _facts(view: LeaseView, actor: Actor, now: datetime) -> list[tuple[str, str]]:
    return [
        ("resource", view.resource),
        ("scope", view.scope),
        ("state", view.state),
        ("holder", view.holder),
        ("whose", whose(view, actor)),
        ("session", view.session or ""),
        ("host", view.host or ""),
        ("branch", view.branch or ""),
        ("work tree", view.worktree or ""),
        ("reason", view.reason or ""),
        ("paths", " ".join(view.paths)),
        ("token", str(view.token)),
        ("lease_id", view.lease_id),
        ("claimed_at", wire.seconds(view.claimed_at)),
        ("time", sentences.until(view, now) + sentences.afterwards(view, now)),
    ]
