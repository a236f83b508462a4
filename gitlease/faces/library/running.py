"""The verbs of the library that run commands under leases: methods of ``Leases``."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from gitlease.core.errors import Invalid, UsageError
from gitlease.core.resources.resource import parse_resource, word_anywhere
from gitlease.engine.answers import Answer, ClaimOptions
from gitlease.faces.library.made import ClaimTerms
from gitlease.faces.library.methods import TERMS
from gitlease.faces.library.refusals import (
    Duration,
    ResourceLike,
    StrPath,
    taking,
    to_folder,
    to_note,
    to_resources,
    to_seconds,
)
from gitlease.faces.library.values import RunResult, WorkEvent, WorkResult
from gitlease.runs.child import CannotExecute as CannotExecute
from gitlease.runs.child import NoCommand as NoCommand
from gitlease.runs.heartbeat import in_a_run
from gitlease.runs.leased_command import RunRequest, claim_to_run, run_claimed
from gitlease.runs.pool import MOST_JOBS, PoolEvent, PoolLimits, PoolRequest
from gitlease.runs.pool import work as work_on_queue
from gitlease.verbs import run_text, sentences
from gitlease.verbs.claiming import claim_options
from gitlease.verbs.doors import CloneDoor
from gitlease.wiring.workspace import Workspace

if TYPE_CHECKING:
    from gitlease.faces.library.leases import Leases

MOMENT = 2.0  # seconds
NOT_NEXT = {"paths", "wait", "any", "takeover", "reopen"}


@taking(ClaimTerms)
def run(
    self: Leases,
    command: Sequence[str],
    *resources: ResourceLike,
    next: bool = False,
    note: str | None = None,
    done: bool = False,
    grace: Duration | None = None,
    cwd: StrPath | None = None,
    **terms: Unpack[ClaimTerms],
) -> RunResult:
    """Run a command under leases: claim all or none, renew, release at its end.

    ``command`` is a list of words, not a shell line. ``resources``, or with ``next`` the first task
    of the queue, are claimed as by ``claim``; each run has a session of its own unless one was
    named or it is in a ``Session``. ``done`` marks tasks as done if the command ends with 0;
    ``note`` is left for the next holder at a release. ``grace`` is the time from TERM to KILL if
    the command must be stopped, ``cwd`` its folder, by default the current one. Its environment is
    this program's with ``GITLEASE_RESOURCE``, ``GITLEASE_TOKEN`` and the others of `gitlease run`.

    Signals sent to this program go to the command. Only for the main thread; elsewhere use
    ``gitlease.hold`` around your own command. Raises what ``claim`` raises, NotFound or Invalid for
    a command that cannot be executed, before anything is claimed, and LeaseLost if a lease was
    lost: then the command was stopped.
    """
    _only_in_main_thread("run")
    _need_repository(self._workspace, "run")

    def brief(answer: Answer) -> str:
        entry = workspace.queue.find(parse_resource(word_anywhere(answer.leases[0].resource))).entry
        return run_text.brief(answer, entry.task if entry else None, prog="gitlease", done=done)

    workspace = self._workspace if self._is_run else in_a_run(self._workspace, "run")
    door = CloneDoor(workspace)
    values = TERMS.values(door, terms)
    if next and (resources or NOT_NEXT & values.keys()):
        raise UsageError("next claims the first task: it excludes resources and options of a claim")
    wait, covered = values.pop("wait", None), values.get("paths", ())
    options, warnings = claim_options(**values), list[str]()
    wanted = [] if next else to_resources(door, resources)
    warnings += door.check_claim(wanted, covered, any_name=options.any_name)
    request = _request(self, command, options, cwd, grace, note=to_note(note), done=done)
    ran = run_claimed(
        workspace,
        request,
        lambda: claim_to_run(workspace, request, wanted, options, wait=wait),
        on_claim=lambda _answer: None,
        on_stop=lambda _why: None,
        brief=brief if next or done else None,
    )
    warnings += [*door.granted(ran.answer), *ran.answer.warnings, *ran.warnings]
    self.warnings = tuple(dict.fromkeys(warnings))
    if ran.ended.lost:
        raise ran.ended.lost[0].error
    if ran.ended.status is None or ran.ended.failure is not None:
        raise Invalid(f"the command was stopped: {ran.ended.failure}")
    return RunResult(
        status=ran.ended.status,
        leases=ran.answer.leases,
        done=ran.finished == len(ran.answer.leases),
        stopped=ran.ended.stopped,
        warnings=self.warnings,
    )


def work(
    self: Leases,
    command: Sequence[str],
    *,
    jobs: int = 1,
    worktrees: bool = False,
    base: str | None = None,
    forever: bool = False,
    done_on_success: bool = False,
    max_failures: int = 3,
    limit: Duration | None = None,
    ttl: Duration | None = None,
    reason: str | None = None,
    commit: bool | None = None,
    grace: Duration | None = None,
    cwd: StrPath | None = None,
    on_event: Callable[[WorkEvent], object] | None = None,
) -> WorkResult:
    """A pool: run the command for one task of the queue after the other.

    ``jobs`` run at once, each in the background with a lease, a session and a log of its own; the
    options and outcomes are those of `gitlease work`. It returns when the queue is empty, with
    ``forever`` when interrupted. Ctrl-C once: no new tasks; twice, or TERM: the runs are stopped
    and their tasks released. ``on_event`` is called with each ``WorkEvent``, in this thread; if it
    raises, the runs are stopped and the pool ends.

    Each run is a fork of this program, so this is only for the main thread of a program without
    other threads. Raises UsageError otherwise, NotFound or Invalid for a command that cannot be
    executed, and permanent failures of a claim, once all runs have ended.
    """
    _only_in_main_thread("work")
    _need_repository(self._workspace, "work")
    _only_thread()
    if not isinstance(jobs, int) or not 1 <= jobs <= MOST_JOBS:
        raise UsageError(f"jobs must be a number from 1 to {MOST_JOBS}")
    if not isinstance(max_failures, int) or max_failures < 1:
        raise UsageError("max_failures must be a number, at least 1")
    if on_event is not None and not callable(on_event):
        raise UsageError("on_event must be a function")
    if base is not None and not worktrees:
        raise UsageError("base needs worktrees=True")
    given = {"ttl": ttl, "reason": reason, "commit": commit}
    terms = claim_options(**TERMS.values(self._door, given))
    request = PoolRequest(
        run=_request(self, command, terms, cwd, grace, done=done_on_success),
        options=terms,
        brief=lambda answer, task: run_text.brief(
            answer, task, prog="gitlease", done=done_on_success, commit=worktrees
        ),
        open_at=self._open_at,
        worktrees=worktrees,
        base=base,
        limit=to_seconds(limit, "limit"),
    )
    ended: list[WorkEvent] = []

    def report(event: PoolEvent) -> None:
        fields = {k: v for k, v in run_text.document(event).items() if k != "schema"}
        reported = WorkEvent(**fields)
        if reported.event == "ended":
            ended.append(reported)
        if on_event is not None:
            on_event(reported)

    ran = work_on_queue(
        self._workspace,
        request,
        PoolLimits(jobs=jobs, max_failures=max_failures, forever=forever),
        say=_log,
        on_stop=lambda why: _log(sentences.stopping(why)),
        tell=report,
        warn=lambda text: report(PoolEvent("warning", message=text)),
    )
    counts = {outcome: ran.counts[outcome] for outcome in run_text.OUTCOMES}
    return WorkResult(
        **counts,
        ended=tuple(ended),
        stopped_by=ran.stopped_by,
        left=ran.left,
        stranded=tuple(sorted(ran.stranded)),
    )


def _request(
    leases: Leases,
    command: Sequence[str],
    terms: ClaimOptions,
    cwd: StrPath | None,
    grace: Duration | None,
    **more: Any,
) -> RunRequest:
    words = tuple(command) if isinstance(command, Sequence) else ()
    if isinstance(command, str) or not words or not all(isinstance(x, str) for x in words):
        raise UsageError('the command must be a list of words: ["make", "test"]')
    return RunRequest(
        words=words,
        directory=os.path.abspath(to_folder(cwd or ".")),
        scope=terms.scope,
        grace=to_seconds(grace, "grace"),
        commit=terms.commit,
        layer=leases._layer,
        **more,
    )


def _only_in_main_thread(verb: str) -> None:
    if threading.current_thread() is not threading.main_thread():
        raise UsageError(
            f"{verb} needs the main thread: it handles signals and a child process",
            hints=("in another thread, use gitlease.hold around your own command",),
        )


def _need_repository(workspace: Workspace, verb: str) -> None:
    if getattr(workspace.ledger.store, "in_memory", False):
        raise UsageError(f"{verb} needs a real repository: this ledger is in memory")


def _only_thread() -> None:
    # Threads that have renewed leases until now end within a moment.
    end = time.monotonic() + MOMENT
    others = [x for x in threading.enumerate() if x is not threading.current_thread()]
    for thread in others:
        thread.join(max(0.0, end - time.monotonic()))
    if names := ", ".join(sorted(x.name for x in others if x.is_alive())):
        raise UsageError(
            f"work forks this program, which other threads would not survive: {names}",
            hints=("call it before they start, or after they end",),
        )


def _log(text: str) -> None:
    # In the process of a run, standard error is its log.
    print(f"gitlease: {text}", file=sys.stderr, flush=True)
