"""The composition root of runs in the background."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import NoReturn

from gitlease.adapters.attending import ENDING as ENDINGS
from gitlease.adapters.attending import Attended
from gitlease.adapters.background import go_on_alone
from gitlease.adapters.processes import started_at
from gitlease.adapters.runs import RunsFolder
from gitlease.answers import Answer
from gitlease.bootstrap import Workspace
from gitlease.bootstrap_holding import CONTACTS, ENDING, in_a_run
from gitlease.bootstrap_running import Errand, give_back, run_errand
from gitlease.dispatching import message_of, outcome_of, refuse_second
from gitlease.domain.background import RunRecord
from gitlease.domain.errors import GitleaseError, Invalid, Unavailable
from gitlease.domain.frozen import replace
from gitlease.domain.instant import MS
from gitlease.keeping import holds_of
from gitlease.running import Ended, grace_ms
from gitlease.swapping import fresh_id

MARGIN = 20.0  # seconds, beside grace and release, for a run to end
LONGEST_COMMAND = 200  # words that are kept to be shown
LONGEST_WORD = 1_000
STARTED, FAILED = b"+", b"-"
STEP = 0.2

Say = Callable[[str], None]


def in_its_own_session(workspace: Workspace, given: str | None) -> Workspace:
    """The same place in the session that a flag named, else in a random one of its own.

    That of the environment is of whoever dispatches, who may dispatch others as well.
    """
    return workspace if given else in_a_run(workspace, "dispatch", always=True)


def runs_of(workspace: Workspace) -> RunsFolder:
    """The runs in the background of a clone."""
    private = os.path.join(workspace.repository.common_dir, "gitlease")
    return RunsFolder(private, workspace.service.clock.now().boot_id)


def dispatch(workspace: Workspace, answer: Answer, errand: Errand, *, say: Say) -> RunRecord:
    """Run a command in the background under what was claimed; returns once it runs.

    ``say`` prints a line, in the background to the log. Where it does not come to run, the lease is
    released again, and LeaseHeld, NotFound or Invalid say why.
    """
    runs = runs_of(workspace)
    record = _record(workspace, answer, errand, runs)
    try:
        runs.make()
        with runs.alone():
            refuse_second(runs, record.lease_ids)
            runs.save(record)
        _, word = go_on_alone(
            record.log,
            lambda tell: _in_background(workspace, answer, errand, runs, record, tell, say),
        )
    except OSError as error:
        _fail(workspace, answer, errand, Invalid(f"it cannot be started: {error.strerror}"))
    except GitleaseError as refusal:
        _fail(workspace, answer, errand, refusal)
    runs.tidy()
    if word == STARTED:
        return next((x for x in runs.every() if x.id == record.id), record)
    runs.forget(record)
    if word.startswith(FAILED):
        _fail(workspace, answer, errand, Invalid(word[1:].decode("utf-8", "replace")))
    raise Invalid(
        "the run was killed as it began: its lease ends by itself",
        resource=record.resources[0] if len(record.resources) == 1 else None,
    )


def stop(runs: RunsFolder, record: RunRecord) -> RunRecord:
    """Have a run end, and wait for that; what is known of it then. Unavailable if it does not."""
    if not runs.end(record, record.grace_ms / MS + CONTACTS * ENDING + MARGIN):
        raise Unavailable(f"the run of session {record.session} has not ended yet")
    return next((x for x in runs.every() if x.id == record.id), record)


def follow(runs: RunsFolder, record: RunRecord, write: Callable[[bytes], None]) -> None:
    """Give out a log as it grows, until its run has ended."""
    place, runs_on = 0, True
    while True:
        part = runs.read(record, start=place)
        if part:
            write(part)
            place += len(part)
        elif not runs_on:
            return
        else:
            runs_on = runs.runs(record)
            if runs_on:
                time.sleep(STEP)


def _fail(workspace: Workspace, answer: Answer, errand: Errand, why: GitleaseError) -> NoReturn:
    why.warnings = (*why.warnings, *give_back(workspace, answer, errand))
    raise why


def _record(workspace: Workspace, answer: Answer, errand: Errand, runs: RunsFolder) -> RunRecord:
    actor, now, pid = workspace.identity.actor, workspace.service.clock.now(), os.getpid()
    holds, number = holds_of(answer), f"{now.wall_ms:015d}-{fresh_id()[:8]}"
    return RunRecord(
        id=number,
        holder=actor.holder,
        session=actor.session or "",
        layer=workspace.layer,
        resources=tuple(view.resource for view in answer.leases),
        scope=errand.scope,
        lease_ids=tuple(view.lease_id for view in answer.leases),
        tokens=tuple(view.token for view in answer.leases),
        command=tuple(word[:LONGEST_WORD] for word in errand.words[:LONGEST_COMMAND]),
        log=runs.log_of(number),
        began_at=now.wall_ms,
        boot_id=now.boot_id,
        grace_ms=grace_ms(errand.grace, holds) if holds else 0,
        runner=pid,
        runner_started=started_at(pid),
    )


def _in_background(
    workspace: Workspace,
    answer: Answer,
    errand: Errand,
    runs: RunsFolder,
    record: RunRecord,
    tell: Callable[[bytes], None],
    say: Say,
) -> int:
    """What the runner does: it holds the leases while the command runs, and releases them."""
    import gc

    gc.enable()  # this may last for hours
    pid = os.getpid()
    record = replace(record, runner=pid, runner_started=started_at(pid))
    started = False

    def on_start(attended: Attended) -> None:
        nonlocal record, started
        record = replace(record, pid=attended.pid, pid_started=attended.started)
        runs.save(record)
        started = True
        tell(STARTED)

    try:
        ended = run_errand(
            workspace, answer, errand, on_start=on_start, on_stop=lambda why: say(_why(why))
        )
    except Exception as refusal:
        if started:
            raise
        tell(FAILED + str(refusal).encode("utf-8", "replace")[:4_000])
        return 1
    runs.save(_ended(record, ended, workspace.service.clock.now().wall_ms))
    for signum in ENDINGS:  # to stop it comes too late: what is left to do is to release
        signal.signal(signum, signal.SIG_IGN)
    for text in give_back(workspace, answer, errand, ended.lost):
        say(f"warning: {text}")
    say(f"the command {_how(ended)}")
    return ended.exit


def _ended(record: RunRecord, ended: Ended, at: int) -> RunRecord:
    return replace(
        record,
        ended_at=at,
        outcome=outcome_of(ended),
        exit=ended.status,
        message=message_of(ended),
    )


def _why(why: object) -> str:
    from gitlease.domain.loss import Lost

    if isinstance(why, Lost):
        return f"{why.error.message}: stopping the command"
    return f"stopping the command: {why}" if why else "stopping the command, as was asked for"


def _how(ended: Ended) -> str:
    return "could not be ended" if ended.status is None else f"ended with {ended.status}"


__all__ = [
    "RunsFolder",
    "dispatch",
    "follow",
    "in_its_own_session",
    "runs_of",
    "stop",
]
