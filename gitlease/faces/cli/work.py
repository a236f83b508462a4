"""``work``: a pool that runs a command for one task of the queue after another."""

from __future__ import annotations

import gc
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import click

from gitlease.core.errors import UsageError, clean
from gitlease.core.instant import humanize_duration, moment_of
from gitlease.faces.cli import output
from gitlease.faces.cli.call import Call
from gitlease.faces.cli.running import LENGTHS, grace_option, log_line
from gitlease.faces.cli.verb import flag, option, read_by, taking, values_of, verb
from gitlease.runs.leased_command import MOST_SHARED, RunRequest
from gitlease.runs.pool import (
    ENOUGH,
    MOST_JOBS,
    Job,
    PoolEvent,
    PoolLimits,
    PoolRan,
    PoolRequest,
    work,
)
from gitlease.runs.records import DONE, FAILED, LOST, RUNNING, WAITING, RunRecord, runs_of
from gitlease.verbs import run_text, sentences, wire
from gitlease.verbs.claiming import claim_options
from gitlease.verbs.parameters import COMMAND_WORDS, DURATION
from gitlease.verbs.table import Result, Table
from gitlease.verbs.wire import SCHEMA
from gitlease.wiring.push import pool_finisher

if TYPE_CHECKING:
    from rich.text import Text


SOME_FAILED = 1
REFRESH = 0.5  # seconds between two drawings of the table
MOST_SHOWN = 20  # ended tasks of a pool
RESULTS = ("done", "was not finished", "failed", "lost its lease", "stopped", "waits for a person")
IN_WORDS = dict(zip(run_text.OUTCOMES, RESULTS, strict=True))
STYLES = {"running": "green", "lost": "red", "failed": "red", "killed": "red", "waiting": "yellow"}
HEADINGS = ("TASK", "STATE", "FOR", "LAST LINE", "LOG")


@verb(
    "work",
    """Work through the queue: take the next task, run COMMAND under its own lease, and repeat
until the queue is empty, with -j tasks at once.

Each COMMAND runs as with `dispatch`, with its own session and log, and appears in `gitlease
dispatch --list`. It finds its task in GITLEASE_RESOURCE, and in GITLEASE_BRIEF the name of a file
with the task, its paths, notes and instructions.

A command finishes its task with `gitlease done`, as its last step. With --done-on-success, exiting
with 0 is enough. With --land, that lands its commits and the finished task as `gitlease land` does.
--pr makes its branch ready to land, pushes it as work/TASK and runs CMD in the work tree, with
GITLEASE_BRANCH and GITLEASE_BASE; the task then waits for a person, as yours. Otherwise the task
and its status are given back.

If the command failed, a note records its exit status, this host and the file of its log;
--share-log adds the log's last lines, which everybody can read then. Pools leave the task alone for
10 minutes, then 20, and after three failures until a person leaves a note. A command that needs a
person runs `gitlease park TASK --reason TEXT` and ends: its task is waiting, and has not failed.
The pool also skips a task after a success that did not finish it, and after `gitlease dispatch
--stop TASK`. If this machine dies, its tasks go back to the queue when their leases lapse.

--worktrees gives each task a linked work tree beside this one, in FOLDER.worktrees, on a branch
work/TASK that starts at --base. Before each task the base is fetched, and the tasks are read there.
The pool commits its edits of the task file there. A command that finishes its task itself should
use `gitlease done TASK --commit`. A clean work tree is removed afterwards. Any other is kept, and
reused when the task is taken again. Branches are kept, except those of tasks that were finished
elsewhere and have nothing of their own. A work tree in which a task cannot be claimed, during a
rebase for example, is named and passed over.

At its end the pool counts the tasks that are left to others, and those that are stranded: nobody
works on them, and it could not take them. --status shows from another terminal how far the pools of
this clone are, or the last one was, with the last line of each log.

Ctrl-C once: no new tasks, and running commands finish. Twice, or TERM: running commands are stopped
and their tasks given back. If this process is killed, its commands are stopped on Linux; elsewhere
they finish. With --json each event is one line.""",
    advice=LENGTHS,
    examples=(
        "gitlease work -- ./agent.sh",
        "gitlease work -j 4 --worktrees -- ./agent.sh",
        "gitlease work -j 4 --land --check 'make test' -- ./agent.sh",
        "gitlease work --pr 'gh pr create --fill' -- ./agent.sh",
        "gitlease work -j 2 --forever --ttl 30m -- ./agent.sh",
        "gitlease work --limit 1h --max-failures 5 --budget 50 -- ./agent.sh",
        "gitlease work --status",
        "gitlease work --done-on-success -- sh -c 'make check-$GITLEASE_RESOURCE'",
    ),
    exits=(2, 4, 5, 7, 128),
    own_exits=(
        (1, "a command failed, lost its lease, or a task is stranded"),
        (130, "interrupted twice (143: by TERM, 129: by HUP)"),
    ),
    done="the queue is empty, or no new tasks were wanted; nothing failed or is stranded",
    session=False,
    with_command=True,
)
@option(
    "-j",
    "--jobs",
    metavar="N",
    type=click.IntRange(1, MOST_JOBS),
    default=1,
    help="Number of tasks at once (default: 1).",
)
@flag("--worktrees", help="Give each task its own linked work tree and branch.")
@option(
    "--base",
    metavar="REF",
    help="With --worktrees: where branches start (default: the remote's main branch).",
)
@flag("--until-empty", help="Stop when no task is left to claim (default).")
@flag("--forever", help="Wait for more when no task is left to claim.")
@flag("--done-on-success", help="Mark a task as done if its command exits with 0.")
@flag("--land", help="Land the work of a command that exits with 0 (implies --worktrees).")
@option(
    "--pr",
    metavar="CMD",
    type=read_by(COMMAND_WORDS, "pr"),
    help="Instead hand its branch to CMD, for example 'gh pr create --fill'; no shell reads it.",
)
@taking("land", but=("resource", "base"))
@option(
    "--max-failures",
    metavar="N",
    type=click.IntRange(1),
    help="Take no new tasks once N have failed.",
)
@option(
    "--budget", metavar="N", type=click.IntRange(1), help="Take no new tasks once N were taken."
)
@option(
    "--limit",
    metavar="D",
    type=read_by(DURATION, "limit"),
    help="Stop a command that takes longer, as a failure.",
)
@option(
    "--share-log",
    metavar="N",
    type=click.IntRange(1, MOST_SHARED),
    help="Add the last N lines of a failed command's log to its note.",
)
@flag("--status", help="Show the pools of this clone.")
@taking("next", but=("claim", "ref", "cached"))
@grace_option
def work_verb(call: Call, /, *, command: tuple[str, ...], **options: Any) -> int:
    """Take tasks and run the command for each."""
    if options.pop("status"):
        usual = {"jobs": 1, None: None}
        if command or any(x for name, x in options.items() if x != usual.get(name)):
            raise UsageError("--status cannot be combined with anything else")
        show_status(call)
        return 0
    if not command:
        raise UsageError(f"missing command: {call.typed('work')} -- ./agent.sh")
    if options["until_empty"] and options["forever"]:
        raise UsageError("--until-empty cannot be combined with --forever")
    terms, directory = values_of("land", call, options), os.path.abspath(call.directory or ".")
    lands, base, finisher = run_text.is_landing(call, options, terms), options["base"], None
    done, worktrees = options["done_on_success"] or lands, options["worktrees"] or lands
    gc.enable()  # this may last for hours
    if lands:
        pr = options["pr"] or ()
        base, finisher = pool_finisher(call.workspace, directory, pr, log_line, **terms)
    request = PoolRequest(
        run=RunRequest(
            words=command,
            directory=directory,
            options=claim_options(**values_of("next", call, options)),
            grace=options["grace"],
            layer=call.layer,
            done=done,
            finisher=finisher,
            share_log=options["share_log"] or 0,
            limit=options["limit"],
        ),
        brief=partial(run_text.brief, prog=call.prog, done=done, commit=worktrees, lands=lands),
        open_at=lambda folder: call.opener(
            folder, layer=call.layer, local=call.local, remote=call.remote
        ),
        worktrees=worktrees,
        base=base,
    )
    output.warn([*call.warnings, *call.ledger.store.warnings])
    limits = PoolLimits(
        jobs=options["jobs"],
        max_failures=options["max_failures"],
        budget=options["budget"],
        forever=options["forever"],
    )
    with _Reporter(call) as reporter:
        ran = work(
            call.workspace,
            request,
            limits,
            say=log_line,
            on_stop=lambda why: log_line(sentences.stopping(why)),
            tell=reporter.report,
            warn=reporter.warn,
            pause=reporter.pause,
        )
    failed = ran.counts[FAILED] or ran.counts[LOST] or ran.stranded
    status = SOME_FAILED if failed else 0
    status = status if ran.stopped_by is None else 128 + ran.stopped_by
    if call.json:
        print(json.dumps(finished(ran, status)), flush=True)
    else:
        output.line(_summary(ran, status))
    return status


# --- output -------------------------------------------------------------------------------------


class _Reporter:
    """Prints a line for each event; on a terminal, a table below them shows the running jobs.

    It draws the table only in ``pause``, without a thread, because the pool forks.
    """

    def __init__(self, call: Call) -> None:
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
            print(json.dumps(run_text.document(event)), flush=True)
        elif self._live is not None:
            self._live.console.print(clean(_sentence(event)), markup=False)
        else:
            output.line(_sentence(event))
            sys.stdout.flush()

    def warn(self, text: str) -> None:
        if self._call.json:
            self.report(PoolEvent("warning", message=text))
        elif self._live is not None:
            self._live.console.print(clean(f"warning: {text}"), markup=False)
        else:
            output.warn([text])

    def pause(self, seconds: float, running: Sequence[Job], pool: RunRecord) -> None:
        if self._live is not None and time.monotonic() - self._drawn >= REFRESH:
            self._drawn = time.monotonic()
            self._live.update(_panel(running, pool, self._call.now()), refresh=True)
        time.sleep(seconds)


def _sentence(event: PoolEvent) -> str:
    """Return the event as a sentence."""
    if event.job is None:
        if event.kind == "idle":
            return "no task is left to claim; waiting"
        enough = event.kind == ENOUGH
        return f"{event.message}: no new tasks" if enough else f"{event.message}; still trying"
    record, name = event.job.record, event.job.name
    if event.kind == "left_alone":
        failures = "1 failure" if event.failures == 1 else f"{event.failures} failures"
        return f"{name} is skipped from now on, after {failures}"
    if event.end is None:
        return f"{name} started, session {record.session}, log {record.log}"
    said = f"{name} {IN_WORDS[event.end.outcome]} after {humanize_duration(run_text.age(event))}"
    said += f", status {event.end.exit}" if event.end.exit else ""
    return f"{said}: {event.end.message}" if event.end.message else said


def finished(ran: PoolRan, status: int) -> dict[str, Any]:
    """Return the last line, with the number of tasks for each outcome and what is left."""
    counts = {name: ran.counts.get(name, 0) for name in run_text.OUTCOMES}
    head = {"schema": SCHEMA, "event": "finished", "ok": not status, "command": "work"}
    left = {"left": ran.left, "stranded": sorted(ran.stranded), "exit": status}
    return {**head, **counts, **left}


def _summary(ran: PoolRan, status: int) -> str:
    """Return the last line as a sentence."""
    counts: dict[str, int] = {**ran.counts, "left": ran.left, "stranded": len(ran.stranded)}
    words = (*run_text.OUTCOMES, "left", "stranded")
    named = [f"{counts[name]} {name.replace('_', ' ')}" for name in words if counts.get(name)]
    said = f"finished: {', '.join(named) or 'there was nothing to do'}"
    return f"{said}; exit status {status}" if status else said


def _panel(running: Sequence[Job], pool: RunRecord, now: datetime) -> Text:
    from rich.text import Text

    rows = []
    for job in running:
        age = humanize_duration(int(time.monotonic() - job.began))
        rows.append([clean(x) for x in (job.name, age, job.last_line(), job.record.log)])
    head, width = ("TASK", "FOR", "LAST LINE", "LOG"), output.columns()
    laid_out = output.table_lines(head, rows, width)
    if not laid_out:  # a narrow terminal
        laid_out = output.table_lines(head[:2], [row[:2] for row in rows], width)
    text = "\n".join(line for lines in laid_out for line in lines)
    return Text(f"{_totals(pool, 'running', now)}\n{text}", no_wrap=True, overflow="ellipsis")


def totals(pool: RunRecord) -> dict[str, int]:
    """Return the number of a pool's tasks by their results."""
    counts = {**(pool.counts or {}), "stranded": len(pool.stranded)}
    first = (DONE, "running", FAILED, "left", "stranded", WAITING)
    return {x: counts.get(x, 0) for x in dict.fromkeys((*first, *run_text.OUTCOMES))}


def _totals(pool: RunRecord, state: str, now: datetime) -> str:
    """Return a pool's state and the number of its tasks by their results."""
    counts = totals(pool)
    words = [f"{counts[x]} {x.replace('_', ' ')}" for x in counts if counts[x]]
    since = sentences.clock_time(moment_of(pool.began_at), now)
    at = pool.ended_at and f"from {since} to {sentences.clock_time(moment_of(pool.ended_at), now)}"
    return f"pool {pool.runner} {state} {at or f'since {since}'}: {', '.join(words) or 'no tasks'}"


def show_status(call: Call) -> None:
    """Show the pools that run, or else the last one, with the runs of each."""
    runs, now = runs_of(call.workspace), call.now()
    every, every_run = runs.pools(), runs.background()
    pools = [x for x in every if runs.state_of(x) == RUNNING] or [*every[:1]]
    shown: list[str | Table] = [] if pools else ["no pool has worked in this clone"]
    documents = list[dict[str, Any]]()
    for pool in pools:
        state, own = runs.state_of(pool), [x for x in every_run if x.pool == pool.id]
        named = [(x, runs.state_of(x), runs.last_line(x)) for x in own]
        named.sort(key=lambda x: x[1] != RUNNING)
        rows = [status_row(*x, now) for x in named[:MOST_SHOWN]]
        styles = [STYLES.get(x.result or state, "") for x, state, _ in named[:MOST_SHOWN]]
        more = len(named) - len(rows)
        shown += [_totals(pool, state, now), f"command: {shlex.join(pool.command)}"]
        shown += [f"stranded: {', '.join(pool.stranded)}"] if pool.stranded else []
        shown += [Table(headings=HEADINGS, rows=rows, styles=styles)] if rows else []
        shown += [f"and {more} more"] if more else []
        tasks = [wire.background(x, y, shape="pool_run", last_line=z) for x, y, z in named]
        documents.append(
            wire.background(pool, state, shape="pool", totals=totals(pool), runs=tasks)
        )
    call.respond(Result(body={"pools": documents}, lines=lambda: shown))


def status_row(run: RunRecord, state: str, line: str, now: datetime) -> tuple[str, ...]:
    until = now if run.ended_at is None else moment_of(run.ended_at)
    age = humanize_duration(max(0, int((until - moment_of(run.began_at)).total_seconds())))
    state = (run.result or state) + (f" ({run.exit})" if run.exit else "")
    state += f": {run.message}" if run.message else ""
    return (" ".join(run.resources), state.replace("_", " "), age, line, run.log)
