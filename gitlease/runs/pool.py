"""A pool of runs: it takes the next task, runs a command for it, and goes on with the next.

It decides only how many run at once, which task is tried again, and when it is over. What a task
is, how it is claimed and what runs for it is up to the maker of ``Job``.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from gitlease.core.errors import GitleaseError, NothingLeft, Unavailable
from gitlease.core.frozen import dataclass
from gitlease.runs.runs import RunRecord

DONE, GIVEN_BACK, FAILED = "done", "given_back", "failed"
LOST, STOPPED = "lost", "stopped"
POLL = 0.1  # seconds between two polls of the jobs
SOON, SLOW = 10.0, 60.0  # seconds until an empty queue is read again; from a minute on
RETRY = 5.0  # seconds until an unreachable remote is asked again
PATIENCE = 600.0  # seconds without an answer after which a pool gives up, unless it is for ever
MOST_JOBS = 64


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The result of a job.

    ``outcome``: the task is ``done``; or the command succeeded and the task was given back, not
    done; or the command ``failed``; or its lease was ``lost``; or it was ``stopped`` with the pool.
    ``exit`` is the command's status, if it had one.
    """

    outcome: str
    exit: int | None = None
    message: str | None = None


class Job(Protocol):
    """A task that a command works on."""

    @property
    def name(self) -> str:
        """The task."""

    @property
    def record(self) -> RunRecord:
        """What is on record of its run."""

    @property
    def began(self) -> float:
        """When it began, in seconds of the monotonic clock."""

    def poll(self) -> JobEnd | None:
        """What it came to, once it has ended."""

    def stop(self) -> None:
        """Ask it to end and to give its task back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """``jobs`` at once; a task that failed ``max_failures`` times is left alone."""

    jobs: int = 1
    max_failures: int = 3
    forever: bool = False


@dataclass(frozen=True, slots=True)
class PoolEvent:
    """An event: ``started``, ``ended``, ``left_alone``, ``idle``, or ``trouble``."""

    kind: str
    job: Job | None = None
    end: JobEnd | None = None
    failures: int = 0
    message: str | None = None


class Pool:
    """``take`` claims and starts the first task that is none of some names, or raises NothingLeft.

    ``stopping`` returns 0 to go on, 1 to take no new task, 2 to stop what runs as well. ``pause``
    sleeps for some seconds, or until a signal comes; ``clock`` counts seconds.
    """

    def __init__(
        self,
        take: Callable[[frozenset[str]], Job | None],
        limits: PoolLimits,
        *,
        tell: Callable[[PoolEvent], None],
        stopping: Callable[[], int],
        pause: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self._take, self._limits, self._tell = take, limits, tell
        self._stopping, self._pause, self._clock = stopping, pause, clock
        self.running: list[Job] = []
        self.counts: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._left_alone: set[str] = set()
        self._empty_since: float | None = None
        self._ask_at = 0.0
        self._fault: GitleaseError | None = None
        self._answered: float | None = None

    def work(self) -> None:
        """Work until the queue is empty, or for ever.

        A permanent failure is raised once everything that runs has ended.
        """
        while True:
            self._reap()
            if self._stopping() >= 2:
                for job in self.running:
                    job.stop()
            if self._may_take() and self._take_one():
                continue
            if not self.running and self._is_over():
                break
            self._pause(POLL)
        if self._fault is not None:
            raise self._fault

    def end(self) -> None:
        """Stop what runs, without events, and return once all of it has ended."""
        for job in self.running:
            job.stop()
        while self.running:
            self.running = [job for job in self.running if job.poll() is None]
            self._pause(POLL)

    def _is_over(self) -> bool:
        if self._stopping() or self._fault is not None:
            return True
        return self._empty_since is not None and not self._limits.forever

    def _may_take(self) -> bool:
        if self._stopping() or self._fault is not None or len(self.running) >= self._limits.jobs:
            return False
        return self._clock() >= self._ask_at

    def _take_one(self) -> bool:
        """Whether there was something to take, so that it is worth asking for more at once."""
        try:
            job = self._next()
        except NothingLeft:
            self._nothing()
            return False
        except Unavailable as trouble:
            if self._answered is None:
                self._fault = trouble  # the remote has never answered
                return False
            self._ask_at = self._clock() + RETRY
            self._tell(PoolEvent("trouble", message=trouble.message))
            if not self._limits.forever and self._clock() - self._answered > PATIENCE:
                self._fault = trouble
            return False
        except GitleaseError as fault:
            self._fault = fault
            return False
        self._empty_since, self._answered = None, self._clock()
        if job is not None:
            self.running.append(job)
            self._tell(PoolEvent("started", job))
        return True

    def _next(self) -> Job | None:
        # What failed before comes after everything else. A run gives its task back before it has
        # ended: until then it must not be taken again.
        skip = self._left_alone | {job.name for job in self.running}
        if self._failures:
            with contextlib.suppress(NothingLeft):
                return self._take(frozenset(skip | self._failures.keys()))
        return self._take(frozenset(skip))

    def _nothing(self) -> None:
        # What runs now may free something, and so may other people.
        now = self._answered = self._clock()
        if self._empty_since is None:
            self._empty_since = now
            if self._limits.forever or self.running:
                self._tell(PoolEvent("idle"))
        self._ask_at = now + (SOON if now - self._empty_since < SLOW else SLOW)

    def _reap(self) -> None:
        for job in list(self.running):
            end = job.poll()
            if end is None:
                continue
            self.running.remove(job)
            self.counts[end.outcome] += 1
            self._tell(PoolEvent("ended", job, end))
            self._judge(job, end)
            self._ask_at, self._empty_since = 0.0, None

    def _judge(self, job: Job, end: JobEnd) -> None:
        """Leave a task alone that failed too often, was stopped, or was not finished."""
        failed = end.outcome in (FAILED, LOST)
        if failed:
            self._failures[job.name] += 1
        # What was stopped on its own is not to be started again either.
        if (
            end.outcome in (GIVEN_BACK, STOPPED)
            or self._failures[job.name] >= self._limits.max_failures
        ):
            self._left_alone.add(job.name)
            if failed:
                self._tell(PoolEvent("left_alone", job, end, self._failures[job.name]))
