"""A pool under a clock that is moved by hand, with jobs that are scripted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from gitlease.kernel.rules.errors import Denied, GitleaseError, NothingLeft, Unavailable
from gitlease.runs.pool import PATIENCE, RETRY, Job, JobEnd, Pool, PoolEvent, PoolLimits
from gitlease.runs.records import DONE, FAILED, GIVEN_BACK, LOST, STOPPED, WAITING


@dataclass
class ScriptedJob:
    """A job that ends after so many seconds, or when it is stopped."""

    name: str
    began: float
    end: JobEnd
    seconds: float
    clock: Callable[[], float]
    stopped: bool = False

    def poll(self) -> JobEnd | None:
        if self.stopped:
            return JobEnd(STOPPED)
        return self.end if self.clock() >= self.began + self.seconds else None

    def stop(self) -> None:
        self.stopped = True


@dataclass
class Queue:
    """Tasks with what each of their runs comes to, one after the other; the last for ever."""

    scripts: dict[str, list[str]]
    now: float = 0.0
    seconds: float = 5.0
    stops: int = 0
    stop_at: float = float("inf")
    troubles: list[GitleaseError] = field(default_factory=list)
    taken: list[tuple[str, float]] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    jobs: list[ScriptedJob] = field(default_factory=list)
    events: list[PoolEvent] = field(default_factory=list)
    most: int = 0
    asked: list[float] = field(default_factory=list)
    at: dict[float, Callable[[], object]] = field(default_factory=dict)

    def take(self, skip: frozenset[str]) -> Job | None:
        self.asked.append(self.now)
        if self.troubles:
            raise self.troubles.pop(0)
        busy = {job.name for job in self.jobs if job.poll() is None}
        free = [x for x in self.scripts if x not in skip | busy | self.done]
        if not free:
            raise NothingLeft("nothing is left to claim")
        name = free[0]
        script = self.scripts[name]
        outcome = script.pop(0) if len(script) > 1 else script[0]
        if outcome == DONE:
            self.done.add(name)
        job = ScriptedJob(name, self.now, JobEnd(outcome), self.seconds, lambda: self.now)
        self.jobs.append(job)
        self.taken.append((name, self.now))
        self.most = max(self.most, len(busy) + 1)
        return cast(Job, job)

    def pause(self, seconds: float) -> None:
        self.now += seconds
        for when in [x for x in self.at if x <= self.now]:
            self.at.pop(when)()
        assert self.now < 10_000, "it never ends"

    def pool(self, **limits: object) -> Pool:
        return Pool(
            self.take,
            PoolLimits(**limits),  # type: ignore[arg-type]
            tell=self.events.append,
            stopping=lambda: self.stops,
            pause=self.pause,
            clock=lambda: self.now,
        )

    def kinds(self) -> Counter[str]:
        return Counter(event.kind for event in self.events)


def test_it_works_until_the_queue_is_empty() -> None:
    queue = Queue({f"F{n}": [DONE] for n in range(7)})
    pool = queue.pool(jobs=3)
    pool.work()
    assert pool.counts == {DONE: 7}
    assert queue.most == 3
    assert [name for name, _ in queue.taken] == [f"F{n}" for n in range(7)]
    assert queue.kinds() == {"started": 7, "ended": 7, "idle": 1}


def test_what_fails_comes_after_everything_else_and_is_left_alone_in_the_end() -> None:
    queue = Queue({"F1": [FAILED], "F2": [DONE], "F3": [FAILED, DONE]})
    pool = queue.pool()
    pool.work()
    assert [name for name, _ in queue.taken] == ["F1", "F2", "F3", "F1", "F1", "F3"]
    assert pool.counts == {DONE: 2, FAILED: 1}
    (left,) = [event for event in queue.events if event.kind == "left_alone"]
    assert (left.job and left.job.name, left.failures) == ("F1", 3)


def test_pool_takes_no_new_task_once_many_have_failed() -> None:
    queue = Queue({"F1": [FAILED], "F2": [FAILED], "F3": [DONE], "F4": [DONE]})
    pool = queue.pool(jobs=2, max_failures=2)
    pool.work()
    assert pool.counts == {FAILED: 2}
    assert [x.message for x in queue.events if x.kind == "enough"] == ["2 tasks failed"]
    again = Queue({"F1": [FAILED, FAILED, DONE], "F2": [DONE]})
    pool = again.pool(max_failures=2)
    pool.work()
    assert pool.counts == {DONE: 2}, "F1 failed twice"


def test_pool_with_a_budget_takes_no_more_tasks() -> None:
    queue = Queue({f"F{n}": [DONE] for n in range(5)})
    pool = queue.pool(jobs=2, budget=3)
    pool.work()
    assert (pool.counts, len(queue.taken), queue.kinds()["enough"]) == ({DONE: 3}, 3, 1)


@pytest.mark.parametrize(
    ("outcome", "runs"), [(WAITING, 1), (GIVEN_BACK, 1), (STOPPED, 1), (LOST, 3)]
)
def test_task_is_left_alone_by_its_outcome(outcome: str, runs: int) -> None:
    queue = Queue({"F1": [outcome], "F2": [DONE]})
    pool = queue.pool()
    pool.work()
    assert (pool.counts, len(queue.taken)) == ({outcome: 1, DONE: 1}, runs + 1)
    assert pool.waiting == ({"F1"} if outcome == WAITING else set())
    assert queue.kinds()["left_alone"] == (outcome == LOST)


def test_for_ever_it_asks_less_and_less_often() -> None:
    queue = Queue({})
    queue.at[400.0] = lambda: setattr(queue, "stops", 1)
    queue.pool(forever=True).work()
    pauses = [b - a for a, b in zip(queue.asked, queue.asked[1:], strict=False)]
    assert round(pauses[0]) == 10
    assert round(pauses[-1]) == 60
    assert queue.kinds() == {"idle": 1}


def test_the_first_stop_lets_it_finish_and_the_second_does_not() -> None:
    queue = Queue({f"F{n}": [DONE] for n in range(5)})
    queue.at[1.0] = lambda: setattr(queue, "stops", 1)
    pool = queue.pool(jobs=2)
    pool.work()
    assert pool.counts == {DONE: 2}
    queue = Queue({f"F{n}": [FAILED] for n in range(5)})
    queue.at[1.0] = lambda: setattr(queue, "stops", 2)
    pool = queue.pool(jobs=2)
    pool.work()
    assert pool.counts == {STOPPED: 2}
    assert queue.now < 2
    assert queue.kinds()["left_alone"] == 0


def test_a_remote_that_stays_away_ends_it_at_last() -> None:
    queue = Queue({"F1": [DONE]})
    queue.at[1.0] = lambda: queue.troubles.extend([Unavailable("it is away")] * 5_000)
    with pytest.raises(Unavailable):
        queue.pool().work()
    assert PATIENCE <= queue.now < PATIENCE + 2 * RETRY


def test_what_fails_for_good_is_raised_once_all_has_ended() -> None:
    queue = Queue({"F1": [DONE], "F2": [DONE]})
    queue.at[1.0] = lambda: queue.troubles.append(Denied("you may not"))
    pool = queue.pool()
    with pytest.raises(Denied):
        pool.work()
    assert pool.counts == {DONE: 1}
