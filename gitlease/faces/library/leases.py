"""The library: the verbs of the command line, for Python programs."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

from gitlease.core.edge import Task
from gitlease.core.errors import GitleaseError, Invalid, LeaseLost, Unavailable, UsageError
from gitlease.core.frozen import replace
from gitlease.core.loss import Lost
from gitlease.core.resources import WHOLE, parse_scope
from gitlease.engine import acts
from gitlease.engine.watch import Part, Watcher
from gitlease.engine.watch import WatchEvent as WatchEvent
from gitlease.faces.library.holding import HeldLeases, call_in_thread
from gitlease.faces.library.made import ClaimTerms, LeaseVerbs
from gitlease.faces.library.methods import (
    LANDING,
    TERMS,
    Duration,
    Method,
    ResourceLike,
    StrPath,
    refusing_class,
    taking,
    to_folder,
    to_list,
    to_note,
    to_resources,
    to_seconds,
)
from gitlease.faces.library.values import InitResult, RunResult, WorkEvent, WorkResult
from gitlease.push.fenced_push import PushAnswer as PushAnswer
from gitlease.push.fenced_push import PushRefused as PushRefused
from gitlease.runs.child import CannotExecute as CannotExecute
from gitlease.runs.child import NoCommand as NoCommand
from gitlease.runs.heartbeat import in_a_run
from gitlease.runs.leased_command import MOST_SHARED, RunRequest, run_claimed
from gitlease.runs.pool import MOST_JOBS, PoolEvent, PoolLimits, PoolRequest
from gitlease.runs.pool import work as work_on_queue
from gitlease.verbs import run_text, sentences
from gitlease.verbs.claiming import claim_options
from gitlease.verbs.doors import CloneDoor
from gitlease.verbs.parameters import COMMAND_WORDS
from gitlease.verbs.push_options import push_request
from gitlease.verbs.table import Result
from gitlease.wiring.push import open_push, pool_finisher
from gitlease.wiring.workspace import (
    Workspace,
    open_workspace,
    record_ledger,
    write_default_settings,
)

MOMENT = 2.0  # seconds
Callback = TypeVar("Callback", bound=Callable[[WatchEvent], Any])
Opener = Callable[[threading.Event], Workspace]
OnLost = Callable[["Session", LeaseLost], object]


@refusing_class
class Leases(LeaseVerbs):
    """The leases and tasks of one repository, for one holder and session: see ``gitlease.open``.

    Leaving the ``with`` block releases nothing: a lease ends by ``release``, ``done`` or time.
    ``warnings`` are those of the last answer.
    """

    _is_run = False  # whether its session is that of one run, which the commands it runs share

    def __init__(
        self,
        workspace: Workspace,
        *,
        layer: str | None = None,
        open_at: Callable[[str], Workspace] = open_workspace,
    ) -> None:
        """``layer`` is the one named by the caller; ``open_at`` opens another folder likewise."""
        self._workspace, self._ledger = workspace, workspace.ledger
        self._door = CloneDoor(workspace, layer)
        self._layer, self._open_at = layer, open_at
        self.warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        holder = self.holder or "nobody"
        who = holder if self.session is None else f"{holder}, session {self.session}"
        name = type(self).__name__
        return f"<{name} of {who}: layer {self._ledger.layer} on {self._ledger.store.place}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    @property
    def holder(self) -> str:
        """The person who claims: git's ``user.email``; empty if there is none."""
        return self._workspace.identity.actor.holder

    @property
    def session(self) -> str | None:
        """The holder's session, if any."""
        return self._workspace.identity.actor.session

    def push(
        self,
        remote: str | None = None,
        *refspecs: str,
        require: Iterable[ResourceLike] = (),
        upstream: bool = False,
        force: bool = False,
        tags: bool = False,
        delete: bool = False,
        options: Iterable[str] = (),
        hooks: bool = True,
        dry_run: bool = False,
    ) -> PushAnswer:
        """Push work and a renewal of its leases in one atomic push: both land, or neither.

        Remote and refspecs are those of ``git push``. The leases are your own that cover the
        commits, and those in ``require``; without any it is a plain push, with a warning.
        ``force`` replaces exactly the state that was read; ``options`` are push options for the
        server. Raises LeaseLost, NotHolder, LeaseHeld if the commits touch what another holds,
        Denied (with ``refs``) if the remote refuses, Unavailable and UnknownOutcome.
        """
        self._ledger.check_holder()
        chosen = {"force": force, "tags": tags, "delete": delete, "push_option": tuple(options)}
        request = push_request(remote, refspecs, chosen, upstream=upstream, hooks=hooks)
        required = [self._door.resource(word) for word in to_list(require, "require")]
        with self._door.explaining("push"):
            answer = open_push(self._workspace).push(request, require=required, dry_run=dry_run)
        self.warnings = tuple(answer.warnings)
        return answer

    def task(self, resource: ResourceLike) -> Task:
        """A task as in its file. Raises NotFound, and Invalid for a broken file."""
        return self._ledger.edges.task(self._door.resource(resource))

    def init(
        self,
        *,
        undo_rollback: bool = False,
        accept_rollback: bool = False,
        new_ledger: bool = False,
    ) -> InitResult:
        """Set the repository up: make the ledger, and write ``.gitlease.yaml`` if there is none.

        Idempotent; accepts a ledger that was replaced. For one that was rolled back it raises
        Rollback, unless the choice is given: restore what this clone has seen (``undo_rollback``),
        or accept the remote's state (``accept_rollback``); see `gitlease init --help`. A ledger
        that the settings do not record is refused, unless this remote is to have its own
        (``new_ledger``). An unreachable remote is a warning.
        """
        if undo_rollback and accept_rollback:
            raise UsageError("undo_rollback and accept_rollback exclude each other")
        self._ledger.check_holder()
        reading = None
        try:
            if undo_rollback:
                reading = acts.undo_rollback(self._ledger)
            else:
                reading = acts.confirm(
                    self._ledger, rolled_back=accept_rollback, another=new_ledger
                )
            warnings = reading.warnings
        except Unavailable as error:
            warnings = (error.message,)
        written = write_default_settings(self._workspace.repository)
        _, unrecorded = record_ledger(self._workspace, reading.ledger_id if reading else None)
        self.warnings = (*(written[1].warnings if written else ()), *warnings, *unrecorded)
        return InitResult(
            settings_file=written[0] if written else None,
            place=self._ledger.store.place,
            layer=self._ledger.layer,
            id=reading.ledger_id if reading else None,
            revision=reading.revision if reading else None,
        )

    def on_available(
        self, *resources: ResourceLike, scope: str = WHOLE
    ) -> Callable[[Callback], Subscription[Callback]]:
        """Decorate a function to be called each time one of these becomes available.

        A lapse counts unless the task stays assigned; a resource that is free at the start does
        not. The function gets the ``WatchEvent`` in a daemon thread, one call at a time; its
        exceptions go to ``threading.excepthook`` and do not end the watch. The decorated function
        can still be called, and has ``stop()``: see ``Subscription``.
        """
        wanted = to_resources(self._door, resources)
        parts, opened = [(x, parse_scope(scope)) for x in wanted], _opener(self._workspace)
        return lambda function: Subscription(function, opened, parts)

    @overload
    def on_assignment(self) -> Callable[[Callback], Subscription[Callback]]: ...

    @overload
    def on_assignment(self, function: Callback) -> Subscription[Callback]: ...

    def on_assignment(
        self, function: Callback | None = None
    ) -> Subscription[Callback] | Callable[[Callback], Subscription[Callback]]:
        """Decorate a function to be called for each task that is newly assigned to this person.

        These are the person's own claims, in any session on any machine: see ``event.session``, and
        ``event.at`` for the time in the ledger's history. Tasks assigned at the start are not
        reported, nor claims of tasks assigned before, nor names written into a task file by hand,
        which the ledger does not have. The function is called as for ``on_available``.
        """
        self._ledger.check_holder()
        opened = _opener(self._workspace)
        if function is not None:
            return Subscription(function, opened)
        return lambda function: Subscription(function, opened)

    @taking(ClaimTerms)
    def run(
        self,
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

        ``command`` is a list of words, not a shell line. ``resources``, or with ``next`` the first
        task of the queue, are claimed as by ``claim``; each run has a session of its own unless one
        was named or it is in a ``Session``. ``done`` marks tasks as done if the command ends with
        0; ``note`` is left for the next holder at a release. ``grace`` is the time from TERM to
        KILL if the command must be stopped, ``cwd`` its folder, by default the current one. Its
        environment is this program's with ``GITLEASE_RESOURCE``, ``GITLEASE_TOKEN`` and the others
        of `gitlease run`.

        Signals sent to this program go to the command. Only for the main thread; elsewhere use
        ``gitlease.hold`` around your own command. Raises what ``claim`` raises, NotFound or Invalid
        for a command that cannot be executed, before anything is claimed, and LeaseLost if a lease
        was lost: then the command was stopped.
        """
        _only_in_main_thread("run")
        _need_repository(self._workspace, "run")

        workspace = self._workspace if self._is_run else in_a_run(self._workspace, "run")
        door = CloneDoor(workspace)
        values = TERMS.values(door, terms)
        request = _request(self, command, values, cwd, grace, note=to_note(note), done=done)
        ran = run_claimed(
            workspace,
            request,
            lambda: run_text.claim_for_run(
                door, request, door.resources(resources), values, next=next
            ),
            on_claim=lambda _answer: None,
            on_stop=lambda _why: None,
            brief=partial(run_text.brief_of, door, done=done) if next or done else None,
        )
        warnings = (*door.granted(ran.answer), *ran.answer.warnings, *ran.warnings)
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
        self,
        command: Sequence[str],
        *,
        jobs: int = 1,
        worktrees: bool = False,
        base: str | None = None,
        forever: bool = False,
        done_on_success: bool = False,
        land: bool = False,
        pr: str | Sequence[str] | None = None,
        by: Literal["rebase", "merge"] | None = None,
        check: str | Sequence[str] | None = None,
        unfenced: bool = False,
        no_verify: bool = False,
        max_failures: int | None = None,
        budget: int | None = None,
        share_log: int = 0,
        limit: Duration | None = None,
        ttl: Duration | None = None,
        reason: str | None = None,
        commit: bool | None = None,
        grace: Duration | None = None,
        cwd: StrPath | None = None,
        on_event: Callable[[WorkEvent], object] | None = None,
    ) -> WorkResult:
        """A pool: run the command for one task of the queue after the other.

        ``jobs`` run at once, each in the background with a lease, a session and a log of its own;
        the options and outcomes are those of `gitlease work`. It returns when the queue is empty,
        with ``forever`` when interrupted. Ctrl-C once: no new tasks; twice, or TERM: the runs are
        stopped and their tasks released. ``land`` lands what succeeds, ``pr`` hands its branch to a
        command; ``by``, ``check``, ``unfenced`` and ``no_verify`` are those of ``leases.land``.
        ``on_event`` is called with each ``WorkEvent``, in this thread; if it raises, the runs are
        stopped and the pool ends.

        Each run is a fork of this program, so this is only for the main thread of a program without
        other threads. Raises UsageError otherwise, NotFound or Invalid for a command that cannot be
        executed, and permanent failures of a claim, once all runs have ended.
        """
        _only_in_main_thread("work")
        _need_repository(self._workspace, "work")
        _only_thread()
        if not isinstance(jobs, int) or not 1 <= jobs <= MOST_JOBS:
            raise UsageError(f"jobs must be a number from 1 to {MOST_JOBS}")
        for name, most in (("max_failures", max_failures), ("budget", budget)):
            if most is not None and (not isinstance(most, int) or most < 1):
                raise UsageError(f"{name} must be a number, at least 1")
        if not isinstance(share_log, int) or not 0 <= share_log <= MOST_SHARED:
            raise UsageError(f"share_log must be a number from 0 to {MOST_SHARED}")
        if on_event is not None and not callable(on_event):
            raise UsageError("on_event must be a function")
        of_landing = {"base": base, "by": by, "check": check, "unfenced": unfenced}
        terms = LANDING.values(self._door, {**of_landing, "no_verify": no_verify})
        options = {"land": land, "pr": pr, "done_on_success": done_on_success}
        lands = run_text.is_landing(self._door, {**options, "worktrees": worktrees}, terms)
        done, worktrees, finisher = done_on_success or lands, worktrees or lands, None
        given = TERMS.values(self._door, {"ttl": ttl, "reason": reason, "commit": commit})
        run = _request(self, command, given, cwd, grace, share_log=share_log, done=done)
        if lands:
            words = COMMAND_WORDS.read(None, pr, "pr") if pr is not None else ()
            base, finisher = pool_finisher(self._workspace, run.directory, words, _log, **terms)
        request = PoolRequest(
            run=replace(run, finisher=finisher, limit=to_seconds(limit, "limit")),
            brief=partial(
                run_text.brief, prog="gitlease", done=done, commit=worktrees, lands=lands
            ),
            open_at=self._open_at,
            worktrees=worktrees,
            base=base,
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
            PoolLimits(jobs=jobs, max_failures=max_failures, budget=budget, forever=forever),
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

    def _carry_out(self, method: Method, given: Mapping[str, Any]) -> Any:
        """Carry out a verb of the table with these arguments."""
        values = method.values(self._door, given)
        result = method.declared.function(self._door, **values)
        self._note(result)
        if result.refused:
            raise result.refused[0]
        return method.answer_of(result)

    def _note(self, result: Result) -> None:
        self.warnings = tuple(result.warnings)


@refusing_class
class Session(Leases):
    """The verbs of ``Leases``, for one run that lasts as long as a ``with`` block.

    ``lost`` is an event, set once any lease of it is lost.
    """

    _is_run = True

    def __init__(
        self,
        workspace: Workspace,
        *,
        on_lost: OnLost | None = None,
        layer: str | None = None,
        open_at: Callable[[str], Workspace] = open_workspace,
    ) -> None:
        super().__init__(in_a_run(workspace, "session"), layer=layer, open_at=open_at)
        self.lost = threading.Event()
        self._on_lost = on_lost
        self._kept = HeldLeases(self._workspace, self.lost, self._report)

    def check(self) -> None:
        """Raise LeaseLost if any lease that was claimed here is lost."""
        self._kept.check()

    def __exit__(self, *raised: object) -> None:
        self._kept.release()
        error = next((x for x in raised if isinstance(x, BaseException)), None)
        self._kept.end(error)

    def _report(self, lost: Lost) -> None:
        if self._on_lost is not None:
            call_in_thread(self._on_lost, self, lost.error)

    def _note(self, result: Result) -> None:
        if result.answer is not None:
            self._kept.learn(result.answer)
        super()._note(result)


# --- commands under leases ------------------------------------------------------------------------


def _request(
    leases: Leases,
    command: Sequence[str],
    terms: Mapping[str, Any],
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
        options=claim_options(**{x: y for x, y in terms.items() if x != "wait"}),
        grace=to_seconds(grace, "grace"),
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


# --- callbacks ------------------------------------------------------------------------------------


def _opener(workspace: Workspace) -> Opener:
    actor = workspace.identity.actor
    session = actor.session if actor.session_explicit else None
    return lambda stopped: workspace.again(session=session, clock=workspace.waking_clock(stopped))


class Subscription(Generic[Callback]):
    """A function that is called for events, from now until ``stop``.

    ``error`` is the refusal that ended it, if any. ``ready`` waits for the first look at the
    remote, after which no event is missed.
    """

    def __init__(
        self,
        function: Callback,
        opened: Opener,
        parts: list[Part] | None = None,
    ) -> None:
        """``parts``: report their availability; None: report assignments."""
        if not callable(function):
            raise UsageError("a subscription needs a function")
        functools.update_wrapper(self, function)
        self._function, self._parts, self._opened = function, parts, opened
        self._stopped, self._ready = threading.Event(), threading.Event()
        self.error: GitleaseError | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"gitlease {self._name()}", daemon=True
        )
        self._thread.start()

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped" if self.error is None else "failed"
        return f"<Subscription {self._name()}: {state}>"

    @property
    def function(self) -> Callback:
        """The decorated function."""
        return self._function

    def __call__(self, event: WatchEvent) -> Any:
        return self._function(event)

    @property
    def running(self) -> bool:
        """Whether the function will still be called."""
        return self._thread.is_alive() and not self._stopped.is_set()

    def ready(self, timeout: float | None = None) -> bool:
        """Wait until the watch has begun, at most ``timeout`` seconds; return whether it has."""
        return self._ready.wait(timeout) and self.error is None

    def stop(self, timeout: float | None = None) -> None:
        """Stop, and wait for a call under way, at most ``timeout`` seconds."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            self._watch()
        except InterruptedError:
            return  # stopped
        except GitleaseError as error:
            self.error = error
        finally:
            self._ready.set()

    def _watch(self) -> None:
        ledger = self._opened(self._stopped).ledger
        wanted = "assigned" if self._parts is None else "available"
        watcher = Watcher(
            ledger,
            self._parts or (),
            assignments=self._parts is None,
            on_begin=lambda _head: self._ready.set(),
        )
        for event in watcher.events():
            if self._stopped.is_set():
                return
            if event.kind == wanted:
                self._call(event)

    def _call(self, event: WatchEvent) -> None:
        try:
            self._function(event)
        except Exception as error:
            args = (type(error), error, error.__traceback__, self._thread)
            threading.excepthook(threading.ExceptHookArgs(args))

    def _name(self) -> str:
        if self._parts is None:
            return "on_assignment"
        return " ".join(("on_available", *(resource.text for resource, _ in self._parts)))
