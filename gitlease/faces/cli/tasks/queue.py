"""``queue`` and ``next``: the tasks to do, and the first of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import UsageError
from gitlease.engine.queue.order import Carried, WhyNot
from gitlease.faces import next_steps, task_text, wire
from gitlease.faces.cli import output
from gitlease.faces.cli.leases import claiming
from gitlease.faces.cli.output import Row
from gitlease.faces.cli.verb import LEASE_EXITS, READING_EXITS, flag, ref_option, verb

if TYPE_CHECKING:
    from datetime import datetime

    from gitlease.core.edge import Task
    from gitlease.core.view import LeaseView
    from gitlease.engine.answers import QueueReading
    from gitlease.engine.queue.order import Carry, Entry
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
    call.cached = call.typed("queue", options=["--cached", *switches, *_from(ref)])
    call.anonymous = not mine
    if not cached:
        call.end_landed()
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

    proposed = proposed_settings(call.workspace)
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


@verb(
    "next",
    """Show the next task: a parked one of yours, or else the first that you may claim and that
waits for no other task.

--claim claims it at once. However many workers ask at the same moment, each gets a different task.
Tasks that someone else takes first, and those you already hold, are skipped. A parked task is
resumed by only one of your sessions.""",
    examples=(
        "gitlease next",
        "gitlease next --claim --ttl 30m",
        "gitlease next --ref origin/main       # the task files of that branch",
    ),
    exits=LEASE_EXITS,
    no=("nothing_left",),
    done="there is a task; with --claim, you hold it",
    cached=True,
)
@flag("--claim", help="Claim the task.")
@claiming.ttl_option
@claiming.reason_option
@claiming.commit_option
@ref_option
def next_verb(
    call: Call,
    *,
    claim: bool,
    ttl: int | None,
    reason: str | None,
    commit: bool | None,
    ref: str | None,
    cached: bool,
) -> None:
    call.anonymous = not claim
    if claim:
        if ref is not None:
            raise UsageError("--claim changes the work tree: it cannot be combined with --ref")
        if cached:
            raise UsageError("a claim needs the remote: --claim cannot be combined with --cached")
        _claim_next(call, claiming.ClaimRequest(ttl=ttl, reason=reason, commit=commit))
        return
    for name, given in (("--ttl", ttl), ("--reason", reason), ("--commit", commit)):
        if given is not None:
            raise UsageError(f"{name} needs --claim")
    _show_next(call, ref, cached)


def _show_next(call: Call, ref: str | None, cached: bool) -> None:
    call.cached = call.typed("next", options=["--cached", *_from(ref)])
    known = ["--cached"] if cached else []
    call.whole_queue = call.typed("queue", options=["--all", *_from(ref), *known])
    reading = call.queue.next_task(ref=ref, cached=cached)
    entry = reading.next_up[0]
    facts = task_text.facts(entry.task, entry.waits_for)
    name, view = entry.task.resource.text, lease_of(entry, reading)
    part = []
    if entry.parked and view is not None:
        facts.append(("lease", task_text.why_not(entry, view, call.now())))
        part = next_steps.scoped(view.scope)
    call.answer(
        {"task": wire.entry(entry, reading.views)},
        warnings=reading.warnings,
        next_steps=[call.typed("claim", name, options=part)] if call.may_claim else (),
        show=lambda: output.facts([("task", name), *facts]),
    )


def _claim_next(call: Call, request: claiming.ClaimRequest) -> None:
    answer, picked = call.queue.claim_next(request.options())
    entry = call.queue.find(picked.resource).entry  # the claim edited the task file
    task, waits_for = (entry.task, entry.waits_for) if entry else (picked, ())
    said = (task_text.titled(task), f"in {task_text.path(task.file)}")
    waiting = task_text.waiting(waits_for)
    claiming.answer_claim(
        call,
        answer,
        scope=None,
        more={"task": wire.task(task, waits_for=waits_for)},
        also=[", ".join(text for text in (*said, waiting) if text)],
    )
