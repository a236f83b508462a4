"""A pool of runs in the background: it takes the next task, runs a command for it, and goes on.

Each job has a session, a log and a record of its own, and is stopped when this process ends.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from gitlease.kernel.git.branches import Branches
from gitlease.kernel.git.repository import Repository, ask_line
from gitlease.kernel.git.run import local_variables_cleared
from gitlease.kernel.ledger.answers import Answer
from gitlease.kernel.ledger.heartbeat import in_a_run
from gitlease.kernel.rules.edge import Task
from gitlease.kernel.rules.errors import (
    GitleaseError,
    Invalid,
    NothingLeft,
    PolicyRefused,
    Unavailable,
)
from gitlease.kernel.rules.frozen import dataclass, field, replace
from gitlease.kernel.rules.moves.claiming import fit_ttl
from gitlease.runs.child import handling
from gitlease.runs.leased_command import LeasedCommand, OnStop, Print, RunRequest, dispatch
from gitlease.runs.pool_worktrees import KIND, PoolWorktrees
from gitlease.runs.records import (
    DONE,
    FAILED,
    GIVEN_BACK,
    LOST,
    STOPPED,
    WAITING,
    RunPlace,
    RunRecord,
    claiming,
    record_of,
    runs_of,
)
from gitlease.runs.worktrees import commits_behind
from gitlease.tasks.queue import WhyNot

EMPTY, ENOUGH = "ended", "enough"  # why a pool is over; also the event of no new tasks
ATTEMPTS = 3  # of one pool at a task that fails
POLL = 0.1  # seconds between two polls of the jobs
SOON, SLOW = 10.0, 60.0  # seconds until an empty queue is read again; from a minute on
RETRY = 5.0  # seconds until an unreachable remote is asked again
COUNTED = 2.0  # seconds between two counts of the tasks that are left, while it works
PATIENCE = 600.0  # seconds without an answer after which a pool gives up, unless it is for ever


@dataclass(frozen=True)
class JobEnd:
    """The result of a job, as in a ``RunRecord``, and the command's status, if it had one."""

    outcome: str
    exit: int | None = None
    message: str | None = None


class Job:
    """A run in the background that works on one task."""

    def __init__(self, command: LeasedCommand, clean_up: Callable[[], str | None]) -> None:
        self._command = command
        self._clean_up = clean_up
        self.record = command.record
        self.began = time.monotonic()
        self._stopped = False
        self._reaped = False

    @property
    def name(self) -> str:
        return self.record.resources[0]

    def poll(self) -> JobEnd | None:
        if not self._reaped:
            if os.waitpid(self.record.runner, os.WNOHANG)[0] == 0:
                return None
            self._stopped = self._reaped = True  # its process number is free now
        runs = runs_of(self._command.place)
        record = runs.latest_of(self.record)
        outcome = record.result
        messages = [record.message]
        if outcome is None:  # its runner was killed, and the guardian ends the command
            outcome = FAILED
            why = "its runner was killed"
            if runs.is_dead(record):
                note = f"{why}, log {record.log}"
                messages = [why, *self._command.give_back(note=note, failed=True)]
            elif runs.may_outlive(record):
                messages = [f"{why} with its guardian, and its lease ends by itself"]
            else:
                return None
        if outcome == DONE:
            messages = []
        try:
            messages.append(self._clean_up())
        except (GitleaseError, OSError) as error:
            messages.append(f"its work tree was kept: {error}")
        return JobEnd(outcome, record.exit, "; ".join(filter(None, messages)) or None)

    def last_line(self) -> str:
        return runs_of(self._command.place).last_line(self.record)

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            os.kill(self.record.runner, signal.SIGTERM)  # our own child, which nobody else reaps


@dataclass(frozen=True, kw_only=True)
class PoolLimits:
    """``jobs`` at once; none more once ``max_failures`` tasks failed, or ``budget`` were taken."""

    jobs: int = 1
    max_failures: int | None = None
    budget: int | None = None
    forever: bool = False


@dataclass(frozen=True)
class PoolEvent:
    """``started``, ``ended``, ``left_alone``, ``idle``, ``enough``, ``trouble`` or ``warning``."""

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
        self._take = take
        self._limits = limits
        self._tell = tell
        self._stopping = stopping
        self._pause = pause
        self._clock = clock
        self.running: list[Job] = []
        self.results: dict[str, str] = {}  # of the tasks, by their last run
        self._failures: Counter[str] = Counter()
        self._taken, self.enough = 0, False
        self.waiting: set[str] = set()
        self._left_alone: set[str] = set()
        self._empty_since: float | None = None
        self._ask_at = 0.0
        self._fault: GitleaseError | None = None
        self._answered: float | None = None

    @property
    def counts(self) -> Counter[str]:
        """The tasks by their results."""
        return Counter(self.results.values())

    def work(self) -> None:
        """Work until the queue is empty. A permanent failure is raised once all jobs ended."""
        while True:
            self._reap()
            if self._stopping() >= 2:
                for job in self.running:
                    job.stop()
            stops = self._stopping() or self._fault is not None or self.is_enough()
            has_room = len(self.running) < self._limits.jobs and self._clock() >= self._ask_at
            if has_room and not stops and self._take_one():
                continue
            stops = stops or self._fault is not None
            is_over = self._empty_since is not None and not self._limits.forever
            if not self.running and (stops or is_over):
                break
            self._pause(POLL)
        if self._fault is not None:
            raise self._fault

    def is_enough(self) -> bool:
        most, failed = self._limits, len(+self._failures)
        why = ""
        if most.max_failures is not None and failed >= most.max_failures:
            why = f"{failed} tasks failed" if failed > 1 else "1 task failed"
        elif most.budget is not None and self._taken >= most.budget:
            why = f"the budget of {most.budget} is used up"
        if why and not self.enough:
            self.enough = True
            self._tell(PoolEvent(ENOUGH, message=why))
        return self.enough

    def end(self) -> None:
        """Stop what runs, without events, and return once all of it has ended."""
        for job in self.running:
            job.stop()
        while self.running:
            self.running = [job for job in self.running if job.poll() is None]
            self._pause(POLL)

    def _take_one(self) -> bool:
        """Take a task; return whether it is worth asking for another one at once."""
        # A run gives its task back before it has ended: until then it must not be taken again.
        # What failed before comes after everything else.
        skip = self._left_alone | {job.name for job in self.running}
        try:
            try:
                job = self._take(frozenset(skip | (+self._failures).keys()))
            except NothingLeft:
                if not self._failures.total():
                    raise
                job = self._take(frozenset(skip))
        except NothingLeft:
            # What runs now may free something, and so may other people.
            now = self._answered = self._clock()
            if self._empty_since is None:
                self._empty_since = now
                if self._limits.forever or self.running:
                    self._tell(PoolEvent("idle"))
            self._ask_at = now + (SOON if now - self._empty_since < SLOW else SLOW)
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
        self._empty_since = None
        self._answered = self._clock()
        if job is not None:
            self.running.append(job)
            # A task counts by its last run: what failed and was done then is done.
            self.results.pop(job.name, None)
            self._taken += 1
            self._tell(PoolEvent("started", job))
        return True

    def _reap(self) -> None:
        for job in list(self.running):
            end = job.poll()
            if end is None:
                continue
            self.running.remove(job)
            self.results[job.name] = end.outcome
            self._tell(PoolEvent("ended", job, end))
            # Its end may have freed a task.
            self._ask_at = 0.0
            self._empty_since = None
            name = job.name
            failed = end.outcome in (FAILED, LOST)
            self._failures[name] += failed
            too_often = self._failures[name] >= ATTEMPTS
            # What was stopped on its own is not to be started again either.
            if too_often or end.outcome in (GIVEN_BACK, STOPPED, WAITING):
                self._left_alone.add(name)
                self.waiting |= {name} if end.outcome == WAITING else set()
                if failed:
                    self._tell(PoolEvent("left_alone", job, end, self._failures[name]))


NAMED = 3  # tasks that a warning lists
AGAIN = 60.0  # seconds until a task that was passed over is tried again
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, kw_only=True)
class PoolRequest:
    """The command of a pool, in ``worktrees`` that begin at ``base`` or the main branch.

    ``open_at`` opens the same ledger for one of them. ``brief`` makes the brief of a task.
    """

    run: RunRequest
    brief: Callable[[Answer, Task | None], str]
    open_at: Callable[[str], RunPlace]
    worktrees: bool = False
    base: str | None = None


class PoolTaker:
    """Claims the next task, and has ``start`` run its command."""

    def __init__(
        self,
        place: RunPlace,
        request: PoolRequest,
        start: Callable[[RunPlace, Answer, RunRequest], LeasedCommand],
        *,
        warn: Callable[[str], None],
        stop_level: Callable[[], int],
    ) -> None:
        self._place = place
        self._request = request
        self._start_run = start
        self._warn = warn
        self._stop_level = stop_level
        self._worktrees: PoolWorktrees | None = None
        if request.worktrees and request.base is not None:
            self._worktrees = PoolWorktrees(
                place,
                request.base,
                open_at=request.open_at,
                lands=request.run.finisher is not None,
                warn=self._warn_once,
                pass_over=self._pass_over,
            )
        self._warned = set[str]()
        self._taken = set[str]()
        self._looked_behind: float | None = None
        self._passed_over: dict[str, float] = {}
        self.stranded: dict[str, str] = {}

    def take(self, skip: Collection[str]) -> Job | None:
        """A job for the first free task; None if it could not be started. Raises NothingLeft."""
        now = time.monotonic()
        again = (name for name, at in self._passed_over.items() if now - at < AGAIN)
        skip = frozenset((*skip, *again))
        try:
            if self._worktrees is not None:
                return self._take_in_worktree(skip, self._worktrees)
            self._look_behind()
            place = in_a_run(self._place, KIND, always=True)
            wanted = replace(self._request.run.options, picked=True)
            with claiming(place, wanted) as (run, options):
                answer, task = place.queue.claim_next(options, skip=skip)
            answer = replace(answer, run=run)
        except NothingLeft as nothing:
            for text in nothing.warnings:
                self._warn_once(text)
            if nothing.away:
                more = ", …" if len(nothing.away) > NAMED else ""
                named = ", ".join(nothing.away[:NAMED]) + more
                self._warn_once(f"left alone, since they are not in this checkout: {named}")
            raise
        return self._start(place, answer, task, self._request.run, lambda: None)

    def _take_in_worktree(self, skip: frozenset[str], worktrees: PoolWorktrees) -> Job | None:
        # Tasks are read as they are on the remote now: others may have landed some.
        worktrees.fetch()
        # The edge of a task that lands is committed by the landing.
        options = replace(self._request.run.options, commit=not worktrees.lands, picked=True)
        answer, task = self._place.queue.claim_next(options, skip=skip, worktrees=worktrees)
        worktree = worktrees.claimed_in(task)
        worktrees.catch_up(worktree)
        request = replace(self._request.run, directory=worktree.folder, options=options)
        clean_up = partial(worktrees.remove, worktree)
        return self._start(worktree.place, answer, task, request, clean_up)

    def _pass_over(self, name: str, error: Exception, where: str = "") -> None:
        """Leave a task alone for a while: what stops it stops no other."""
        message = error.message if isinstance(error, GitleaseError) else str(error)
        hints = error.hints if isinstance(error, GitleaseError) else ()
        if os.path.isabs(where):
            hints = (f"git -C {shlex.quote(where)} status says how to go on",)
        why = "; ".join((f"{message} ({where})" if where else message, *hints[:1]))
        self._passed_over[name] = time.monotonic()
        self.stranded[name] = why
        self._warn_once(f"passed over {name}: {why}")

    def _look_behind(self) -> None:
        """Say how many commits of the main branch this checkout lacks, at most once a minute."""
        now = time.monotonic()
        if self._looked_behind is not None and now - self._looked_behind < AGAIN:
            return
        self._looked_behind = now
        ref = self._place.main_branch()
        branches = Branches(self._place.repository)
        source = None if ref is None else branches.tracked(ref)
        if ref is None or source is None:
            return
        with contextlib.suppress(GitleaseError):  # the ledger says whether the remote is away
            branches.fetch(*source)
        behind = commits_behind(self._place.repository, ref)
        if behind:
            many = "1 commit" if behind == 1 else f"{behind} commits"
            self._warn_once(
                f"this checkout is {many} behind {'/'.join(source)}, and its tasks may be out of "
                "date: git pull"
            )

    def names_left(self, without: Collection[str], *, is_over: bool) -> set[str]:
        """Name the tasks that are not done, but those ``without``.

        Once the pool ``is_over``, ``stranded`` gets those that nobody works on.
        """
        base = None if self._worktrees is None else self._worktrees.base
        try:
            # Counted every few seconds, so without a connection.
            reading = self._place.queue.queue(ref=base, cached=True)
        except GitleaseError:  # nothing is known, since nothing was ever claimed
            if not is_over:
                raise
            reading = self._place.queue.queue(ref=base)
        names = set[str]()
        for entry in reading.entries:
            name, view = entry.task.resource.text, entry.lease
            is_kept = entry.setback is not None and entry.setback.waits
            if name in self.stranded or name in without:
                continue
            if entry.why_not in (WhyNot.DONE, WhyNot.STATUS):
                continue
            if not is_over:
                names.add(name)
            elif entry.claimable and name not in self._taken:  # a warning has said why
                self.stranded[name] = "it could not be claimed here"
            elif entry.claimable or is_kept or view is None or view.state == "active":
                names.add(name)
            else:  # its edge, or the margin of time, still keeps the task
                why = f"the lease of {view.holder} has expired, and nobody works on it"
                if view.free_at is not None:
                    why += f"; others may take it from {view.free_at:%H:%M:%SZ} on"
                self.stranded[name] = why
                self._warn_once(f"{name} is stranded: {why}")
        return names

    def _start(
        self,
        place: RunPlace,
        answer: Answer,
        task: Task | None,
        request: RunRequest,
        clean_up: Callable[[], str | None],
    ) -> Job | None:
        request = replace(request, brief=self._request.brief(answer, task), stops=True)
        for text in answer.warnings:
            self._warn_once(text)
        # The signal came while it claimed: what never started is given back.
        if self._stop_level() > 0:
            unstarted = LeasedCommand(place, answer, request, record_of(place, answer))
            for text in unstarted.give_back():
                self._warn_once(text)
            clean_up()
            return None
        name = answer.leases[0].resource
        try:
            command = self._start_run(place, answer, request)
        except Unavailable:
            raise
        except GitleaseError as refusal:
            clean_up()
            self._pass_over(name, refusal)
            return None
        self.stranded.pop(name, None)
        self._taken.add(name)
        return Job(command, clean_up)

    def _warn_once(self, text: str) -> None:
        # The queue is read again and again, and has the same warnings each time.
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)


@dataclass(frozen=True, kw_only=True)
class PoolRan:
    """The number of tasks by result, and the signal that had the running ones stopped.

    ``left`` counts other tasks that are not done, but those that are ``stranded``: nobody works on
    them, and they could not be taken, with the reason. Neither is known if it was stopped.
    """

    counts: Counter[str]
    stopped_by: int | None
    left: int = 0
    stranded: Mapping[str, str] = field(default_factory=dict)


def words_for_worktrees(
    repository: Repository, base: str | None, directory: str, words: Sequence[str]
) -> tuple[str, ...]:
    """A command as each linked work tree can start it: its own program, or else that from here."""
    if os.sep not in words[0] or os.path.isabs(words[0]):
        return tuple(words)
    path = os.path.normpath(os.path.join(os.path.realpath(directory), words[0]))
    inside = os.path.relpath(path, repository.toplevel)
    is_there = inside.split(os.sep)[0] != os.pardir and ask_line(
        repository, "rev-parse", "--verify", "--quiet", f"{base}:{inside}"
    )
    return (os.path.join(os.curdir, inside) if is_there else path, *words[1:])


def _fit_to_worktrees(place: RunPlace, request: PoolRequest) -> PoolRequest:
    """The request with its base, and with its command as each work tree can start it."""
    base = request.base or place.learn_main_branch()
    if base is None:
        raise Invalid("no main branch of the remote is known here; name the base")
    run = request.run
    words = words_for_worktrees(place.repository, base, run.directory, run.words)
    ledger, asked = place.ledger, run.options.ttl
    if asked is not None or not ledger.terms.ttl_is_default:
        try:  # a work tree's claim would be refused for each task
            fit_ttl(asked or ledger.terms.default_ttl, 0, ledger.look().policy, None)
        except PolicyRefused as refusal:
            raise refusal.with_(by_setting=asked is None) from None
    return replace(request, run=replace(run, words=words), base=base)


def work(
    place: RunPlace,
    request: PoolRequest,
    limits: PoolLimits,
    *,
    say: Print,
    on_stop: OnStop,
    tell: Callable[[PoolEvent], None],
    warn: Callable[[str], None],
    pause: Callable[[float, Sequence[Job], RunRecord], None] = lambda x, *_: time.sleep(x),
) -> PoolRan:
    """Work on the tasks of the queue; for the main thread of a process without any others.

    INT makes it take no new tasks; a second one, TERM or HUP stop what runs as well. Raises what
    fails for good, and what ``tell`` raises, once all that runs has ended and is given back.
    """
    request.run.check_command()
    if request.worktrees:
        request = _fit_to_worktrees(place, request)
    stops = list[int]()
    with (
        handling(lambda signum, _frame: stops.append(signum), *STOPS),
        _own_environment(request.worktrees),
    ):
        words, nothing = request.run.words, Answer(status="work")
        record = record_of(place, nothing, words, jobs=limits.jobs, counts={})

        def stop_level() -> int:
            return min(2, sum(1 if x == signal.SIGINT else 2 for x in stops))

        request = replace(request, run=replace(request.run, pool=record.id))
        start = partial(dispatch, say=say, on_stop=on_stop)
        taker = PoolTaker(place, request, start, warn=warn, stop_level=stop_level)

        def note(event: PoolEvent) -> None:
            book.update(pool, taker)
            tell(event)

        pool = Pool(
            taker.take,
            limits,
            tell=note,
            stopping=stop_level,
            pause=lambda seconds: pause(seconds, pool.running, book.record),
            clock=time.monotonic,
        )
        book = _Book(place, record)
        book.update(pool, taker)
        outcome = FAILED
        try:
            pool.work()
            outcome = STOPPED if stops else ENOUGH if pool.enough else EMPTY
        finally:
            pool.end()
            book.update(pool, taker, outcome=outcome)
    return PoolRan(
        counts=pool.counts,
        stopped_by=stops[-1] if stop_level() > 1 else None,
        left=0 if stops else book.left,
        stranded=taker.stranded,
    )


class _Book:
    """Keeps the record of a pool, for other processes. It never fails."""

    def __init__(self, place: RunPlace, record: RunRecord) -> None:
        self._runs = runs_of(place)
        self._clock = place.ledger.clock
        self._names = set[str]()
        self._counted = 0.0
        self.record = record
        self._runs.tidy()

    def update(self, pool: Pool, taker: PoolTaker, outcome: str | None = None) -> None:
        now = time.monotonic()
        without = {job.name for job in pool.running} | pool.waiting
        if outcome in (EMPTY, ENOUGH) or (outcome is None and now - self._counted >= COUNTED):
            with contextlib.suppress(GitleaseError):
                self._names = taker.names_left(without, is_over=outcome == EMPTY)
            self._counted = time.monotonic()
        # Between two counts what was taken, and done, is left no more.
        self.left = len(self._names - without - {x for x, y in pool.results.items() if y == DONE})
        counts = {**pool.counts, "running": len(pool.running), "left": self.left}
        stranded = tuple(sorted(taker.stranded))
        ended = None if outcome is None else self._clock.now().wall_ms
        self.record = replace(
            self.record, counts=counts, stranded=stranded, outcome=outcome, ended_at=ended
        )
        with contextlib.suppress(OSError):
            self._runs.save(self.record)


@contextlib.contextmanager
def _own_environment(worktrees: bool) -> Iterator[None]:
    """Clear what ties git to the tree that this was started in: linked work trees are others."""
    before = dict(os.environ)
    if worktrees:
        os.environ.clear()
        os.environ.update(local_variables_cleared(before))
    try:
        yield
    finally:
        os.environ.update(before)
