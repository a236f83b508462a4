"""The queue: its order, whom it hands what, and what one carries."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel.rules.values import JO, KIM, SKEW, TTL, lease, moment, task

from gitlease.kernel.rules.edge import People, Progress, Task
from gitlease.kernel.rules.lease import DEFAULT_POLICY, Actor, Lease, State
from gitlease.tasks.queue import (
    Carried,
    QueueContext,
    WhyNot,
    carrying,
    entry_of,
    hand_out,
    rank,
    survey,
)

LAPSED = TTL + SKEW + 1
GONE = LAPSED + 7 * 86_400


def around(*leases: Lease, who: Actor = JO, seconds: float = 10) -> QueueContext:
    return QueueContext(who, People(), leases, DEFAULT_POLICY, moment(seconds))


def order(*tasks: Task, leases: tuple[Lease, ...] = ()) -> list[str]:
    return [e.task.resource.text for e in survey(tasks, around(*leases))]


def test_priority_comes_first_then_dependencies_then_age() -> None:
    tasks = [
        task("F1", priority="low", created="2020-01-01"),
        task("F2", priority="high", created="2026-05-02", depends_on=("F1",)),
        task("F3", priority="high", created="2026-05-03"),
        task("F4", priority="high", created="2026-05-01"),
        task("F5", created="2026-01-01"),
        task("F6", priority="medium", created="2025-01-01"),
    ]
    assert order(*tasks) == ["F4", "F3", "F2", "F6", "F5", "F1"]
    ids = ["F1", "f2", "F9", "F10"]  # without a date by their numbers
    assert order(task("F10"), task("F9"), task("F1"), task("f2", created="yesterday")) == ids
    for more, less in (("critical", "high"), ("p1", "P2"), ("odd word", "low")):
        assert rank(less) > rank(more)


def test_a_dependency_is_done_by_its_file_or_by_the_ledger() -> None:
    done = replace(lease(resource="F2"), state=State.COMPLETED)
    tasks = [
        task("F1", depends_on=("f2", "F3")),
        task("F2"),
        task("F3", status="closed", progress=Progress.DONE),
    ]
    (entry,) = [e for e in survey(tasks, around(done)) if e.claimable]
    assert entry.waits_for == ()


def test_what_is_abandoned_is_handed_out_after_everything_else() -> None:
    tasks = [
        task("F1", priority="high", assigned=(KIM.holder,)),
        task("F2", priority="low"),
        task("F3", depends_on=("F2",)),
    ]
    found = hand_out(
        survey(tasks, around(lease(holder=KIM, resource="F1", edge=True), seconds=GONE))
    )
    assert [(e.task.resource.text, e.abandoned) for e in found] == [
        ("F2", False),
        ("F3", False),
        ("F1", True),
    ]


def test_dependencies_in_a_circle_or_a_long_chain_end() -> None:
    names = [f"F{i}" for i in range(50)]
    tasks = [task(n, depends_on=(names[i - 1],)) for i, n in enumerate(names)]
    assert sorted(order(*tasks)) == sorted(names)
    assert order(task("F1", depends_on=("F1",))) == ["F1"]
    assert order(*(task(f"F{i}", depends_on=(f"F{i + 1}",)) for i in range(2_000)))[0] == "F1999"


@pytest.mark.parametrize(
    ("found", "record", "seconds", "why", "who"),
    [
        (task("F001"), None, 10, None, None),
        (task("F001", progress=Progress.DONE), None, 10, WhyNot.DONE, None),
        (task("F001", progress=Progress.OTHER), None, 10, WhyNot.STATUS, None),
        (task("F001", assigned=("@codex",)), None, 10, WhyNot.ASSIGNED, "@codex"),
        (task("F001"), lease(holder=KIM), 10, WhyNot.HELD, KIM.holder),
        (task("F001"), lease(holder=KIM), LAPSED, None, None),
        (task("F001"), lease(holder=KIM, edge=True), LAPSED, WhyNot.ASSIGNED, KIM.holder),
        (task("F001"), lease(holder=KIM, edge=True), GONE, None, None),
        (
            task("F001", assigned=(KIM.holder, "@codex")),
            lease(holder=KIM, edge=True),
            GONE,
            WhyNot.ASSIGNED,
            "@codex",
        ),
        (task("F001"), lease(), 10, WhyNot.YOURS, JO.holder),
        (task("F001"), lease(state=State.COMPLETED), 10, WhyNot.DONE, JO.holder),
        (
            task("F001", paths=("src/auth",)),
            lease(holder=KIM, resource="src/**/login.py"),
            10,
            WhyNot.HELD,
            KIM.holder,
        ),
    ],
)
def test_why_a_task_is_not_handed_out(
    found: Task, record: Lease | None, seconds: float, why: WhyNot | None, who: str | None
) -> None:
    leases = () if record is None else (record,)
    (entry,) = survey([found], around(*leases, seconds=seconds))
    assert (entry.why_not, entry.who) == (why, who)


@pytest.mark.parametrize(
    ("record", "seconds", "state", "by"),
    [
        (None, 10, Carried.NONE, None),
        (lease(edge=True), 10, Carried.LIVE, None),
        (lease(edge=True), LAPSED, Carried.LAPSED, None),
        (lease(holder=KIM, edge=True), 10, Carried.THEIRS, KIM.holder),
    ],
)
def test_what_one_carries_says_how_its_lease_stands(
    record: Lease | None, seconds: float, state: Carried, by: str | None
) -> None:
    leases = () if record is None else (record,)
    (carried,) = carrying([task("F001", assigned=(JO.holder,))], around(*leases, seconds=seconds))
    assert (carried.state, carried.by) == (state, by)


def test_leases_without_a_task_are_carried_too_and_done_tasks_are_not() -> None:
    tasks = [task("F001", assigned=(JO.holder,), progress=Progress.DONE), task("F002")]
    held = (lease(resource="deploy-prod"), lease(resource="F002"), lease(holder=KIM, resource="x"))
    found = carrying(tasks, around(*held))
    assert [(c.resource, c.task and c.task.file) for c in found] == [
        ("deploy-prod", None),
        ("F002", "tasks/F002.md"),
    ]


def test_one_task_of_the_queue_is_as_it_is_in_all_of_it() -> None:
    tasks = [task("F1", depends_on=("F2",)), task("F2", depends_on=("F3",)), task("F3")]
    found = around(lease(holder=KIM, resource="F2"))
    assert [entry_of(t, tasks, found) for t in tasks] == sorted(
        survey(tasks, found), key=lambda entry: entry.task.resource.key
    )
