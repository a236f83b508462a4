"""Commands that run under leases in the background, each with a record and a log."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from gitlease.core.errors import GitleaseError, Invalid, Unavailable
from gitlease.core.frozen import replace
from gitlease.core.instant import MS
from gitlease.engine.answers import Answer
from gitlease.engine.keeping import holds_of
from gitlease.engine.transaction import fresh_id
from gitlease.git.run import started_at
from gitlease.runs.background import go_on_alone
from gitlease.runs.holding import CONTACTS, ENDING
from gitlease.runs.leased_command import LeasedCommand, OnStop, RunRequest
from gitlease.runs.running import grace_ms
from gitlease.runs.runs import RunRecord, RunsFolder, runs_of
from gitlease.runs.supervised import ENDING as ENDINGS
from gitlease.runs.supervised import SupervisedProcess

if TYPE_CHECKING:
    from gitlease.runs.place import RunPlace

MARGIN = 20.0  # seconds, beside grace and release, for a run to end
LONGEST_COMMAND = 200  # words that are kept to be shown
LONGEST_WORD = 1_000
STARTED, FAILED = b"+", b"-"
STEP = 0.2

Print = Callable[[str], None]


def dispatch(
    place: RunPlace, answer: Answer, request: RunRequest, *, say: Print, on_stop: OnStop
) -> RunRecord:
    """Run a command in the background under what was claimed; returns once it runs.

    ``say`` prints a line, in the background to the log; so does ``on_stop``, which is called with
    why the command is stopped. If it does not come to run, the lease is released again, and
    LeaseHeld, NotFound or Invalid say why.
    """
    runs, command = runs_of(place), LeasedCommand(place, answer, request)
    record = _new_record(command, runs)
    try:
        runs.make()
        with runs.alone():
            runs.refuse_second(record.lease_ids)
            runs.save(record)
        brief = runs.write_brief(record.id, request.brief) if request.brief else ""
        briefed = replace(command, request=replace(request, brief_file=brief))
        word = go_on_alone(
            record.log,
            lambda report: _in_background(briefed, runs, record, report, say, on_stop),
            with_parent=request.with_parent,
        )
    except OSError as error:
        _fail(command, Invalid(f"it cannot be started: {error.strerror}"))
    except GitleaseError as refusal:
        _fail(command, refusal)
    runs.tidy()
    if word == STARTED:
        return runs.latest_of(record)
    runs.forget(record.id)
    if word.startswith(FAILED):
        _fail(command, Invalid(word[1:].decode("utf-8", "replace")))
    raise Invalid(
        "the run was killed as it began: its lease ends by itself",
        resource=record.resources[0] if len(record.resources) == 1 else None,
    )


def stop(runs: RunsFolder, record: RunRecord) -> RunRecord:
    """Stop a run and wait for its end; return its record then. Unavailable if it does not end."""
    if not runs.end(record, record.grace_ms / MS + CONTACTS * ENDING + MARGIN):
        raise Unavailable(f"the run of session {record.session} has not ended yet")
    return runs.latest_of(record)


def follow(runs: RunsFolder, record: RunRecord, write: Callable[[bytes], None]) -> None:
    """Write out a log as it grows, until its run has ended."""
    offset, runs_on = 0, True
    while runs_on:
        runs_on = runs.runs(record)  # asked first: what it printed last is read after that
        for part in runs.parts(record, start=offset):
            write(part)
            offset += len(part)
        if runs_on:
            time.sleep(STEP)


def _fail(command: LeasedCommand, why: GitleaseError) -> NoReturn:
    why.warnings = (*why.warnings, *command.give_back())
    raise why


def _new_record(command: LeasedCommand, runs: RunsFolder) -> RunRecord:
    place, answer, request = command.place, command.answer, command.request
    now, pid, holds = place.ledger.clock.now(), os.getpid(), holds_of(answer)
    run_id = f"{now.wall_ms:015d}-{fresh_id()[:8]}"
    return RunRecord(
        id=run_id,
        holder=place.actor.holder,
        session=place.actor.session or "",
        layer=place.layer,
        resources=tuple(view.resource for view in answer.leases),
        scope=request.scope,
        lease_ids=tuple(view.lease_id for view in answer.leases),
        tokens=tuple(view.token for view in answer.leases),
        command=tuple(word[:LONGEST_WORD] for word in request.words[:LONGEST_COMMAND]),
        log=runs.log_of(run_id),
        began_at=now.wall_ms,
        boot_id=now.boot_id,
        grace_ms=grace_ms(request.grace, holds) if holds else 0,
        runner=pid,
        runner_started=started_at(pid),
    )


def _in_background(
    command: LeasedCommand,
    runs: RunsFolder,
    record: RunRecord,
    report: Callable[[bytes], None],
    say: Print,
    on_stop: OnStop,
) -> int:
    """Hold the leases while the command runs, and release them: what the runner process does."""
    gc.enable()  # this may last for hours
    pid = os.getpid()
    record = replace(record, runner=pid, runner_started=started_at(pid))
    started = False

    def on_start(process: SupervisedProcess) -> None:
        nonlocal record, started
        record = replace(record, pid=process.pid)
        runs.save(record)
        started = True
        report(STARTED)

    try:
        ended = command.run(on_start=on_start, on_stop=on_stop)
    except Exception as refusal:
        if started:
            raise
        report(FAILED + str(refusal).encode("utf-8", "replace")[:4_000])
        return 1
    record = replace(
        record,
        ended_at=command.place.ledger.clock.now().wall_ms,
        outcome=ended.outcome,
        exit=ended.status,
        message=ended.message,
    )
    runs.save(record)
    for signum in ENDINGS:  # too late to stop it: what is left to do is to release
        signal.signal(signum, signal.SIG_IGN)
    log = runs.end_of(record) if command.request.notes_failure else b""
    finished, warnings = command.finish(ended, log)
    message = record.message if finished else "; ".join(filter(None, (record.message, *warnings)))
    runs.save(replace(record, finished=finished, message=message or None))
    for text in warnings:
        say(f"warning: {text}")
    how = "could not be ended" if ended.status is None else f"ended with {ended.status}"
    say(f"the command {how}")
    return ended.exit
