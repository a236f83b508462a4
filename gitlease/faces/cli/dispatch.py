"""``dispatch``: what ``run`` does, in the background and with a log."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from gitlease.domain.errors import LeaseHeld, UsageError
from gitlease.faces import sentences
from gitlease.faces.cli import claiming, output
from gitlease.faces.cli.errands import (
    LENGTHS,
    SCOPE,
    Asked,
    errand_options,
)
from gitlease.faces.cli.output import Row
from gitlease.faces.cli.verb import LEASE_EXITS, WithCommand, flag

if TYPE_CHECKING:
    from gitlease.answers import Answer
    from gitlease.bootstrap import Workspace
    from gitlease.bootstrap_dispatch import RunsFolder
    from gitlease.domain.background import RunRecord
    from gitlease.faces.cli.call import Call

HEADINGS = ("RESOURCE", "STATE", "SINCE", "SESSION", "PID", "COMMAND", "LOG")
STYLES = {"running": "green", "lost": "red", "failed": "red", "killed": "red"}
SHOWN = 1_048_576  # bytes of a log in a JSON document: its end
MODES = ("--list", "--logs", "--stop")
NOT_NEXT = ("paths", "wait", "takeover", "reopen", "any", "scope")


@click.command(
    "dispatch",
    cls=WithCommand,
    help="""Start COMMAND in the background, while you hold each RESOURCE: what `run` does, with a
log. The lease is taken first; then it returns at once, and says the session, the process and the
log. What is taken already is refused and names whose it is, so that nothing is started twice.

The command has a session of its own unless you name one, no standard input, and no terminal. TERM
to its runner ends it in order: TERM, after the grace KILL, then the release. --next takes the first
task of the queue instead of a RESOURCE; the command finds in GITLEASE_RESOURCE which one that is.

--list shows the runs of this clone, --logs R prints what the newest run of R has printed, --stop R
ends the run of R and waits for that. Of runs that have ended, the last 50 are remembered, and the
last 16 MiB of their logs.""",
    advice=LENGTHS,
    examples=(
        "gitlease dispatch F001 -- ./agent.sh",
        "gitlease dispatch --next --ttl 30m -- ./agent.sh",
        "gitlease dispatch --list",
        "gitlease dispatch --logs F001 --follow",
        "gitlease dispatch --stop F001",
    ),
    exits=LEASE_EXITS,
    no=("held", "wait_timeout", "nothing_left"),
    done="it runs; for --stop: it has ended",
    scope=SCOPE,
)
@click.argument("words", metavar="[RESOURCE]...", nargs=-1)
@flag("--next", help="Take the first task of the queue.")
@flag("--list", help="Show the runs of this clone.")
@click.option("--logs", metavar="R", help="Print what the newest run of R has printed.")
@flag("--follow", help="With --logs: go on until the run has ended.")
@click.option("--stop", metavar="R", help="End the run of R.")
@errand_options
@click.pass_obj
def dispatch_verb(
    call: Call,
    /,
    *,
    command: tuple[str, ...],
    next: bool,
    list: bool,
    logs: str | None,
    follow: bool,
    stop: str | None,
    **options: Any,
) -> None:
    """Dispatch, or look after what was dispatched."""
    chosen = [
        name
        for name, given in zip(MODES, (list, logs is not None, stop is not None), strict=True)
        if given
    ]
    if follow and logs is None:
        raise UsageError("--follow goes with --logs")
    if follow and call.json:
        raise UsageError("--follow does not go with --json")
    if not chosen:
        _dispatch(call, command, options, from_queue=next)
        return
    if len(chosen) > 1 or next or command or any(options.values()):
        raise UsageError(f"{chosen[0]} goes with nothing else")
    if list:
        _list(call)
    elif logs is not None:
        _logs(call, logs, follow=follow)
    elif stop is not None:
        _stop(call, stop)


# --- starting -------------------------------------------------------------------------------------


def _dispatch(
    call: Call, command: tuple[str, ...], options: dict[str, Any], *, from_queue: bool
) -> None:
    from gitlease.bootstrap_dispatch import dispatch, in_its_own_session

    if from_queue and (options["words"] or any(options[name] for name in NOT_NEXT)):
        raise UsageError("--next takes what is first: it goes with --ttl, --reason and --commit")
    if not from_queue and not options["words"]:
        raise UsageError("name what it is to hold, or --next")
    asked, opener = Asked(call, "dispatch", command, options), call.opener

    def open_anew(directory: str, **given: Any) -> Workspace:
        return in_its_own_session(opener(directory, **given), call.session)

    call.opener = open_anew
    try:
        answer = asked.claim_next() if from_queue else asked.claim()
        record = dispatch(call.workspace, answer, asked.errand, say=_print)
    except LeaseHeld as held:
        held.hints = (*held.hints, *_where_it_runs(call, held))
        raise
    call.warnings += asked.remarks(answer)
    _answer(call, answer, record)


def _print(text: str) -> None:
    """A line of the log."""
    output.aside(f"gitlease: {text}")
    sys.stderr.flush()


def _where_it_runs(call: Call, held: LeaseHeld) -> list[str]:
    """How to look after the run in the background that has it, where it is one of this clone."""
    from gitlease.bootstrap_dispatch import runs_of
    from gitlease.dispatching import holder_run, run_that_has

    runs, sessions = runs_of(call.workspace), [view.session for view in held.views]
    record = next((r for s in sessions if (r := holder_run(runs, s))), None)
    if not sessions:  # what is one's own is refused by the run that has it, not by the ledger
        record = run_that_has(runs, held.resource, call.workspace.layer)
    if record is None:
        return []
    return [call.typed("dispatch", options=["--logs", record.resources[0]])]


def _answer(call: Call, answer: Answer, record: RunRecord) -> None:
    from gitlease.faces import wire

    name = record.resources[0]
    steps = {
        call.typed("dispatch", options=["--logs", name]): "what it prints",
        call.typed("dispatch", options=["--stop", name]): "end it",
    }
    body = wire.claimed(answer) | {
        "status": "dispatched",
        "run": wire.background(record, "running"),
    }
    call.answer(
        body,
        warnings=answer.warnings,
        views=answer.leases,
        next_steps=[*steps],
        hints=[f"{step}  # {use}" for step, use in steps.items()],
        show=lambda: _show(call, answer, record),
    )


def _show(call: Call, answer: Answer, record: RunRecord) -> None:
    claiming.show_claimed(call, answer)
    output.line(f"dispatched as process {record.runner}, session {record.session}")
    output.line(f"log: {record.log}")


# --- looking after it -----------------------------------------------------------------------------


def _list(call: Call) -> None:
    from gitlease.bootstrap_dispatch import runs_of
    from gitlease.dispatching import state_of
    from gitlease.faces import wire

    runs = runs_of(call.workspace)
    found = [(record, state_of(record, runs)) for record in runs.every()]
    rows = [_row(record, state, call.now()) for record, state in found]
    call.answer(
        {"runs": [wire.background(record, state) for record, state in found]},
        show=lambda: _table(rows),
    )


def _table(rows: Sequence[Row]) -> None:
    if not rows and output.on_terminal():
        output.line("nothing was dispatched in this clone")
    output.table(HEADINGS, rows)


def _row(record: RunRecord, state: str, now: datetime) -> Row:
    at = record.ended_at if record.ended_at is not None else record.began_at
    since = datetime.fromtimestamp(at / 1_000, UTC)
    said = state if record.exit is None else f"{state} ({record.exit})"
    said += f": {record.message}" if record.message else ""
    names, command = " ".join(record.resources), shlex.join(record.command)
    status = "" if record.exit is None else str(record.exit)
    return Row(
        cells=(
            *(names, said, sentences.clock_time(since, now), record.session),
            *(str(record.runner), command, record.log),
        ),
        fields=(
            *(names, state, status, sentences.rfc3339(since), record.session),
            *(str(record.runner), command, record.log, record.message or ""),
        ),
        style=STYLES.get(state, ""),
    )


def _logs(call: Call, word: str, *, follow: bool) -> None:
    from gitlease import bootstrap_dispatch
    from gitlease.dispatching import latest, state_of
    from gitlease.faces import wire

    runs = bootstrap_dispatch.runs_of(call.workspace)
    record = latest(runs, call.resource(word), call.workspace.layer)
    if call.json:
        text, cut = _end_of(runs, record)
        body = {"run": wire.background(record, state_of(record, runs)), "text": text, "cut": cut}
        call.answer(body, show=lambda: None)
        return
    if follow:
        bootstrap_dispatch.follow(runs, record, _write)
        return
    place = 0
    while part := runs.read(record, start=place):
        _write(part)
        place += len(part)


def _end_of(runs: RunsFolder, record: RunRecord) -> tuple[str, bool]:
    """The end of a log, and whether that is not all of it."""
    size = runs.size(record)
    place = max(0, size - SHOWN)
    parts, cut = [], place > 0
    while place < size and (part := runs.read(record, start=place)):
        parts.append(part)
        place += len(part)
    return b"".join(parts).decode("utf-8", "replace"), cut


def _write(part: bytes) -> None:
    """Bytes of a log as they are: a command's own output, which is its user's own."""
    sys.stdout.flush()
    sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


def _stop(call: Call, word: str) -> None:
    from gitlease.bootstrap_dispatch import runs_of, stop
    from gitlease.dispatching import RUNNING, STOPPED, running, state_of
    from gitlease.faces import wire

    runs = runs_of(call.workspace)
    record = running(runs, call.resource(word), call.workspace.layer)
    was_running = state_of(record, runs) == RUNNING
    record = stop(runs, record)
    state = state_of(record, runs)
    said = f"the run of session {record.session} "
    said += f"has ended: {state}" if was_running else f"had ended before: {state}"
    said += "" if record.exit is None else f", exit {record.exit}"
    status = "stopped" if was_running and state == STOPPED else "ended"
    call.answer(
        {"status": status, "run": wire.background(record, state)},
        show=lambda: output.line(said),
    )
