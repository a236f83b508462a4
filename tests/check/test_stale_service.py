"""Stale claims by the service: found with one connection, and released one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from kernel.rules.values import F001, JO, KIM
from support.session import LeaseService, MemoryWorld
from support.snapshots import check_words
from support.tasks import Killed, task
from support.told_history import Told

from gitlease.check.stale import StaleRules, StaleService
from gitlease.check.task_history import Lack, TaskHistory
from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.ledger.ports import TaskProblem
from gitlease.kernel.rules.edge import People, Progress
from gitlease.kernel.rules.errors import Denied
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.resources import parse_resource
from gitlease.verbs.findings import Finding

F002 = parse_resource("F002")
LEE = Actor("lee@example.com")
DAY = 86_400


class World(MemoryWorld):
    """One remote, one clock, and for each person a clone with task files of its own."""

    patience = 5.0

    def __init__(self) -> None:
        super().__init__(task("F001"), task("F002"))
        self.told, self.people = Told(), People()

    def of(self, who: Actor, **more: Any) -> LeaseService:
        return super().of(who, people=self.people, **more)

    def stale(self, who: Actor, *, release: bool = True, layer: str = "global") -> StaleService:
        rules = StaleRules(release=release)
        activity = cast("TaskHistory", self.told)
        return StaleService(self.of(who, layer=layer).session, activity, rules, layers=["global"])

    def assign(self, *names: str, to: str = KIM.holder, who: Actor = JO) -> None:
        """Name somebody in the task files of a clone."""
        for name in names:
            self.files[who.holder].tasks[f"tasks/{name}.md"] = task(name, to)

    def kims_left(self) -> None:
        """kim claimed F001 and a name that is no task, committed the edge, and left."""
        self.of(KIM).claim([F001])
        self.of(KIM).claim([parse_resource("deploy")], ClaimOptions(any_name=True))
        self.assign("F001")
        self.clock.advance(8 * DAY)


@pytest.fixture
def world() -> World:
    return World()


def rules_of(world: World, who: Actor = JO) -> list[str]:
    return [f"{f.rule.id} {f.resource}" for f in world.stale(who).find().findings]


# --- finding ------------------------------------------------------------------------------------


def test_it_is_found_with_one_connection_or_none(world: World) -> None:
    world.kims_left()
    world.remote.requests.clear()
    check_words(rules_of(world))
    assert world.remote.requests == ["fetch"]
    cached = world.stale(JO).find(cached=True)
    assert len(cached.findings) == 2
    check_words(cached.warnings)
    assert world.remote.requests == ["fetch"]


def test_task_files_that_cannot_be_used_are_found(world: World) -> None:
    world.files[JO.holder].problems = (
        TaskProblem(
            "tasks/b.md",
            "tasks/b.md:7: F009 is the id of tasks/a.md as well",
            frozenset({"f009"}),
            double=True,
        ),
        TaskProblem("tasks/c d.md", "tasks/c d.md: the front matter has no end"),
    )
    duplicate, broken = world.stale(JO).find().findings
    assert (duplicate.rule.id, duplicate.file, duplicate.line, duplicate.resource) == (
        "duplicate-id",
        "tasks/b.md",
        7,
        "f009",
    )
    assert (broken.rule.id, broken.line, broken.resource) == ("bad-task-file", None, None)
    assert broken.next_steps == ("git log -3 -- 'tasks/c d.md'",)


def test_a_name_that_is_nobodys_is_found(world: World) -> None:
    world.assign("F001", to="sam@example.com")
    world.assign("F002", to="the team")
    both = ["unknown-assignee F001", "unknown-assignee F002"]
    assert rules_of(world) == [*both, "no-ledger None"]
    world.people = People({"lee@example.com": "the team"})
    assert rules_of(world) == ["unknown-assignee F001", "no-ledger None"]
    world.of(Actor("sam@example.com")).claim([parse_resource("x")], ClaimOptions(any_name=True))
    assert rules_of(world) == []  # who holds something is somebody


def test_what_a_clone_without_all_commits_cannot_know_is_said_and_is_no_finding(
    world: World,
) -> None:
    world.kims_left()
    world.assign("F002", to="sam@example.com")
    world.told.missing = Lack("this clone is shallow", "fetch-depth: 0")
    found = world.stale(JO).find()
    check_words([f"{f.rule.id} {f.resource}" for f in found.findings])
    check_words(found.unread)
    # It was no task yet when it was claimed, so that its record has no edge.
    lee = world.of(LEE)
    for files in world.files.values():
        files.tasks.pop("tasks/F002.md", None)
    lee.claim([F002], ClaimOptions(any_name=True))
    world.files[JO.holder].tasks["tasks/F002.md"] = task("F002")
    assert world.stale(JO).find().unread == ()  # its edge is on its way
    world.clock.advance(600)
    world.of(LEE).renew([F002])
    world.clock.advance(600)
    (said,) = world.stale(JO).find().unread
    check_words(said)
    world.told.missing = None
    assert "lease-without-edge F002" in rules_of(world)


def test_task_files_that_are_not_checked_out_are_no_pass_and_their_leases_stay(
    world: World,
) -> None:
    world.kims_left()
    world.told.absent = ("tasks/F001.md",)
    del world.files[JO.holder].tasks["tasks/F001.md"]
    found = world.stale(JO).find()
    check_words([f"{f.rule.id} {f.resource}" for f in found.findings])
    (said,) = found.unread
    check_words(said)
    world.told.absent = ()
    assert "lapsed-lease F001" in rules_of(world)


def why_not(finding: Finding) -> str:
    return finding.evidence[-1].removeprefix("not fixed: ")


# --- releasing -----------------------------------------------------------------------------------


def test_a_push_and_a_commit_release_each_and_those_concerned_are_told(world: World) -> None:
    world.kims_left()
    stale = world.stale(JO)
    found = stale.find()
    world.remote.requests.clear()
    fixed = stale.fix(found)
    assert world.remote.requests == ["push", "push"]
    files = world.files[JO.holder]
    check_words(files.commits)
    assert files["F001"].assigned == ()
    assert world.holders() == []
    assert fixed.findings == ()
    assert [f.rule.id for f in fixed.fixed] == ["stale-edge", "lapsed-lease"]
    assert [(v.resource, v.state) for v in fixed.leases] == [
        ("F001", "expired"),
        ("deploy", "expired"),
    ]
    told = world.of(KIM).read().warnings
    check_words(told)
    again = world.stale(JO).find()
    assert (again.findings, again._cases, stale.fix(again).leases) == ((), (), ())
    (note,) = world.of(LEE).claim([F001]).notes
    check_words(note.text)


def test_without_the_policy_only_ones_own_goes_and_the_rest_is_named(world: World) -> None:
    world.kims_left()
    world.of(JO).claim([parse_resource("port-8080")], ClaimOptions(any_name=True))
    world.clock.advance(DAY)
    stale = world.stale(JO, release=False)
    found = stale.find()
    assert [f.rule.id for f in found.findings] == ["stale-edge", "lapsed-lease", "lapsed-lease"]
    fixed = stale.fix(found)
    assert [f.resource for f in fixed.fixed] == ["port-8080"]
    check_words({f"{f.resource}: {why_not(f)}" for f in fixed.findings})
    assert world.holders() == ["deploy kim@example.com", "F001 kim@example.com"]
    own = world.stale(KIM, release=False)
    world.assign("F001", who=KIM)
    assert [f.resource for f in own.fix(own.find()).fixed] == ["F001", "deploy"]
    assert world.holders() == []


def test_what_is_live_or_for_a_person_to_decide_stays(world: World) -> None:
    world.of(KIM).claim([F001])
    files = world.files[JO.holder]
    files.tasks["tasks/F001.md"] = replace(files["F001"], progress=Progress.DONE)
    world.assign("F002", to="sam@example.com")
    stale = world.stale(JO)
    found = stale.find()
    fixed = stale.fix(found)
    check_words({f"{f.rule.id}: {why_not(f)}" for f in fixed.findings})
    assert (fixed.fixed, fixed.leases) == ((), ())
    world.clock.advance(DAY)
    assert [f.rule.id for f in stale.fix(stale.find()).fixed] == ["lease-on-done"]
    assert world.of(JO).read(resource=F001).notes == ()  # nobody comes next


@pytest.mark.parametrize("jo_knows", [False, True])
def test_a_claim_that_came_in_between_wins(world: World, jo_knows: bool) -> None:
    world.kims_left()
    stale = world.stale(JO)
    found = stale.find()
    world.of(KIM).claim([F001])
    if jo_knows:
        world.of(JO).read()
    fixed = stale.fix(found)
    assert [f.resource for f in fixed.fixed] == ["deploy"]
    (left,) = fixed.findings
    assert left.resource == "F001"
    check_words(why_not(left))
    assert world.files[JO.holder]["F001"].assigned == (KIM.holder,)
    assert world.holders() == ["F001 kim@example.com"]
    assert world.files[JO.holder].commits == []


def test_a_file_that_cannot_be_written_keeps_its_own_edge_only(world: World) -> None:
    world.kims_left()
    world.assign("F002")
    world.files[JO.holder].unwritable = {"tasks/F001.md"}
    fixed = world.stale(JO).fix(world.stale(JO).find())
    assert sorted(f.resource or "" for f in fixed.fixed) == ["F002", "deploy"]
    (left,) = fixed.findings
    assert left.resource == "F001"
    check_words(why_not(left))
    assert world.holders() == ["F001 kim@example.com"]


def test_only_what_is_chosen_goes_and_the_rest_is_named(world: World) -> None:
    world.kims_left()
    stale = world.stale(JO)
    fixed = stale.fix(stale.find(), choose=lambda x: x.findings[0].resource == "deploy")
    assert [f.resource for f in fixed.fixed] == ["deploy"]
    check_words([(f.resource, why_not(f)) for f in fixed.findings])
    assert world.holders() == ["F001 kim@example.com"]


@pytest.mark.parametrize("step", ["after intent", "before write", "after write", "before settling"])
def test_what_a_kill_leaves_undone_is_finished_or_forgotten(world: World, step: str) -> None:
    world.kims_left()
    stale = world.stale(JO)
    found = stale.find()
    files = world.files[JO.holder]
    files.killed_at = step
    with pytest.raises(Killed):
        stale.fix(found)
    said = world.of(JO).read().warnings
    if step == "after intent":  # nothing had been pushed
        assert (files["F001"].assigned, said) == ((KIM.holder,), ())
        assert sorted(world.holders()) == ["F001 kim@example.com", "deploy kim@example.com"]
    else:
        assert files["F001"].assigned == ()
        assert world.holders() == ["deploy kim@example.com"]
    assert files.intents == {}


def test_what_went_before_a_failure_is_reported(world: World) -> None:
    world.kims_left()
    stale = world.stale(JO)
    found, answers = stale.find(), iter([None, Denied("the remote refused")])

    def fails(kind: str) -> None:
        if kind == "push" and (error := next(answers)):
            raise error

    world.remote.during = fails
    fixed = stale.fix(found)
    assert [f.resource for f in fixed.fixed] == ["F001"]
    assert [(f.resource, why_not(f)) for f in fixed.findings] == [("deploy", "the remote refused")]
