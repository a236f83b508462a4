"""``dispatch``: ``run --detach``, and looking after what runs in the background."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from gitlease.core.errors import UsageError
from gitlease.core.instant import moment_of
from gitlease.faces import sentences
from gitlease.faces.cli import output
from gitlease.faces.cli.output import Row
from gitlease.faces.cli.runs.detach import run_detached
from gitlease.faces.cli.runs.request import LENGTHS, SCOPE, run_options
from gitlease.faces.cli.verb import LEASE_EXITS, Verb, flag

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call
    from gitlease.runs.runs import RunRecord, RunsFolder

HEADINGS = ("RESOURCE", "STATE", "SINCE", "SESSION", "PID", "COMMAND", "LOG")
STYLES = {"running": "green", "lost": "red", "failed": "red", "killed": "red"}
SHOWN = 1_048_576  # bytes of a log in a JSON document: its end
MODES = ("--list", "--logs", "--stop")


@click.command(
    "dispatch",
    cls=Verb,
    help="""Start COMMAND in the background, while you hold each RESOURCE: `run --detach`, with a
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
    with_command=True,
)
@flag("--list", help="Show the runs of this clone.")
@click.option("--logs", metavar="R", help="Print what the newest run of R has printed.")
@flag("--follow", help="With --logs: go on until the run has ended.")
@click.option("--stop", metavar="R", help="End the run of R.")
@run_options
@click.pass_obj
def dispatch_verb(
    call: Call,
    /,
    *,
    command: tuple[str, ...],
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
        raise UsageError("--follow needs --logs")
    if follow and call.json:
        raise UsageError("--follow cannot be combined with --json")
    if not chosen:
        run_detached(call, command, options)
        return
    if len(chosen) > 1 or command or any(options.values()):
        raise UsageError(f"{chosen[0]} cannot be combined with anything else")
    if list:
        _list(call)
    elif logs is not None:
        _logs(call, logs, follow=follow)
    elif stop is not None:
        _stop(call, stop)


# --- looking after it -----------------------------------------------------------------------------


def _list(call: Call) -> None:
    from gitlease.faces import wire
    from gitlease.runs.dispatching import state_of
    from gitlease.wiring.dispatch import runs_of

    runs = runs_of(call.workspace)
    found = [(record, state_of(record, runs)) for record in runs.every()]
    rows = [_row(record, state, call.now()) for record, state in found]
    call.answer(
        {"runs": [wire.background(record, state) for record, state in found]},
        show=lambda: output.table(HEADINGS, rows, otherwise="no background runs in this clone"),
    )


def _row(record: RunRecord, state: str, now: datetime) -> Row:
    at = record.ended_at if record.ended_at is not None else record.began_at
    since = moment_of(at)
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
    from gitlease.faces import wire
    from gitlease.runs.dispatching import latest, state_of
    from gitlease.wiring import dispatch as bootstrap_dispatch

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
    for part in runs.parts(record):
        _write(part)


def _end_of(runs: RunsFolder, record: RunRecord) -> tuple[str, bool]:
    """The end of a log, and whether that is not all of it."""
    place = max(0, runs.size(record) - SHOWN)
    return b"".join(runs.parts(record, start=place)).decode("utf-8", "replace"), place > 0


def _write(part: bytes) -> None:
    """Bytes of a log as they are: a command's own output, which is its user's own."""
    sys.stdout.flush()
    sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


def _stop(call: Call, word: str) -> None:
    from gitlease.faces import wire
    from gitlease.runs.dispatching import RUNNING, STOPPED, latest, state_of
    from gitlease.wiring.dispatch import runs_of, stop

    runs = runs_of(call.workspace)
    record = latest(runs, call.resource(word), call.workspace.layer, running=True)
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
