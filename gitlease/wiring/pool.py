"""The composition root of a pool: tasks of the queue are claimed, and runs in the background work.

Each job has a session, a log and a record of its own, as any run in the background, which ends
when this process does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from gitlease.core.edge import Task
from gitlease.core.errors import (
    GitleaseError,
    Invalid,
    LeaseHeld,
    NotFound,
    NothingLeft,
    PolicyRefused,
)
from gitlease.core.frozen import dataclass, replace
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import WHOLE
from gitlease.engine import claim
from gitlease.engine.answers import Answer, ClaimOptions
from gitlease.git.remote_branches import main_branch
from gitlease.git.repository import Repository
from gitlease.git.worktrees import drop_branch, fit_name, open_worktree, remove_worktree
from gitlease.runs.pool import (
    DONE,
    FAILED,
    GIVEN_BACK,
    LOST,
    STOPPED,
    Job,
    JobEnd,
    Pool,
    PoolEvent,
    PoolLimits,
)
from gitlease.runs.runs import RunRecord
from gitlease.settings.sources import remotes_of_work
from gitlease.wiring.dispatch import OnStop, Say, dispatch, runs_of
from gitlease.wiring.holding import in_a_run
from gitlease.wiring.running import RunRequest, check_command, give_back
from gitlease.wiring.workspace import Workspace

BRANCHES = "work"  # the folder of branches, one for each task
KIND = "work"
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Brief = Callable[[Answer, Task | None], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRequest:
    """What a pool runs for each task, and how it claims it.

    ``base`` is where branches of linked work trees begin; None: there are none. ``open_at`` opens
    the same ledger for such a work tree. ``brief`` says what a command is to know of its task.
    """

    run: RunRequest
    options: ClaimOptions
    brief: Brief
    open_at: Callable[[str], Workspace]
    base: str | None = None


def pool_request(
    workspace: Workspace,
    words: Sequence[str],
    options: ClaimOptions,
    *,
    directory: str,
    grace: int | None,
    layer: str | None,
    done: bool,
    brief: Brief,
    open_at: Callable[[str], Workspace],
    worktrees: bool,
    base: str | None,
) -> PoolRequest:
    """What a pool is asked: ``done`` and the others are as in ``RunRequest``.

    Raises Invalid where no main branch is known for work trees, and none is given.
    """
    run = RunRequest(
        words=tuple(words),
        directory=os.path.abspath(directory),
        scope=WHOLE,
        grace=grace,
        commit=options.commit,
        layer=layer,
        stops=True,
        done=done,
        tells=True,
        with_parent=True,
    )
    start = _base_of(workspace, base) if worktrees else None
    return PoolRequest(run=run, options=options, brief=brief, open_at=open_at, base=start)


class PoolJob:
    """A run in the background that works on one task."""

    def __init__(
        self,
        workspace: Workspace,
        answer: Answer,
        request: RunRequest,
        record: RunRecord,
        leave: Callable[[], str | None],
    ) -> None:
        self._workspace, self._answer, self._request = workspace, answer, request
        self.record, self._leave = record, leave
        self.began = time.monotonic()
        self._told = False

    @property
    def name(self) -> str:
        return self.record.resources[0]

    def poll(self) -> JobEnd | None:
        if os.waitpid(self.record.runner, os.WNOHANG)[0] == 0:
            return None
        record = runs_of(self._workspace).latest_of(self.record)
        if record.outcome is None:  # its runner was killed, and the guardian ends the command
            said = give_back(self._workspace, self._answer, self._request)
            return self._ended(JobEnd(FAILED, None, "; ".join(("its runner was killed", *said))))
        if record.finished:
            return self._ended(JobEnd(DONE, record.exit))
        if record.outcome in (LOST, STOPPED):
            return self._ended(JobEnd(record.outcome, record.exit, record.message))
        undone = record.exit == 0 and not self._request.done
        outcome = GIVEN_BACK if undone else FAILED
        return self._ended(JobEnd(outcome, record.exit, record.message))

    def stop(self) -> None:
        if not self._told:
            self._told = True
            os.kill(self.record.runner, signal.SIGTERM)  # our own child, which nobody else reaps

    def _ended(self, end: JobEnd) -> JobEnd:
        kept = self._leave()
        return replace(end, message="; ".join(filter(None, (end.message, kept)))) if kept else end


class PoolTaker:
    """Claims the next task and starts its run; ``say`` and ``on_stop`` are as for ``dispatch``."""

    def __init__(
        self,
        workspace: Workspace,
        request: PoolRequest,
        *,
        say: Say,
        on_stop: OnStop,
        warn: Callable[[str], None],
        stopping: Callable[[], int],
    ) -> None:
        self._workspace, self._request = workspace, request
        self._say, self._on_stop, self._warn = say, on_stop, warn
        self._stopping = stopping
        self._warned: set[str] = set()
        self._unfit: set[str] = set()

    def take(self, skip: Collection[str]) -> Job | None:
        """A job for the first task that is free; None where it could not be started after all.

        Raises NothingLeft, and whatever a claim raises.
        """
        if self._request.base is not None:
            return self._take_apart(skip, self._request.base)
        space = in_a_run(self._workspace, KIND, always=True)
        answer, task = space.queue.claim_next(self._request.options, skip=skip)
        return self._started(space, answer, task, self._request.run, lambda: None)

    def _take_apart(self, skip: Collection[str], base: str) -> Job | None:
        """The same in a linked work tree, which is there before the task is claimed in it."""
        reading = self._workspace.queue.next_task()
        names = {fold(name) for name in skip} | self._unfit
        for entry in reading.next_up:
            name = entry.task.resource.text
            if fold(name) in names:
                continue
            tree = self._worktree(name, base)
            folder = tree.toplevel or tree.git_dir
            space = in_a_run(self._request.open_at(folder), KIND, always=True)
            options = replace(self._request.options, commit=True)
            try:
                answer = claim.claim(space.ledger, [entry.task.resource], options)
            except GitleaseError as refusal:
                self._left(tree)
                # Of a work tree that is kept, git keeps the branch.
                if not os.path.lexists(folder):
                    drop_branch(self._workspace.repository, f"{BRANCHES}/{fit_name(name)}", base)
                if not isinstance(refusal, LeaseHeld | NotFound | PolicyRefused):
                    raise
                if not isinstance(refusal, LeaseHeld):
                    self._unfit.add(fold(name))  # its file is not on the branch, say
                where = " on its branch" if isinstance(refusal, NotFound) else ""
                self._tell(f"passed over: {refusal.message}{where}")
                continue
            request = replace(self._request.run, directory=folder, commit=True)
            return self._started(space, answer, entry.task, request, partial(self._left, tree))
        raise NothingLeft("nothing is left to claim")

    def _started(
        self,
        space: Workspace,
        answer: Answer,
        task: Task | None,
        request: RunRequest,
        leave: Callable[[], str | None],
    ) -> Job | None:
        for text in answer.warnings:
            self._tell(text)
        request = replace(request, brief=self._request.brief(answer, task))
        if self._stopping():
            for text in give_back(space, answer, request):
                self._tell(text)
            leave()
            return None
        record = dispatch(space, answer, request, say=self._say, on_stop=self._on_stop)
        return PoolJob(space, answer, request, record, leave)

    def _worktree(self, name: str, base: str) -> Repository:
        fit = fit_name(name)
        return open_worktree(self._workspace.repository, fit, branch=f"{BRANCHES}/{fit}", base=base)

    def _left(self, tree: Repository) -> str | None:
        return remove_worktree(self._workspace.repository, tree)

    def _tell(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRan:
    """How many tasks came to what, and the signal that had what ran stopped, where one had."""

    counts: Counter[str]
    stopped_by: int | None


def work(
    workspace: Workspace,
    request: PoolRequest,
    limits: PoolLimits,
    *,
    say: Say,
    on_stop: OnStop,
    tell: Callable[[PoolEvent], None],
    warn: Callable[[str], None],
    pause: Callable[[float, Sequence[Job]], None] = lambda seconds, _running: time.sleep(seconds),
) -> PoolRan:
    """Work on the tasks of the queue; for the main thread of a process without any others.

    INT has it take no new tasks; a second one, TERM or HUP stop what runs as well. Raises what
    fails for good, and what ``tell`` raises, once all that runs has ended and is given back.
    """
    check_command(request.run)
    with _stopping() as stops:
        taker = PoolTaker(
            workspace, request, say=say, on_stop=on_stop, warn=warn, stopping=stops.wanted
        )
        pool = Pool(
            taker.take,
            limits,
            tell=tell,
            stopping=stops.wanted,
            pause=lambda seconds: pause(seconds, pool.running),
            clock=time.monotonic,
        )
        try:
            pool.work()
        finally:
            pool.end()
    return PoolRan(counts=pool.counts, stopped_by=stops.last if stops.wanted() >= 2 else None)


class _Stops:
    """How often somebody asked the pool to end."""

    def __init__(self) -> None:
        self._asked, self.last = 0, signal.SIGINT

    def heard(self, signum: int, _frame: object) -> None:
        self.last = signal.Signals(signum)
        self._asked += 1 if signum == signal.SIGINT else 2

    def wanted(self) -> int:
        return min(self._asked, 2)


@contextlib.contextmanager
def _stopping() -> Iterator[_Stops]:
    stops = _Stops()
    before = {signum: signal.signal(signum, stops.heard) for signum in STOPS}
    try:
        yield stops
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _base_of(workspace: Workspace, given: str | None) -> str:
    """Where the branches of linked work trees begin: the main branch as it is known here."""
    if given is not None:
        return given
    repository = workspace.repository
    found = main_branch(repository, remotes_of_work(workspace.location, repository))
    if found is None:
        raise Invalid("no main branch of the remote is known here; name one with --base")
    return found
