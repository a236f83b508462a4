"""When claims are stale: whose edges nobody works under, and which leases nobody cleaned up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from kernel.rules.values import JO, KIM, NOON, TTL, lease, moment
from support.snapshots import check_words
from support.tasks import task
from support.told_history import Told

from gitlease.check.stale import (
    CheckCaller,
    Facts,
    StaleRules,
    lapsed_leases,
    leases_on_done,
    leases_on_gone,
    leases_without_edge,
    records_of,
    stale_edges,
)
from gitlease.check.task_history import Deleted, TaskHistory, Version
from gitlease.kernel.ledger.ports import TaskList, TaskProblem
from gitlease.kernel.rules.edge import People, Persons, Progress, Task
from gitlease.kernel.rules.instant import MS, moment_of
from gitlease.kernel.rules.lease import DEFAULT_POLICY, Lease, State
from gitlease.kernel.rules.moves.operations import Event
from gitlease.verbs.findings import Finding

DAY = 86_400
KIM_AT_WORK, KIM_HOME = "kim@work.example", "kim@home.example"


def when(days: float) -> int:
    """So many days after noon, in wall-clock milliseconds."""
    return NOON + round(days * DAY * MS)


def persons(*known: str, mailmap: dict[str, str] | None = None, **people: Any) -> Persons:
    pairs = mailmap or {}
    return Persons(
        People(**people), pairs, (*(known or (JO.holder, KIM.holder)), *pairs, *pairs.values())
    )


def version(
    days: float, *after: str, before: Sequence[str] = (), commit: str = "c0ffee"
) -> Version:
    return Version(commit, when(days), KIM.holder, tuple(before), after)


WRITTEN = version(0, KIM.holder)


def event(
    kind: str, days: float, *, holder: str | None = KIM.holder, by: str = KIM.holder
) -> Event:
    return Event(kind, "op", when(days), by, resource="F001", scope="*", holder=holder)


F001 = task("F001", KIM.holder, paths=("src/api",))
KIMS = (F001, KIM.holder)


def facts(
    *leases: Lease,
    tasks: Sequence[Task] = (F001,),
    days: float = 1,
    caller: str = JO.holder,
    who: Persons | None = None,
    events: Sequence[Event] = (),
    broken: Iterable[str] = (),
    required: bool = True,
    written: Version | None = None,
    deleted: dict[str, Deleted] | None = None,
    **rules: Any,
) -> Facts:
    records = list(records_of(leases, "global", DEFAULT_POLICY, moment(days * DAY)))
    problems = tuple(TaskProblem(f"tasks/{x}.md", "odd", frozenset({x})) for x in broken)
    facts = Facts(
        TaskList(tuple(tasks), problems),
        records,
        events,
        persons=who or persons(),
        rules=StaleRules(**rules),
        required=required,
        caller=CheckCaller(caller, "global"),
        now=when(days),
    )
    facts.read_commits(cast("TaskHistory", Told(written=written, gone=deleted or {})), cached=True)
    return facts


def edges(*leases: Lease, days: float = 30, **more: Any) -> list[tuple[Task, str]]:
    """The edges of which the ledger has seen nothing for so long."""
    return [(x.task, x.name) for x in facts(*leases, days=days, **more).edges]


def test_an_edge_with_a_live_lease_is_none_of_them() -> None:
    assert edges(days=0) == [KIMS]
    assert edges(lease(holder=KIM), days=0) == []
    assert edges(lease(holder=KIM, scope="parser"), days=0) == []
    assert edges(lease(holder=JO), days=0) == [KIMS]
    assert edges(lease(holder=KIM, resource="F002"), days=0) == [KIMS]
    assert edges(lease(holder=KIM), days=(TTL + 1) / DAY) == []  # nobody else may have it yet
    assert edges(lease(holder=KIM), days=8) == [KIMS]


def test_what_is_done_or_exempt_has_no_open_edge() -> None:
    done = replace(F001, progress=Progress.DONE)
    exempt = replace(F001, exempt=True)
    assert edges(tasks=[done]) == edges(tasks=[exempt]) == []
    completed = lease(holder=KIM, state=State.COMPLETED)
    assert edges(completed, days=10) == []
    part = lease(holder=KIM, state=State.COMPLETED, scope="parser")
    assert edges(part, days=10) == [KIMS]
    assert edges(completed, days=31) == [KIMS]  # long ago


def since(*leases: Lease, days: float, written: Version = WRITTEN, **more: Any) -> list[float]:
    """Since how many days after noon the edge is stale; none where it is not."""
    each = stale_edges(facts(*leases, days=days, written=written, **more))
    times = [case.findings[0].since for case in each if case.plan]
    return [(at.timestamp() - NOON / MS) / DAY for at in times if at is not None]


def test_it_counts_from_the_commit_that_wrote_it() -> None:
    assert since(days=7) == []
    assert since(days=7.01) == [0]
    assert since(days=11, written=version(5, KIM.holder)) == []
    assert since(days=13, written=version(5, KIM.holder)) == [5]


def test_it_counts_from_the_end_of_their_last_lease() -> None:
    lapsed = lease(holder=KIM, since=4 * DAY)
    assert since(lapsed, days=11) == []
    assert since(lapsed, days=11.02) == [pytest.approx(4 + TTL / DAY)]
    assert since(lease(since=4 * DAY), days=11) == [0]
    said = [event("released", 6)]
    assert since(days=12, events=said) == []
    assert since(days=14, events=said) == [6]
    taken = [event("displaced", 6, by=JO.holder)]
    assert since(days=14, events=taken) == [6]
    theirs = [event("claimed", 6, holder=JO.holder, by=JO.holder)]
    assert since(days=12, events=theirs) == [0]
    assert since(days=12, events=[event("retired", 6)]) == [0]  # it is here nevertheless
    assert since(days=12, events=[event("noted", 6, holder=None)]) == []
    for ahead in ({"written": version(9_999, KIM.holder)}, {"events": [event("noted", 9_999)]}):
        assert since(days=12, **ahead) == []


# --- leases -------------------------------------------------------------------------------------


def found(on: Facts) -> list[Finding]:
    rules = (leases_on_gone, leases_on_done, lapsed_leases)
    return [finding for rule in rules for case in rule(on) for finding in case.findings]


def rules_of(findings: Iterable[Finding]) -> list[str]:
    return [finding.rule.id for finding in findings]


def test_a_lapsed_lease_is_told_of_unless_an_edge_explains_it() -> None:
    kims = lease(holder=KIM, edge=True)
    assert found(facts(kims)) == []  # assigned, and at home: that is what edges are for
    assert found(facts(kims, days=30)) == []  # told of with the edge
    (plain,) = found(facts(lease(holder=KIM, resource="deploy")))
    assert (plain.rule.id, plain.holder, plain.since) == (
        "lapsed-lease",
        KIM.holder,
        moment_of(NOON + TTL * MS),
    )
    check_words(plain.message)
    (path,) = found(facts(lease(holder=KIM, resource="src/web/")))
    assert path.resource == "src/web"
    assert found(facts(lease(holder=KIM, resource="deploy"), days=0)) == []


def test_an_edge_that_is_on_its_way_explains_a_lapsed_lease_for_as_long_as_an_edge_is_young() -> (
    None
):
    kims = lease(holder=KIM, edge=True)
    nobodys = replace(F001, assigned=())
    assert found(facts(kims, tasks=[nobodys], days=7)) == []
    assert rules_of(found(facts(kims, tasks=[nobodys], days=8))) == ["lapsed-lease"]
    assert rules_of(found(facts(kims, tasks=[], days=8))) == ["lapsed-lease"]
    without = replace(kims, edge=False)
    assert rules_of(found(facts(without, tasks=[nobodys]))) == ["lapsed-lease"]


def test_a_lease_on_a_task_that_is_done() -> None:
    done = replace(F001, progress=Progress.DONE)
    (live,) = found(facts(lease(holder=KIM), tasks=[done], days=0))
    assert live.rule.id == "lease-on-done"
    check_words(live.message)
    assert (live.file, live.since) == ("tasks/F001.md", moment_of(NOON))
    (lapsed,) = found(facts(lease(holder=KIM, scope="parser"), tasks=[done]))
    check_words(lapsed.message)
    by_ledger = (lease(state=State.COMPLETED), lease(holder=KIM, scope="parser"))
    assert rules_of(found(facts(*by_ledger, days=0))) == ["lease-on-done"]


def test_a_lease_on_a_task_whose_file_was_deleted() -> None:
    kims = lease(holder=KIM, resource="F009", edge=True)
    gone = {"f009": Deleted("tasks/F009.md", "c0ffeec0ffee", JO.holder)}
    (finding,) = found(facts(kims, days=0, deleted=gone))
    assert finding.rule.id == "lease-on-gone"
    check_words(finding.evidence[0])
    assert found(facts(kims, days=0)) == []  # it may be on a branch that is not merged
    name = replace(kims, edge=False)
    assert found(facts(name, days=0, deleted=gone)) == []  # it never was a task
    assert found(facts(kims, days=0, deleted=gone, required=False)) == []
    assert found(facts(kims, days=0, deleted=gone, broken={"f009"})) == []


def test_a_live_lease_whose_holder_no_file_names() -> None:
    nobodys = replace(F001, assigned=())
    kims = lease(holder=KIM)
    assert facts(kims, tasks=[nobodys], days=0).hidden == []  # it may be on its way
    on = facts(kims, tasks=[nobodys], days=0.001, grace=0)
    ((finding,),) = (case.findings for case in leases_without_edge(on))
    assert finding.rule.id == "lease-without-edge"
    check_words(finding.message)
    assert found(on) == []
    assert facts(kims, days=0.001, grace=0).hidden == []
    recorded = facts(replace(kims, edge=True), tasks=[nobodys], days=0.001, grace=0)
    assert recorded.hidden == [], "the ledger's record assigns it"
