"""A pool of runs in the background that work on the tasks of the queue.

Each job has a session, a log and a record of its own, as any run in the background, and is stopped
when this process ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

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
from gitlease.engine import claim
from gitlease.engine.answers import Answer, ClaimOptions
from gitlease.git.worktrees import drop_branch, fit_name, open_worktree, remove_worktree
from gitlease.runs.dispatch import Print, dispatch
from gitlease.runs.holding import in_a_run
from gitlease.runs.leased_command import LeasedCommand, OnStop, RunRequest
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
from gitlease.runs.runs import RunRecord, runs_of

if TYPE_CHECKING:
    from gitlease.runs.place import RunPlace

BRANCHES = "work"  # the folder of branches, one for each task
KIND = "work"
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRequest:
    """What a pool runs for each task, and how it claims it.

    ``open_at`` opens the same ledger for a linked work tree, if each task gets one: ``worktrees``.
    Their branches begin at ``base``, or at the main branch. ``brief`` makes the brief of a task.
    """

    run: RunRequest
    options: ClaimOptions
    brief: Callable[[Answer, Task | None], str]
    open_at: Callable[[str], RunPlace]
    worktrees: bool = False
    base: str | None = None


class PoolJob:
    """A run in the background that works on one task."""

    def __init__(
        self, command: LeasedCommand, record: RunRecord, clean_up: Callable[[], str | None]
    ) -> None:
        self._command, self.record, self._clean_up = command, record, clean_up
        self.began = time.monotonic()
        self._asked_to_stop = False

    @property
    def name(self) -> str:
        return self.record.resources[0]

    def poll(self) -> JobEnd | None:
        if os.waitpid(self.record.runner, os.WNOHANG)[0] == 0:
            return None
        end = self._end()
        messages = filter(None, (end.message, self._clean_up()))
        return replace(end, message="; ".join(messages) or None)

    def _end(self) -> JobEnd:
        record = runs_of(self._command.place).latest_of(self.record)
        if record.outcome is None:  # its runner was killed, and the guardian ends the command
            messages = ("its runner was killed", *self._command.give_back())
            return JobEnd(FAILED, None, "; ".join(messages))
        if record.finished:
            return JobEnd(DONE, record.exit)
        if record.outcome in (LOST, STOPPED):
            return JobEnd(record.outcome, record.exit, record.message)
        not_done = record.exit == 0 and not self._command.request.done
        return JobEnd(GIVEN_BACK if not_done else FAILED, record.exit, record.message)

    def stop(self) -> None:
        if not self._asked_to_stop:
            self._asked_to_stop = True
            os.kill(self.record.runner, signal.SIGTERM)  # our own child, which nobody else reaps


class PoolTaker:
    """Claims the next task and starts its run; ``say`` and ``on_stop`` are as for ``dispatch``.

    ``base``: the branches of linked work trees begin there. None: there are no such work trees.
    """

    def __init__(
        self,
        place: RunPlace,
        request: PoolRequest,
        base: str | None,
        *,
        say: Print,
        on_stop: OnStop,
        warn: Callable[[str], None],
        stop_level: Callable[[], int],
    ) -> None:
        self._place, self._request, self._base = place, request, base
        self._say, self._on_stop, self._warn = say, on_stop, warn
        self._stop_level = stop_level
        self._warned: set[str] = set()
        self._unfit: set[str] = set()

    def take(self, skip: Collection[str]) -> Job | None:
        """A job for the first task that is free; None if it could not be started.

        Raises NothingLeft, and whatever a claim raises.
        """
        if self._base is not None:
            return self._take_in_worktree(skip, self._base)
        place = in_a_run(self._place, KIND, always=True)
        options = replace(self._request.options, picked=True)
        answer, task = place.queue.claim_next(options, skip=skip)
        return self._start(place, answer, task, self._request.run, lambda: None)

    def _take_in_worktree(self, skip: Collection[str], base: str) -> Job | None:
        """Make the linked work tree first: the task is claimed in it."""
        repository = self._place.repository
        names = {fold(name) for name in skip} | self._unfit
        options = replace(self._request.options, commit=True, picked=True)
        for entry in self._place.queue.next_task().next_up:
            name = entry.task.resource.text
            if fold(name) in names:
                continue
            branch = f"{BRANCHES}/{fit_name(name)}"
            tree = open_worktree(repository, fit_name(name), branch=branch, base=base)
            folder = tree.toplevel or tree.git_dir
            place = in_a_run(self._request.open_at(folder), KIND, always=True)
            try:
                answer = claim.claim(place.ledger, [entry.task.resource], options)
            except GitleaseError as refusal:
                remove_worktree(repository, tree)
                # Of a work tree that is kept, git keeps the branch.
                if not os.path.lexists(folder):
                    drop_branch(repository, branch, base)
                if not isinstance(refusal, LeaseHeld | NotFound | PolicyRefused):
                    raise
                if not isinstance(refusal, LeaseHeld):
                    self._unfit.add(fold(name))  # its file is not on the branch, say
                where = " on its branch" if isinstance(refusal, NotFound) else ""
                self._warn_once(f"passed over: {refusal.message}{where}")
                continue
            request = replace(self._request.run, directory=folder, commit=True)
            clean_up = partial(remove_worktree, repository, tree)
            return self._start(place, answer, entry.task, request, clean_up)
        raise NothingLeft("nothing is left to claim")

    def _start(
        self,
        place: RunPlace,
        answer: Answer,
        task: Task | None,
        request: RunRequest,
        clean_up: Callable[[], str | None],
    ) -> Job | None:
        request = replace(
            request,
            brief=self._request.brief(answer, task),
            stops=True,
            notes_failure=True,
            with_parent=True,
        )
        command = LeasedCommand(place, answer, request)
        stops = self._stop_level() > 0
        for text in (*answer.warnings, *(command.give_back() if stops else ())):
            self._warn_once(text)
        if stops:
            clean_up()
            return None
        record = dispatch(place, answer, request, say=self._say, on_stop=self._on_stop)
        return PoolJob(command, record, clean_up)

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRan:
    """How many tasks came to what, and the signal that had the running ones stopped, if any."""

    counts: Counter[str]
    stopped_by: int | None


def work(
    place: RunPlace,
    request: PoolRequest,
    limits: PoolLimits,
    *,
    say: Print,
    on_stop: OnStop,
    tell: Callable[[PoolEvent], None],
    warn: Callable[[str], None],
    pause: Callable[[float, Sequence[Job]], None] = lambda seconds, _running: time.sleep(seconds),
) -> PoolRan:
    """Work on the tasks of the queue; for the main thread of a process without any others.

    INT makes it take no new tasks; a second one, TERM or HUP stop what runs as well. Raises what
    fails for good, and what ``tell`` raises, once all that runs has ended and is given back.
    Raises Invalid if linked work trees have no base, and no main branch is known.
    """
    request.run.check_command()
    base = request.base
    if request.worktrees and base is None:
        base = place.main_branch()
        if base is None:
            raise Invalid("no main branch of the remote is known here; name one with --base")
    with _stop_requests() as stops:
        taker = PoolTaker(
            place, request, base, say=say, on_stop=on_stop, warn=warn, stop_level=stops.level
        )
        pool = Pool(
            taker.take,
            limits,
            tell=tell,
            stopping=stops.level,
            pause=lambda seconds: pause(seconds, pool.running),
            clock=time.monotonic,
        )
        try:
            pool.work()
        finally:
            pool.end()
    return PoolRan(counts=pool.counts, stopped_by=stops.last if stops.level() >= 2 else None)


class _StopRequests:
    """Counts the signals received that ask the pool to end."""

    def __init__(self) -> None:
        self._count, self.last = 0, signal.SIGINT

    def receive(self, signum: int, _frame: object) -> None:
        self.last = signal.Signals(signum)
        self._count += 1 if signum == signal.SIGINT else 2

    def level(self) -> int:
        return min(self._count, 2)


@contextlib.contextmanager
def _stop_requests() -> Iterator[_StopRequests]:
    stops = _StopRequests()
    before = {signum: signal.signal(signum, stops.receive) for signum in STOPS}
    try:
        yield stops
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
