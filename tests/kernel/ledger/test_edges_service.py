"""Lease and edge together: the service over task files as values, also when it is killed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel.rules.values import F001, JO, KIM
from support.memory import Fault
from support.session import LeaseService, MemoryWorld
from support.snapshots import check_words, raises
from support.tasks import Killed, MemoryTasks, task

from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.ledger.edges import EdgeRules
from gitlease.kernel.ledger.ports import TaskProblem
from gitlease.kernel.rules.edge import Progress
from gitlease.kernel.rules.errors import (
    Invalid,
    LeaseHeld,
    NotFound,
    NothingLeft,
    PolicyRefused,
    UnknownOutcome,
    UsageError,
)
from gitlease.kernel.rules.moves.operations import TakeTicket
from gitlease.kernel.rules.moves.tickets import WINDOW
from gitlease.kernel.rules.resources import parse_resource
from gitlease.tasks.queue import Carried

F002 = parse_resource("F002")
DAY = 86_400


class World(MemoryWorld):
    """One remote, one clock, and for each person a clone with task files of its own."""

    patience = 5.0

    def __init__(self) -> None:
        super().__init__(task("F001"), task("F002"))

    def records(self) -> list[str]:
        return [f"{x.resource} {x.holder} {x.state.value} {x.edge}" for x in self.leases()]


@pytest.fixture
def world() -> World:
    return World()


# --- claim and release --------------------------------------------------------------------------


def test_a_claim_writes_the_edge_once_and_release_retires_it(world: World) -> None:
    first = world.of(JO).claim([F001])
    assert world.records() == ["F001 jo@example.com active True"]
    assert (first.edge, [w.changed for w in first.written]) == ("added", [True])
    assert world.files[JO.holder]["F001"].assigned == (JO.holder,)
    again = world.of(JO).claim([F001])
    assert (again.edge, again.written) == ("kept", ())
    done = world.of(JO).release([F001])
    assert done.edge == "removed"
    assert world.files[JO.holder]["F001"].assigned == ()
    assert world.of(JO).release([F001]).edge == "none"
    assert not world.files[JO.holder].intents


def test_a_task_covers_its_paths(world: World) -> None:
    world.files[JO.holder] = MemoryTasks.of(task("F001", paths=("src/auth",)))
    (view,) = world.of(JO).claim([F001], ClaimOptions(paths=("docs/a.md",))).leases
    assert view.paths == ("docs/a.md", "src/auth")
    with pytest.raises(LeaseHeld):
        world.of(KIM).claim([parse_resource("src/auth/login.py")])


def test_an_unknown_name_is_refused_with_those_like_it_unless_any_will_do(world: World) -> None:
    with raises(NotFound) as refused:
        world.of(JO).claim([F001, parse_resource("F003")])
    assert "F002" in refused.value.hints[0]
    assert "--any" in refused.value.hints[1]
    assert world.records() == []
    answer = world.of(JO).claim([parse_resource("deploy-prod")], ClaimOptions(any_name=True))
    assert answer.edge == "none"
    # What is held already is renewed, but for whom it is not.
    assert world.of(JO).claim([parse_resource("Deploy-prod")]).status == "renewed"
    with pytest.raises(NotFound):
        world.of(KIM).claim([parse_resource("deploy-prod")])
    world.of(KIM, required=False).claim([parse_resource("port-8080")])
    world.of(JO).claim([parse_resource("src/")])


def test_a_done_task_is_claimed_only_by_reopening_it(world: World) -> None:
    done = task("F001", status="closed", progress=Progress.DONE)
    files = world.files[JO.holder] = MemoryTasks.of(done)
    files.rules = EdgeRules(statuses={**EdgeRules().statuses, Progress.DONE: ("closed",)})
    with raises(PolicyRefused):
        world.of(JO, statuses=files.rules.statuses).claim([F001])
    world.of(JO, statuses=files.rules.statuses).claim([F001], ClaimOptions(reopen=True))
    assert (files["F001"].status, files["F001"].assigned) == ("todo", (JO.holder,))
    odd = task("F003", status="pending", progress=Progress.OTHER)  # no setting has this word
    world.files[KIM.holder] = MemoryTasks.of(odd, task("F004", progress=Progress.DONE))
    for name in ("F003", "F004"):  # which lies in a folder of completed tasks
        with pytest.raises(PolicyRefused):
            world.of(KIM).claim([parse_resource(name)], ClaimOptions(reopen=True))


def test_a_file_that_cannot_be_written_leaves_the_ledger_alone(world: World) -> None:
    world.files[JO.holder].unwritable.add("tasks/F001.md")
    for verb in ("claim", "complete"):
        service = world.of(JO)
        with raises(Invalid):
            service.claim([F002, F001]) if verb == "claim" else service.complete(F001)
    assert world.records() == []
    assert world.files[JO.holder]["F002"].assigned == ()


def test_a_broken_file_is_invalid_for_its_task_alone(world: World) -> None:
    broken = TaskProblem("tasks/F003.md", "tasks/F003.md:4: conflict marker", frozenset({"f003"}))
    world.files[JO.holder].problems = (broken,)
    with raises(Invalid):
        world.of(JO).claim([parse_resource("F003")])
    with raises(Invalid):
        world.of(JO).release([parse_resource("F003")])
    assert world.of(JO).claim([F001]).edge == "added"


# --- edges of others ----------------------------------------------------------------------------


def test_a_takeover_replaces_the_edge_in_the_file(world: World) -> None:
    world.files[JO.holder] = MemoryTasks.of(task("F001", KIM.holder, "@codex"))
    with raises(LeaseHeld):
        world.of(JO).claim([F001])
    with raises(UsageError):
        world.of(JO).claim([F001], ClaimOptions(takeover=True))
    answer = world.of(JO).claim([F001], ClaimOptions(takeover=True, reason="gone"))
    assert (answer.status, answer.edge) == ("taken_over", "added")
    assert answer.unassigned == (KIM.holder, "@codex")
    assert world.files[JO.holder]["F001"].assigned == (JO.holder,)
    check_words(" ".join(world.of(KIM).read().warnings))


def test_each_holder_of_a_scope_is_an_assignee(world: World) -> None:
    world.of(KIM).claim([F001], ClaimOptions(scope="docs"))
    files = world.files[JO.holder] = MemoryTasks.of(task("F001", KIM.holder))
    assert world.of(JO).claim([F001], ClaimOptions(scope="parser")).edge == "added"
    assert list(files["F001"].assigned) == [KIM.holder, JO.holder]
    world.of(JO).claim([F001], ClaimOptions(scope="tests"))
    assert world.of(JO).release([F001], scope="parser").edge == "kept"
    assert world.of(JO).release([F001]).edge == "removed"
    assert list(files["F001"].assigned) == [KIM.holder]


def test_ones_own_lease_leaves_another_name_in_this_clones_file_alone(world: World) -> None:
    world.of(JO).claim([F001])
    files = world.files[JO.holder] = MemoryTasks.of(task("F001", KIM.holder))
    answer = world.of(JO).claim([F001])
    assert (answer.status, answer.edge, answer.edge_in) == ("renewed", "kept", ("record",))
    check_words(answer.warnings)
    assert files["F001"].assigned == (KIM.holder,)


def test_release_cleans_a_lingering_edge_of_ones_own(world: World) -> None:
    world.files[JO.holder] = MemoryTasks.of(task("F001", JO.holder, "@codex"))
    answer = world.of(JO).release([F001])
    assert (answer.status, answer.edge) == ("released", "removed")
    assert world.files[JO.holder]["F001"].assigned == ("@codex",)
    with raises(LeaseHeld):
        world.of(JO).release([F001])


# --- status -------------------------------------------------------------------------------------


def test_what_is_neither_a_task_nor_held_cannot_be_finished(world: World) -> None:
    typo, other = parse_resource("F00l"), parse_resource("deploy-prod")
    with pytest.raises(NotFound):
        world.of(JO).complete(typo)
    world.of(JO).claim([other], ClaimOptions(any_name=True))
    with pytest.raises(NotFound):
        world.of(JO).complete(other)
    assert world.of(JO).complete(other, any_name=True).status == "completed"
    assert world.of(JO).complete(other).status == "completed"
    with pytest.raises(UsageError):
        world.of(JO).complete(parse_resource("src/api"), any_name=True)
    with pytest.raises(NotFound):
        world.of(KIM, required=False).complete(typo)
    assert world.of(KIM).complete(typo, any_name=True).status == "completed"


def test_a_part_that_is_done_does_not_finish_the_task(world: World) -> None:
    world.of(JO).claim([F001], ClaimOptions(scope="parser"))
    world.of(JO).complete(F001, scope="parser")
    with pytest.raises(PolicyRefused):
        world.of(KIM).claim([F001], ClaimOptions(scope="parser"))
    assert world.of(KIM).claim([F001]).status == "claimed"
    assert world.of(KIM).complete(F001).status == "completed"
    with pytest.raises(PolicyRefused):
        world.of(JO, required=False).claim([F001], ClaimOptions(scope="docs"))


def test_start_sets_the_status_and_claims(world: World) -> None:
    answer = world.of(JO).start(F001, ClaimOptions())
    assert (answer.status, answer.edge) == ("claimed", "added")
    assert world.files[JO.holder]["F001"].status == "in_progress"
    kept = world.of(JO).start(F001, ClaimOptions(), status="in_progress")
    assert (kept.status, kept.edge) == ("renewed", "kept")
    with pytest.raises(NotFound):
        world.of(JO, required=False).start(parse_resource("nothing"), ClaimOptions())


def test_a_status_is_not_set_on_what_another_has(world: World) -> None:
    assert world.of(JO).set_status(F002, "review").written[0].changed
    world.of(KIM).claim([F001])
    with pytest.raises(LeaseHeld):
        world.of(JO).set_status(F001, "review")
    world.files[JO.holder] = MemoryTasks.of(task("F002", "@codex"))
    with raises(LeaseHeld):
        world.of(JO).set_status(F002, "review")


STEPS = ("before intent", "after intent", "before write", "after write", "before settling")


def act(service: LeaseService, verb: str) -> None:
    if verb == "claim":
        service.claim([F001])
    elif verb == "start":
        service.start(F001, ClaimOptions())
    elif verb == "release":
        service.release([F001])
    elif verb == "takeover":
        service.claim([F001], ClaimOptions(takeover=True, reason="gone"))
    else:
        service.complete(F001)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("verb", ["claim", "start", "release", "done", "takeover"])
def test_a_kill_is_repaired_by_the_next_command(world: World, verb: str, step: str) -> None:
    files = world.files[JO.holder]
    if verb in ("release", "done"):
        world.of(JO).claim([F001])
    if verb == "takeover":
        files.tasks["tasks/F001.md"] = task("F001", "@codex")
    before = (files["F001"], world.records())
    files.killed_at = step
    with pytest.raises(Killed):
        act(world.of(JO), verb)
    landed = world.records() != before[1]
    assert landed == (step in ("before write", "after write", "before settling"))
    reading = world.of(JO).read()
    found = files["F001"]
    assert not files.intents
    if not landed:
        assert (found, world.records()) == before
        return
    assert any("interrupted command" in w for w in reading.warnings) == (step == "before write")
    holds = any(x.state == "active" and x.mine for x in reading.leases)
    assert found.assigned == ((JO.holder,) if holds else ())
    words = {"start": "in_progress", "done": "done"}
    assert found.status == words.get(verb, "")


@pytest.mark.parametrize(
    ("pushed", "landed"), [(Fault.UNANSWERED, True), (Fault.LATE, True), (Fault.LOST, False)]
)
def test_an_unknown_outcome_keeps_the_intent_until_it_is_known(
    world: World, pushed: Fault, landed: bool
) -> None:
    world.of(JO).claim([F002])
    files = world.files[JO.holder]
    world.remote.pushes.extend([pushed] + [Fault.LOST] * 3)
    world.remote.fetches.extend([Fault.UNREACHABLE] * (pushed is Fault.UNANSWERED))
    world.remote.late_by = 100
    with pytest.raises(UnknownOutcome):
        world.of(JO).claim([F001])
    assert files["F001"].assigned == ()
    world.remote.pushes.clear()
    world.remote.arrive()
    for text in ("the ledger moves on", "and what was open is settled"):
        world.of(JO).note(F002, text)
    assert files["F001"].assigned == ((JO.holder,) if landed else ())
    assert not files.intents


# --- the queue ----------------------------------------------------------------------------------


def test_next_hands_out_each_task_once(world: World) -> None:
    answer, found = world.queue(JO).claim_next(ClaimOptions())
    assert (found.resource.text, answer.edge, answer.status) == ("F001", "added", "claimed")
    _, found = world.queue(KIM).claim_next(ClaimOptions())
    assert found.resource.text == "F002"
    with raises(NothingLeft):
        world.queue(JO).claim_next(ClaimOptions())
    assert world.files[JO.holder]["F002"].assigned == ()


def test_more_than_one_step_holds_is_gone_through(world: World) -> None:
    names = [f"T{i}" for i in range(70)]
    world.files[JO.holder] = MemoryTasks.of(*map(task, names))
    for name in names[:-1]:
        world.of(KIM, required=False).claim([parse_resource(name)], ClaimOptions(any_name=True))
    _, found = world.queue(JO).claim_next(ClaimOptions())
    assert found.resource.text == "T69"


def test_a_task_left_to_a_dead_waiter_is_picked_after_its_window(world: World) -> None:
    """L2: until then it is left to who waits."""
    world.files[JO.holder] = MemoryTasks.of(task("F001"))
    ann = replace(KIM, holder="ann@example.com")
    until = world.clock.wall_ms + 10**6
    take = TakeTicket(id="dead", actor=ann, resources=(F001,), ticket="t", until=until)
    world.of(KIM).claim([F001])
    world.of(ann).session.step("wait", [take])
    world.of(KIM).release([F001])
    world.of(JO).read()
    with pytest.raises(NothingLeft):
        world.queue(JO).claim_next(ClaimOptions())
    world.clock.advance(WINDOW)
    assert world.queue(JO).claim_next(ClaimOptions())[0].status == "claimed"


def test_a_briefing_tells_what_was_taken_and_why_and_the_notes(world: World) -> None:
    world.of(JO).claim([F001])
    world.clock.advance(DAY)
    world.of(KIM).note(F001, "mind the tests")
    world.of(KIM).claim([F001], ClaimOptions(takeover=True, reason="jo is away"))
    brief = world.queue(JO).brief()
    assert [(t.resource, t.by, t.what, t.reason) for t in brief.taken] == [
        ("F001", KIM.holder, "taken_over", "jo is away")
    ]
    assert [(c.state, c.by) for c in brief.carried] == [(Carried.TAKEN_OVER, KIM.holder)]
    assert [n.text for n in brief.notes] == ["mind the tests"]
    assert [e.task.resource.text for e in brief.next_up] == ["F002"]
    world.clock.advance(8 * DAY)
    assert world.queue(JO).brief().taken == ()


def test_next_offers_only_what_can_be_claimed(world: World) -> None:
    files = world.files[JO.holder]
    files.unwritable.add("tasks/F001.md")
    reading = world.queue(JO).next_task()
    assert reading.next_up[0].task.resource.text == "F002"
    check_words(reading.warnings)
    files.unwritable.add("tasks/F002.md")
    for ask in (world.queue(JO).next_task, lambda: world.queue(JO).claim_next(ClaimOptions())):
        with pytest.raises(NothingLeft) as refused:
            ask()
        check_words(refused.value.warnings)
