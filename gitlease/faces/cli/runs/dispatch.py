"""``dispatch``: ``run --detach``, and the management of background runs."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gitlease.core.errors import LeaseHeld, UsageError
from gitlease.core.frozen import replace
from gitlease.core.instant import moment_of
from gitlease.faces import sentences, wire
from gitlease.faces.cli import claiming, output, refusals
from gitlease.faces.cli.output import Row
from gitlease.faces.cli.runs.request import LENGTHS, RunCall, log_line, run_options
from gitlease.faces.cli.verb import LEASE_EXITS, flag, option, verb

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call
    from gitlease.runs.records import RunRecord

HEADINGS = ("RESOURCE", "STATE", "SINCE", "SESSION", "PID", "COMMAND", "LOG")
STYLES = {"running": "green", "lost": "red", "failed": "red", "killed": "red"}
SHOWN = 1_048_576  # bytes of a log in a JSON document, from its end
MODES = ("--list", "--logs", "--stop")


@verb(
    "dispatch",
    """Run COMMAND in the background while you hold each RESOURCE. The same as `run --detach`.

The leases are claimed first. Then dispatch returns at once, and prints the session, the process and
the log file. A resource that someone else holds is refused, so nothing is started twice.

The command has its own session unless you name one, no standard input and no terminal. TERM to its
runner stops it in order: TERM to the command, KILL after the grace period, then the release. --next
takes the first task of the queue instead of a RESOURCE. The command finds its task in
GITLEASE_RESOURCE, and in GITLEASE_BRIEF the name of a file with the task, its paths, notes and
instructions.

--list shows the runs of this clone. --logs R prints the log of the newest run of R. --stop R stops
the run of R and waits until it has ended. The last 50 ended runs are kept, with up to 16 MiB of
logs.""",
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
    done="the command runs; for --stop: it has ended",
    scope=claiming.SCOPE,
    with_command=True,
)
@flag("--list", help="Show the runs of this clone.")
@option("--logs", metavar="R", help="Print the log of the newest run of R.")
@flag("--follow", help="With --logs: continue until the run has ended.")
@option("--stop", metavar="R", help="Stop the run of R.")
@run_options
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
    given = zip(MODES, (list, logs, stop), strict=True)
    chosen = [name for name, value in given if value not in (None, False)]
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


# --- dispatching ----------------------------------------------------------------------------------


def run_detached(call: Call, command: tuple[str, ...], options: dict[str, Any]) -> None:
    """Claim, and start the command in a process of its own."""
    from gitlease.runs.heartbeat import in_a_run
    from gitlease.runs.leased_command import dispatch

    call.command = "dispatch"
    run = RunCall(call, "dispatch", command, options)
    # A session from the environment is the caller's, who may dispatch several runs.
    own = call.session is None
    call.open_as(lambda workspace: in_a_run(workspace, "dispatch", always=own))
    try:
        answer = run.claim()
        record = dispatch(
            call.workspace,
            answer,
            replace(run.request, brief=run.brief(answer)),
            say=log_line,
            on_stop=lambda why: log_line(sentences.stopping(why)),
        )
    except LeaseHeld as held:
        held.hints = (*held.hints, *_logs_of_holder(call, held))
        raise
    call.warnings += run.remarks(answer)

    def show() -> None:
        claiming.show_claimed(call, answer)
        output.line(f"dispatched as process {record.runner}, session {record.session}")
        output.line(f"log: {record.log}")

    call.answer_verb(
        answer,
        wire.claimed(answer) | {"status": "dispatched", "run": wire.background(record, "running")},
        next_steps=refusals.after_dispatch(call, record.resources[0]),
        show=show,
    )


def _logs_of_holder(call: Call, held: LeaseHeld) -> list[str]:
    from gitlease.runs.records import runs_of

    runs, sessions = runs_of(call.workspace), [view.session for view in held.views]
    record = runs.in_the_way(sessions, held.resource, call.workspace.layer)
    if record is None:
        return []
    return [call.typed("dispatch", options=["--logs", record.resources[0]])]


# --- managing runs --------------------------------------------------------------------------------


def _list(call: Call) -> None:
    from gitlease.runs.records import runs_of

    runs = runs_of(call.workspace)
    found = [(record, runs.state_of(record)) for record in runs.every()]
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
    names = " ".join(record.resources)
    tail = (record.session, str(record.runner), shlex.join(record.command), record.log)
    return Row(
        cells=(names, said, sentences.clock_time(since, now), *tail),
        style=STYLES.get(state, ""),
    )


def _logs(call: Call, word: str, *, follow: bool) -> None:
    from gitlease.runs.leased_command import follow as follow_log
    from gitlease.runs.records import runs_of

    runs = runs_of(call.workspace)
    record = runs.latest(call.resource(word), call.workspace.layer)
    if call.json:
        text, cut = runs.end_of(record, SHOWN)
        run = wire.background(record, runs.state_of(record))
        body = {"run": run, "text": text.decode("utf-8", "replace"), "cut": cut}
        call.answer(body, show=lambda: None)
    elif follow:
        follow_log(runs, record, _write)
    else:
        for part in runs.parts(record):
            _write(part)


def _write(part: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


def _stop(call: Call, word: str) -> None:
    from gitlease.runs.leased_command import stop
    from gitlease.runs.records import runs_of

    runs = runs_of(call.workspace)
    record = runs.latest(call.resource(word), call.workspace.layer, running=True)
    was_running = runs.state_of(record) == "running"
    record = stop(runs, record)
    state = runs.state_of(record)
    said = f"the run of session {record.session} "
    said += f"has ended: {state}" if was_running else f"had ended before: {state}"
    said += "" if record.exit is None else f", exit {record.exit}"
    status = "stopped" if was_running and state == "stopped" else "ended"
    call.answer(
        {"status": status, "run": wire.background(record, state)},
        show=lambda: output.line(said),
    )
