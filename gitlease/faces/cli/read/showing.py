"""``show``: one resource, from the ledger and its task file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitlease.core.resources.resource import WHOLE, scopes_overlap
from gitlease.engine.queue.order import WhyNot
from gitlease.faces import next_steps, sentences, task_text, wire
from gitlease.faces.cli import output
from gitlease.faces.cli.read.reading import whose
from gitlease.faces.cli.verb import READING_EXITS, ref_option, resource_argument, verb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from gitlease.core.lease import Actor
    from gitlease.core.ledger import Ticket
    from gitlease.core.resources.resource import Resource
    from gitlease.core.view import LeaseView
    from gitlease.engine.answers import FoundTask
    from gitlease.faces.cli.call import Call

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
    call.cached = call.typed("show", resource, options=["--cached", *given])
    reading = read_leases(call.ledger, resource=resource, ended=True, cached=cached)
    found = call.queue.find(resource, ref=ref)
    views = [view for view in reading.leases if scopes_overlap(view.scope, part)]
    tickets = [ticket for ticket in reading.waiting if scopes_overlap(ticket.scope, part)]
    ended = [one for one in reading.ended if scopes_overlap(one.scope, part)]
    entry = found.entry
    alone = entry is not None and entry.why_not is WhyNot.ASSIGNED  # nothing but the edge is left
    who = entry.who if entry is not None and alone else None
    hints = next_steps.assigned(call, resource.text, who, scope=scope) if who is not None else ()
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
