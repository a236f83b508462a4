"""``run``, ``dispatch`` and ``work`` as commands: exits, background runs, and a pool's progress."""

from __future__ import annotations

import contextlib
import gc
import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from click import Option

from gitlease.cli import output
from gitlease.cli.app import command, result_of
from gitlease.cli.call import Call
from gitlease.kernel.ledger.heartbeat import in_a_run
from gitlease.kernel.rules.errors import UsageError, clean
from gitlease.kernel.rules.instant import humanize_duration, moment_of
from gitlease.runs.pool import ENOUGH, Job, PoolEvent, PoolRan
from gitlease.runs.records import DONE, FAILED, KILLED, LOST, RUNNING, WAITING, RunRecord, runs_of
from gitlease.runs.verbs import OUTCOMES, age, document
from gitlease.verbs import sentences, wire
from gitlease.verbs.table import DeclaredVerb, Result, Table, find_verb

if TYPE_CHECKING:
    from rich.text import Text

HEADINGS = ("RESOURCE", "STATE", "SINCE", "SESSION", "PID", "COMMAND", "LOG")
STYLES = {"running": "green", "lost": "red", "failed": "red", "killed": "red", "waiting": "yellow"}
SHOWN = 1_048_576  # bytes of a log in a JSON document, from its end
MODES = ("--list", "--logs", "--stop")


def _run(declared: DeclaredVerb, call: Call, *, detach: bool, **given: Any) -> int:
    if detach:
        return _started(find_verb("dispatch"), call, given)
    # The program starts without the collector of garbage; this may last for hours.
    gc.enable()
    result = _carried_out(declared, call, given)
    status: int = result.value.ended.exit
    if call.json:
        warnings = [*dict.fromkeys((*call.warnings, *result.warnings))]
        document = wire.success("run", body=result.body, warnings=warnings)
        if (failure := result.failure) is not None:
            body = {**result.body, "warnings": warnings, "next": []}
            document = wire.failure("run", failure, now=call.now(), body=body)
            document["error"]["exit"] = status
        with contextlib.suppress(OSError, ValueError):
            output.last_line(document)
    return status


def _carried_out(declared: DeclaredVerb, call: Call, given: dict[str, Any]) -> Result:
    """Carry out a verb that runs a command, in a session of its own."""
    if not given["command"]:
        example = call.typed(declared.name, *(given["resources"] or ["F8"]))
        raise UsageError(f"missing command: {example} -- make test")
    # A session from the environment is the caller's, who may dispatch several runs.
    is_apart = declared.name == "dispatch" and call.session is None
    call.open_as(lambda workspace: in_a_run(workspace, declared.name, always=is_apart))
    return result_of(declared, call, given)


def _dispatch(
    declared: DeclaredVerb,
    call: Call,
    *,
    list: bool,
    logs: str | None,
    follow: bool,
    stop: str | None,
    **given: Any,
) -> int | None:
    modes = zip(MODES, (list, logs, stop), strict=True)
    chosen = [name for name, value in modes if value not in (None, False)]
    if follow and logs is None:
        raise UsageError("--follow needs --logs")
    if follow and call.json:
        raise UsageError("--follow cannot be combined with --json")
    if not chosen:
        return _started(declared, call, given)
    if len(chosen) > 1 or any(given.values()):
        raise UsageError(f"{chosen[0]} cannot be combined with anything else")
    if list:
        _list(call)
    elif logs is not None:
        _logs(call, logs, follow=follow)
    elif stop is not None:
        _stop(call, stop)
    return None


def _started(declared: DeclaredVerb, call: Call, given: dict[str, Any]) -> int:
    call.command = declared.name
    return call.respond(_carried_out(declared, call, given))


# --- managing runs --------------------------------------------------------------------------------


def _list(call: Call) -> None:
    runs, now = runs_of(call.workspace), call.now()
    known = [(record, runs.state_of(record)) for record in runs.background()]
    table = Table(
        headings=HEADINGS,
        rows=[_row(record, state, now) for record, state in known],
        styles=[STYLES.get(state, "") for _, state in known],
        otherwise="no background runs in this clone",
    )
    body = {"runs": [wire.background(record, state) for record, state in known]}
    call.respond(Result(body=body, lines=lambda: [table]))


def _row(record: RunRecord, state: str, now: datetime) -> tuple[str, ...]:
    at = record.ended_at if record.ended_at is not None else record.began_at
    outcome = state if record.exit is None else f"{state} ({record.exit})"
    outcome += f": {record.message}" if record.message else ""
    head = (" ".join(record.resources), outcome, sentences.clock_time(moment_of(at), now))
    tail = (record.session, str(record.runner), shlex.join(record.command), record.log)
    return (*head, *tail)


def _logs(call: Call, word: str, *, follow: bool) -> None:
    runs = runs_of(call.workspace)
    record = runs.latest(call.resource(word), call.workspace.layer)
    if call.json:
        text, cut = runs.end_of(record, SHOWN)
        run = wire.background(record, runs.state_of(record))
        body = {"run": run, "text": text.decode("utf-8", "replace"), "cut": cut}
        call.respond(Result(body=body))
    elif follow:
        runs.follow(record, _write)
    else:
        for part in runs.parts(record):
            _write(part)


def _write(part: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


def _stop(call: Call, word: str) -> None:
    runs = runs_of(call.workspace)
    record = runs.latest(call.resource(word), call.workspace.layer, running=True)
    # It may end by itself before the signal comes.
    was_running = runs.state_of(record) == "running"
    record = runs.stop(record)
    state = runs.state_of(record)
    line = f"the run of session {record.session} "
    line += f"has ended: {state}" if was_running else f"had ended before: {state}"
    line += "" if record.exit is None else f", exit {record.exit}"
    status = "stopped" if was_running and state == "stopped" else "ended"
    body = {"status": status, "run": wire.background(record, state)}
    call.respond(Result(body=body, lines=lambda: [line]))


# --- a pool ---------------------------------------------------------------------------------------

SOME_FAILED = 1
REFRESH = 0.5  # seconds between two drawings of the table
MOST_SHOWN = 20  # ended tasks of a pool
RESULTS = ("done", "was not finished", "failed", "lost its lease", "stopped", "waits for a person")
IN_WORDS = dict(zip(OUTCOMES, RESULTS, strict=True))
POOL_HEADINGS = ("TASK", "STATE", "FOR", "LAST LINE", "LOG")


def _work(declared: DeclaredVerb, call: Call, *, status: bool, **given: Any) -> int:
    if status:
        if any(given.values()):
            raise UsageError("--status cannot be combined with anything else")
        return show_status(call)
    if not given["command"]:
        raise UsageError(f"missing command: {call.typed('work')} -- ./agent.sh")
    gc.enable()
    with PoolReporter(call) as call.reporter:
        ran: PoolRan = result_of(declared, call, given).value[0]
    failed = ran.counts[FAILED] or ran.counts[LOST] or ran.stranded
    # As a shell has it of a process that a signal ended.
    ended = 128 + ran.stopped_by if ran.stopped_by is not None else SOME_FAILED if failed else 0
    if call.json:
        print(json.dumps(finished(ran, ended)), flush=True)
    else:
        output.line(_summary(ran, ended))
    return ended


# --- output -------------------------------------------------------------------------------------


class PoolReporter:
    """Prints a line for each event; on a terminal, a table below them shows the running jobs."""

    def __init__(self, call: Call) -> None:
        # Drawn only while the pool pauses, without a thread, because the pool forks.
        self._call, self._live, self._drawn = call, None, 0.0
        if not call.json and output.on_terminal():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(highlight=False), auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def report(self, event: PoolEvent) -> None:
        if self._call.json:
            print(json.dumps(document(event)), flush=True)
        elif event.kind == "warning" and self._live is None:
            output.warn([event.message or ""])
        elif self._live is not None:
            self._live.console.print(clean(_sentence(event)), markup=False)
        else:
            output.line(_sentence(event))
            sys.stdout.flush()

    def draw(self, jobs: Sequence[Job], pool: RunRecord) -> None:
        """Draw the table of the jobs that run, from time to time."""
        if self._live is not None and time.monotonic() - self._drawn >= REFRESH:
            self._drawn = time.monotonic()
            self._live.update(_panel(jobs, pool, self._call.now()), refresh=True)


def _sentence(event: PoolEvent) -> str:
    """Return the event as a sentence."""
    if event.job is None:
        if event.kind == "idle":
            return "no task is left to claim; waiting"
        if event.kind == "warning":
            return f"warning: {event.message}"
        enough = event.kind == ENOUGH
        return f"{event.message}: no new tasks" if enough else f"{event.message}; still trying"
    record, name = event.job.record, event.job.name
    if event.kind == "left_alone":
        failures = "1 failure" if event.failures == 1 else f"{event.failures} failures"
        return f"{name} is skipped from now on, after {failures}"
    if event.end is None:
        return f"{name} started, session {record.session}, log {record.log}"
    line = f"{name} {IN_WORDS[event.end.outcome]} after {humanize_duration(age(event))}"
    line += f", status {event.end.exit}" if event.end.exit else ""
    return f"{line}: {event.end.message}" if event.end.message else line


def finished(ran: PoolRan, status: int) -> dict[str, Any]:
    """Return the last line, with the number of tasks for each outcome and what is left."""
    counts = {name: ran.counts.get(name, 0) for name in OUTCOMES}
    head = {"schema": wire.SCHEMA, "event": "finished", "ok": not status, "command": "work"}
    rest = {"left": ran.left, "stranded": sorted(ran.stranded), "exit": status}
    return {**head, **counts, **rest}


def _summary(ran: PoolRan, status: int) -> str:
    """Return the last line as a sentence."""
    counts: dict[str, int] = {**ran.counts, "left": ran.left, "stranded": len(ran.stranded)}
    words = (*OUTCOMES, "left", "stranded")
    named = [f"{counts[name]} {name.replace('_', ' ')}" for name in words if counts.get(name)]
    line = f"finished: {', '.join(named) or 'there was nothing to do'}"
    return f"{line}; exit status {status}" if status else line


def _panel(jobs: Sequence[Job], pool: RunRecord, now: datetime) -> Text:
    from rich.text import Text

    rows = []
    for job in jobs:
        age = humanize_duration(int(time.monotonic() - job.began))
        rows.append([clean(x) for x in (job.name, age, job.last_line(), job.record.log)])
    head, width = ("TASK", "FOR", "LAST LINE", "LOG"), output.columns()
    laid_out = output.table_lines(head, rows, width)
    # A narrow terminal: the task and its time tell most.
    if not laid_out:
        laid_out = output.table_lines(head[:2], [row[:2] for row in rows], width)
    text = "\n".join(line for lines in laid_out for line in lines)
    return Text(
        f"{_totals(pool, 'running', now, totals(pool))}\n{text}", no_wrap=True, overflow="ellipsis"
    )


def totals(pool: RunRecord, ended: Sequence[str] = ()) -> dict[str, int]:
    """Return the number of a pool's tasks by their results; it did not see those that ``ended``."""
    counts = Counter({**(pool.counts or {}), "stranded": len(pool.stranded)})
    counts.update([*ended, *("left" for x in ended if x not in (DONE, WAITING))])
    counts["running"] -= len(ended)
    first = (DONE, "running", FAILED, "left", "stranded", WAITING)
    return {x: counts.get(x, 0) for x in dict.fromkeys((*first, *OUTCOMES))}


def _totals(pool: RunRecord, state: str, now: datetime, counts: dict[str, int]) -> str:
    """Return a pool's state and the number of its tasks by their results."""
    words = [f"{counts[x]} {x.replace('_', ' ')}" for x in counts if counts[x]]
    since = sentences.clock_time(moment_of(pool.began_at), now)
    at = pool.ended_at and f"from {since} to {sentences.clock_time(moment_of(pool.ended_at), now)}"
    return f"pool {pool.runner} {state} {at or f'since {since}'}: {', '.join(words) or 'no tasks'}"


def show_status(call: Call) -> int:
    """Show the pools that run, or else the last one, with the runs of each."""
    runs, now = runs_of(call.workspace), call.now()
    every, every_run = runs.pools(), runs.background()
    pools = [x for x in every if runs.state_of(x) == RUNNING] or [*every[:1]]
    shown: list[str | Table] = [] if pools else ["no pool has worked in this clone"]
    documents = list[dict[str, Any]]()
    for pool in pools:
        state, members = runs.state_of(pool), [x for x in every_run if x.pool == pool.id]
        named = [(x, runs.state_of(x), runs.last_line(x)) for x in members]
        named.sort(key=lambda x: x[1] != RUNNING)
        rows = [status_row(*x, now) for x in named[:MOST_SHOWN]]
        styles = [STYLES.get(x.result or state, "") for x, state, _ in named[:MOST_SHOWN]]
        # A pool that was killed has not seen how its last runs ended.
        unseen = (pool.counts or {}).get(RUNNING, 0) if state == KILLED else 0
        last = sorted(named, key=lambda x: -(x[0].ended_at or now.timestamp() * 1_000))[:unseen]
        counts = totals(pool, [x.result or FAILED for x, how, _ in last if how != RUNNING])
        shown += [_totals(pool, state, now, counts), f"command: {shlex.join(pool.command)}"]
        shown += [f"stranded: {', '.join(pool.stranded)}"] if pool.stranded else []
        shown += [Table(headings=POOL_HEADINGS, rows=rows, styles=styles)] if rows else []
        shown += [f"and {len(named) - len(rows)} more"] if len(named) > len(rows) else []
        tasks = [wire.background(x, y, shape="pool_run", last_line=z) for x, y, z in named]
        documents.append(wire.background(pool, state, shape="pool", totals=counts, runs=tasks))
    return call.respond(Result(body={"pools": documents}, lines=lambda: shown))


def status_row(run: RunRecord, state: str, line: str, now: datetime) -> tuple[str, ...]:
    until = now if run.ended_at is None else moment_of(run.ended_at)
    age = humanize_duration(max(0, int((until - moment_of(run.began_at)).total_seconds())))
    state = (run.result or state) + (f" ({run.exit})" if run.exit else "")
    state += f": {run.message}" if run.message else ""
    return (" ".join(run.resources), state.replace("_", " "), age, line, run.log)


work_command = partial(
    command, "work", _work, Option(["--status"], is_flag=True, help="Show the pools of this clone.")
)

run_command = partial(
    command,
    "run",
    _run,
    Option(["--detach"], is_flag=True, help="Run in the background with a log, like `dispatch`."),
)
dispatch_command = partial(
    command,
    "dispatch",
    _dispatch,
    Option(["--list"], is_flag=True, help="Show the runs of this clone."),
    Option(["--logs"], metavar="R", help="Print the log of the newest run of R."),
    Option(["--follow"], is_flag=True, help="With --logs: continue until the run has ended."),
    Option(["--stop"], metavar="R", help="Stop the run of R."),
)
