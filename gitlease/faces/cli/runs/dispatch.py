"""``dispatch``: ``run --detach``, and looking after what runs in the background."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from gitlease.core.errors import LeaseHeld, UsageError
from gitlease.core.frozen import replace
from gitlease.core.instant import moment_of
from gitlease.faces import next_steps, sentences
from gitlease.faces.cli import output
from gitlease.faces.cli.leases import claiming
from gitlease.faces.cli.output import Row
from gitlease.faces.cli.runs.request import LENGTHS, SCOPE, RunCall, log_line, run_options
from gitlease.faces.cli.verb import LEASE_EXITS, Verb, flag, option

if TYPE_CHECKING:
    from gitlease.engine.answers import Answer
    from gitlease.faces.cli.call import Call
    from gitlease.runs.runs import RunRecord, RunsFolder

HEADINGS = ("RESOURCE", "STATE", "SINCE", "SESSION", "PID", "COMMAND", "LOG")
STYLES = {"running": "green", "lost": "red", "failed": "red", "killed": "red"}
SHOWN = 1_048_576  # bytes of a log in a JSON document: its end
MODES = ("--list", "--logs", "--stop", "--prune")


@click.command(
    "dispatch",
    cls=Verb,
    help="""Start COMMAND in the background, while you hold each RESOURCE: `run --detach`, with a
log. The lease is taken first; then it returns at once, and says the session, the process and the
log. What is taken already is refused and names whose it is, so that nothing is started twice.

The command has a session of its own unless you name one, no standard input, and no terminal. TERM
to its runner ends it in order: TERM, after the grace KILL, then the release. --next takes the first
task of the queue instead of a RESOURCE; the command finds in GITLEASE_RESOURCE which one that is,
and in GITLEASE_BRIEF a file with the task, its paths, the notes on it and what to do.

--list shows the runs of this clone, --logs R prints what the newest run of R has printed, --stop R
ends the run of R and waits for that. Of runs that have ended, the last 50 are remembered, and the
last 16 MiB of their logs; --prune forgets them all, and removes their logs.""",
    advice=LENGTHS,
    examples=(
        "gitlease dispatch F001 -- ./agent.sh",
        "gitlease dispatch --next --ttl 30m -- ./agent.sh",
        "gitlease dispatch --list",
        "gitlease dispatch --logs F001 --follow",
        "gitlease dispatch --stop F001",
        "gitlease dispatch --prune",
    ),
    exits=LEASE_EXITS,
    no=("held", "wait_timeout", "nothing_left"),
    done="it runs; for --stop: it has ended",
    scope=SCOPE,
    with_command=True,
)
@flag("--list", help="Show the runs of this clone.")
@option("--logs", metavar="R", help="Print what the newest run of R has printed.")
@flag("--follow", help="With --logs: go on until the run has ended.")
@option("--stop", metavar="R", help="End the run of R.")
@flag("--prune", help="Forget the runs of this clone that have ended.")
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
    prune: bool,
    **options: Any,
) -> None:
    given = zip(MODES, (list, logs, stop, prune), strict=True)
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
    else:
        _prune(call)


# --- dispatching ----------------------------------------------------------------------------------


def run_detached(call: Call, command: tuple[str, ...], options: dict[str, Any]) -> None:
    """Claim, and leave the command to a process of its own."""
    from gitlease.runs.dispatch import dispatch
    from gitlease.runs.holding import in_a_run

    call.command = "dispatch"
    asked = RunCall(call, "dispatch", command, options)
    # A session of the environment is whoever's who dispatches, and may dispatch others as well.
    own = call.session is None
    call.open_as(lambda workspace: in_a_run(workspace, "dispatch", always=own))
    try:
        answer = asked.claim()
        record = dispatch(
            call.workspace,
            answer,
            replace(asked.request, brief=asked.brief(answer)),
            say=log_line,
            on_stop=lambda why: log_line(sentences.stopping(why)),
        )
    except LeaseHeld as held:
        held.hints = (*held.hints, *_where_it_runs(call, held))
        raise
    call.warnings += asked.remarks(answer)
    _answer(call, answer, record)


def _where_it_runs(call: Call, held: LeaseHeld) -> list[str]:
    """How to look after the run in the background that has it, where it is one of this clone."""
    from gitlease.runs.runs import runs_of

    runs, sessions = runs_of(call.workspace), [view.session for view in held.views]
    record = runs.in_the_way(sessions, held.resource, call.workspace.layer)
    if record is None:
        return []
    return [call.typed("dispatch", options=["--logs", record.resources[0]])]


def _answer(call: Call, answer: Answer, record: RunRecord) -> None:
    from gitlease.faces import wire

    body = wire.claimed(answer) | {
        "status": "dispatched",
        "run": wire.background(record, "running"),
    }
    call.answer_verb(
        answer,
        body,
        next_steps=next_steps.after_dispatch(call, record.resources[0]),
        show=lambda: _show(call, answer, record),
    )


def _show(call: Call, answer: Answer, record: RunRecord) -> None:
    claiming.show_claimed(call, answer)
    output.line(f"dispatched as process {record.runner}, session {record.session}")
    output.line(f"log: {record.log}")


# --- looking after it -----------------------------------------------------------------------------


def _list(call: Call) -> None:
    from gitlease.faces import wire
    from gitlease.runs.runs import runs_of

    runs = runs_of(call.workspace)
    found = [(record, runs.state_of(record)) for record in runs.every()]
    rows = [_row(record, state, call.now()) for record, state in found]
    call.answer(
        {"runs": [wire.background(record, state) for record, state in found]},
        show=lambda: output.table(HEADINGS, rows, otherwise="no background runs in this clone"),
    )


def _prune(call: Call) -> None:
    from gitlease.runs.runs import runs_of

    count = runs_of(call.workspace).prune()
    said = f"forgot {count} ended run{'' if count == 1 else 's'}"
    call.answer({"status": "pruned", "count": count}, show=lambda: output.line(said))


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
    from gitlease.runs.dispatch import follow as follow_log
    from gitlease.runs.runs import runs_of

    runs = runs_of(call.workspace)
    record = runs.latest(call.resource(word), call.workspace.layer)
    if call.json:
        text, cut = _end_of(runs, record)
        body = {"run": wire.background(record, runs.state_of(record)), "text": text, "cut": cut}
        call.answer(body, show=lambda: None)
        return
    if follow:
        follow_log(runs, record, _write)
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
    from gitlease.runs.dispatch import stop
    from gitlease.runs.runs import runs_of

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
