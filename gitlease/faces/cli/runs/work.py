"""``work``: a pool that takes the next task, has a command work on it, and goes on."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from gitlease.core.errors import UsageError
from gitlease.faces import pool_words, sentences, task_brief
from gitlease.faces.cli import output
from gitlease.faces.cli.leases import claiming
from gitlease.faces.cli.runs.pool_table import PoolTable
from gitlease.faces.cli.runs.request import LENGTHS, grace_option, log_line
from gitlease.faces.cli.verb import Verb, flag, option
from gitlease.runs.pool import FAILED, LOST, MOST_JOBS, Job, PoolEvent, PoolLimits

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call
    from gitlease.runs.work import PoolRequest

SOME_FAILED = 1


@click.command(
    "work",
    cls=Verb,
    help="""Work on the tasks of the queue: take the next one, run COMMAND for it under a lease of
its own, and go on, -j of them at once, until the queue is empty.

Each COMMAND runs as `dispatch` has it run, with a session and a log of its own; `gitlease dispatch
--list` shows them too. It finds in GITLEASE_RESOURCE which task it has, and in GITLEASE_BRIEF a
file with the task, its paths, the notes on it and what to do.

A command finishes its task by `gitlease done`, as the last thing it does; with --done-on-success
status 0 is enough. Whatever else it ends with gives the task back, its status too, with a note
that has the exit status and the last lines of the log: mind what it prints. A task that failed
--max-failures times is left alone, and so is one that its command succeeded on without finishing
it. Others may take them.

--worktrees gives each task a linked work tree beside this one, in FOLDER.worktrees, on a branch
work/TASK that begins at --base. What the pool changes in the task file is committed there; a
command that finishes its task itself does so with `gitlease done TASK --commit`. The work tree is
removed once it is clean; one that is not is kept, and used when the task is taken again. Branches
stay.

Ctrl-C once: no new tasks, what runs goes on to its end. Twice, or TERM: what runs is stopped and
given back. When this process is killed its commands are stopped as well, on Linux; elsewhere they
go on to their ends. With --json each event is one line.""",
    advice=LENGTHS,
    examples=(
        "gitlease work -- ./agent.sh",
        "gitlease work -j 4 --worktrees -- ./agent.sh",
        "gitlease work -j 2 --forever --ttl 30m -- ./agent.sh",
        "gitlease work --done-on-success -- sh -c 'make check-$GITLEASE_RESOURCE'",
    ),
    exits=(2, 4, 5, 7, 128),
    own_exits=(
        (1, "a command failed, or lost its lease"),
        (130, "interrupted twice (143: by TERM)"),
    ),
    done="the queue is empty, or no new tasks were wanted, and no command failed",
    session=False,
    with_command=True,
)
@option(
    "-j",
    "--jobs",
    metavar="N",
    type=click.IntRange(1, MOST_JOBS),
    default=1,
    help="How many tasks at once (default: 1).",
)
@flag("--worktrees", help="Give each task a linked work tree and a branch.")
@option(
    "--base",
    metavar="REF",
    help="With --worktrees: where branches begin (default: the remote's main branch).",
)
@flag("--until-empty", help="End when nothing is left to claim (default).")
@flag("--forever", help="Wait for more when nothing is left to claim.")
@flag("--done-on-success", help="Mark a task as done when its command ends with status 0.")
@option(
    "--max-failures",
    metavar="K",
    type=click.IntRange(1),
    default=3,
    help="Leave a task alone after it failed this often (default: 3).",
)
@claiming.ttl_option
@claiming.reason_option
@claiming.commit_option
@grace_option
@click.pass_obj
def work_verb(call: Call, /, *, command: tuple[str, ...], **options: Any) -> int:
    """Take tasks and run the command for each."""
    from gitlease.runs.work import work

    if not command:
        raise UsageError(f"missing command: {call.typed('work')} -- ./agent.sh")
    if options["base"] is not None and not options["worktrees"]:
        raise UsageError("--base needs --worktrees")
    if options["until_empty"] and options["forever"]:
        raise UsageError("--until-empty and --forever exclude each other")
    gc.enable()  # this may last for hours
    request = _request(call, command, options)
    output.warn([*call.warnings, *call.ledger.store.warnings])
    limits = PoolLimits(
        jobs=options["jobs"],
        max_failures=options["max_failures"],
        forever=options["forever"],
    )
    with _teller(call) as teller:
        ran = work(
            call.workspace,
            request,
            limits,
            say=log_line,
            on_stop=lambda why: log_line(sentences.stopping(why)),
            tell=teller.tell,
            warn=teller.warn,
            pause=teller.pause,
        )
    if call.json:
        print(json.dumps(pool_words.finished(ran.counts)), flush=True)
    else:
        output.line(pool_words.summary(ran.counts))
    if ran.stopped_by is not None:
        return 128 + ran.stopped_by
    return SOME_FAILED if ran.counts[FAILED] or ran.counts[LOST] else 0


def _request(call: Call, command: tuple[str, ...], options: dict[str, Any]) -> PoolRequest:
    from gitlease.core.resources.resource import WHOLE
    from gitlease.engine.answers import ClaimOptions
    from gitlease.runs.leased_command import RunRequest
    from gitlease.runs.work import PoolRequest

    done, worktrees = options["done_on_success"], options["worktrees"]
    return PoolRequest(
        run=RunRequest(
            words=command,
            directory=os.path.abspath(call.directory or "."),
            scope=WHOLE,
            grace=options["grace"],
            commit=options["commit"],
            layer=call.layer,
            done=done,
        ),
        options=ClaimOptions(
            ttl=options["ttl"], reason=options["reason"], commit=options["commit"]
        ),
        brief=lambda answer, task: task_brief.brief(
            answer, task, prog=call.prog, done=done, commit=worktrees
        ),
        open_at=lambda folder: call.opener(
            folder, layer=call.layer, local=call.local, remote=call.remote
        ),
        worktrees=worktrees,
        base=options["base"],
    )


# --- what is told -------------------------------------------------------------------------------


class _Teller:
    """A line for each event; ``live`` shows on a terminal what runs."""

    def __init__(self, call: Call, live: PoolTable | None) -> None:
        self._call, self._live = call, live

    def tell(self, event: PoolEvent) -> None:
        if self._call.json:
            print(json.dumps(pool_words.document(event)), flush=True)
        elif self._live is not None:
            self._live.add(event)
        else:
            output.line(pool_words.sentence(event))
            sys.stdout.flush()

    def warn(self, text: str) -> None:
        if self._call.json:
            print(json.dumps(pool_words.document(PoolEvent("warning", message=text))), flush=True)
        elif self._live is not None:
            self._live.say(f"warning: {text}")
        else:
            output.warn([text])

    def pause(self, seconds: float, running: Sequence[Job]) -> None:
        if self._live is not None:
            self._live.show(running)
        time.sleep(seconds)


@contextlib.contextmanager
def _teller(call: Call) -> Iterator[_Teller]:
    if call.json or not output.on_terminal():
        yield _Teller(call, None)
        return
    with PoolTable() as table:
        yield _Teller(call, table)
