"""The composition root of runs in the background."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import NoReturn

from gitlease.core.errors import GitleaseError, Invalid, Unavailable
from gitlease.core.frozen import replace
from gitlease.core.instant import MS
from gitlease.core.loss import Lost
from gitlease.engine.answers import Answer
from gitlease.engine.keeping import holds_of
from gitlease.engine.transaction import fresh_id
from gitlease.git.processes import started_at
from gitlease.runs.background import go_on_alone
from gitlease.runs.running import grace_ms
from gitlease.runs.runs import RunRecord, RunsFolder
from gitlease.runs.supervised import ENDING as ENDINGS
from gitlease.runs.supervised import SupervisedProcess
from gitlease.wiring.finishing import finish
from gitlease.wiring.holding import CONTACTS, ENDING
from gitlease.wiring.running import RunRequest, give_back, run_under_leases
from gitlease.wiring.workspace import Workspace

MARGIN = 20.0  # seconds, beside grace and release, for a run to end
LONGEST_COMMAND = 200  # words that are kept to be shown
LONGEST_WORD = 1_000
STARTED, FAILED = b"+", b"-"
STEP = 0.2

Say = Callable[[str], None]
OnStop = Callable[[Lost | str | None], None]


def runs_of(workspace: Workspace) -> RunsFolder:
    """The runs in the background of a clone."""
    private = os.path.join(workspace.repository.common_dir, "gitlease")
    return RunsFolder(private, workspace.ledger.clock.now().boot_id)


def dispatch(
    workspace: Workspace, answer: Answer, request: RunRequest, *, say: Say, on_stop: OnStop
) -> RunRecord:
    """Run a command in the background under what was claimed; returns once it runs.

    ``say`` prints a line, in the background to the log; so does ``on_stop``, which is told why the
    command is stopped. Where it does not come to run, the lease is released again, and LeaseHeld,
    NotFound or Invalid say why.
    """
    runs = runs_of(workspace)
    record = _record(workspace, answer, request, runs)
    try:
        runs.make()
        with runs.alone():
            runs.refuse_second(record.lease_ids)
            runs.save(record)
        if request.brief:
            request = replace(request, brief_file=runs.write_brief(record.id, request.brief))
        _, word = go_on_alone(
            record.log,
            lambda tell: _in_background(
                workspace, answer, request, runs, record, tell, say, on_stop
            ),
            with_parent=request.with_parent,
        )
    except OSError as error:
        _fail(workspace, answer, request, Invalid(f"it cannot be started: {error.strerror}"))
    except GitleaseError as refusal:
        _fail(workspace, answer, request, refusal)
    runs.tidy()
    if word == STARTED:
        return runs.latest_of(record)
    runs.forget(record.id)
    if word.startswith(FAILED):
        _fail(workspace, answer, request, Invalid(word[1:].decode("utf-8", "replace")))
    raise Invalid(
        "the run was killed as it began: its lease ends by itself",
        resource=record.resources[0] if len(record.resources) == 1 else None,
    )


def stop(runs: RunsFolder, record: RunRecord) -> RunRecord:
    """Have a run end, and wait for that; what is known of it then. Unavailable if it does not."""
    if not runs.end(record, record.grace_ms / MS + CONTACTS * ENDING + MARGIN):
        raise Unavailable(f"the run of session {record.session} has not ended yet")
    return runs.latest_of(record)


def follow(runs: RunsFolder, record: RunRecord, write: Callable[[bytes], None]) -> None:
    """Give out a log as it grows, until its run has ended."""
    place, runs_on = 0, True
    while runs_on:
        runs_on = runs.runs(record)  # asked first: what it printed last is read after that
        for part in runs.parts(record, start=place):
            write(part)
            place += len(part)
        if runs_on:
            time.sleep(STEP)


def _fail(
    workspace: Workspace, answer: Answer, request: RunRequest, why: GitleaseError
) -> NoReturn:
    why.warnings = (*why.warnings, *give_back(workspace, answer, request))
    raise why


def _record(
    workspace: Workspace, answer: Answer, request: RunRequest, runs: RunsFolder
) -> RunRecord:
    actor, now, pid = workspace.identity.actor, workspace.ledger.clock.now(), os.getpid()
    holds, number = holds_of(answer), f"{now.wall_ms:015d}-{fresh_id()[:8]}"
    return RunRecord(
        id=number,
        holder=actor.holder,
        session=actor.session or "",
        layer=workspace.layer,
        resources=tuple(view.resource for view in answer.leases),
        scope=request.scope,
        lease_ids=tuple(view.lease_id for view in answer.leases),
        tokens=tuple(view.token for view in answer.leases),
        command=tuple(word[:LONGEST_WORD] for word in request.words[:LONGEST_COMMAND]),
        log=runs.log_of(number),
        began_at=now.wall_ms,
        boot_id=now.boot_id,
        grace_ms=grace_ms(request.grace, holds) if holds else 0,
        runner=pid,
        runner_started=started_at(pid),
    )


def _in_background(
    workspace: Workspace,
    answer: Answer,
    request: RunRequest,
    runs: RunsFolder,
    record: RunRecord,
    tell: Callable[[bytes], None],
    say: Say,
    on_stop: OnStop,
) -> int:
    """What the runner does: it holds the leases while the command runs, and releases them."""
    import gc

    gc.enable()  # this may last for hours
    pid = os.getpid()
    record = replace(record, runner=pid, runner_started=started_at(pid))
    started = False

    def on_start(process: SupervisedProcess) -> None:
        nonlocal record, started
        record = replace(record, pid=process.pid)
        runs.save(record)
        started = True
        tell(STARTED)

    try:
        ended = run_under_leases(workspace, answer, request, on_start=on_start, on_stop=on_stop)
    except Exception as refusal:
        if started:
            raise
        tell(FAILED + str(refusal).encode("utf-8", "replace")[:4_000])
        return 1
    record = replace(
        record,
        ended_at=workspace.ledger.clock.now().wall_ms,
        outcome=ended.outcome,
        exit=ended.status,
        message=ended.message,
    )
    runs.save(record)
    for signum in ENDINGS:  # to stop it comes too late: what is left to do is to release
        signal.signal(signum, signal.SIG_IGN)
    log = runs.end_of(record) if request.tells else b""
    finished, said = finish(workspace, answer, request, ended, log)
    message = record.message if finished else "; ".join(filter(None, (record.message, *said)))
    runs.save(replace(record, finished=finished, message=message or None))
    for text in said:
        say(f"warning: {text}")
    how = "could not be ended" if ended.status is None else f"ended with {ended.status}"
    say(f"the command {how}")
    return ended.exit
