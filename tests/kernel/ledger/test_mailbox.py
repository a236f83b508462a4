"""The mailbox of a session: what a look or a chore reports arrives with the next answer."""

from __future__ import annotations

import pytest
from kernel.rules.values import JO, KIM
from support.memory import Fault
from support.session import MemoryWorld
from support.tasks import MemoryTasks, task

from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.ledger.messages import Messages
from gitlease.kernel.ledger.ports import Snapshot
from gitlease.kernel.ledger.stepping import check_known
from gitlease.kernel.rules.errors import (
    Invalid,
    LeaseHeld,
    LeaseLost,
    NotFound,
    NothingLeft,
    UnknownOutcome,
)
from gitlease.kernel.rules.resources import parse_resource

BUILD, F001, F002 = map(parse_resource, ("build", "F001", "F002"))
ANY_NAME = ClaimOptions(any_name=True)
NOTE = 'note on build by kim@example.com: "main is red"'


def test_each_message_is_taken_once_in_order() -> None:
    messages = Messages()
    messages.add(("b", "a"))
    messages.add(("c", "b"))
    assert messages.take() == ("b", "a", "c")
    assert messages.take() == ()


@pytest.fixture
def world() -> MemoryWorld:
    """Jo holds build, and Kim has left a note that Jo has not seen."""
    world = MemoryWorld(task("F001"))
    world.of(JO).claim([BUILD], ANY_NAME)
    world.of(KIM).note(BUILD, "main is red", to_holder=True)
    return world


def test_what_a_look_shows_arrives_with_the_next_answer(world: MemoryWorld) -> None:
    jo = world.of(JO)
    jo.look()
    assert NOTE in jo.renew([BUILD]).warnings
    assert NOTE not in jo.renew([BUILD]).warnings
    assert NOTE not in world.of(JO).read().warnings


def test_what_a_check_of_a_name_shows_arrives_with_the_next_answer(world: MemoryWorld) -> None:
    # The name resembles a task and is none; that it is leased only the remote knows.
    world.of(KIM).claim([F002], ANY_NAME)
    jo = world.of(JO)
    check_known(jo.session, [F002])
    assert NOTE in jo.note(F002, "hello").warnings


def test_a_refusal_takes_the_messages(world: MemoryWorld) -> None:
    jo = world.of(JO)
    jo.look()
    with pytest.raises(LeaseLost) as lost:
        jo.renew([F002])
    assert NOTE in lost.value.warnings
    assert jo.session.messages.take() == ()


def test_a_pick_that_found_nothing_leaves_its_messages_to_the_refusal(world: MemoryWorld) -> None:
    queue = world.queue(JO)  # whose copy still says that the task is free
    world.of(KIM).claim([F001])
    with pytest.raises(NothingLeft) as refused:
        queue.claim_next(ClaimOptions())
    assert refused.value.warnings.count(NOTE) == 1


def test_a_release_that_keeps_tasks_reports_the_messages_of_its_first_try(
    world: MemoryWorld,
) -> None:
    world.of(JO).claim([F001])
    world.of(KIM).note(BUILD, "main is green", to_holder=True)
    world.clock.advance(86_400)
    world.of(KIM).claim([F001], ClaimOptions(takeover=True, reason="jo is away"))
    jo = world.of(JO)
    with pytest.raises((LeaseHeld, LeaseLost)):
        jo.keep([F001])
    assert NOTE.replace("red", "green") in jo.session.messages.take()


def test_a_reading_that_is_refused_leaves_what_became_of_an_earlier_change(
    world: MemoryWorld,
) -> None:
    world.of(JO).read()
    world.remote.pushes.extend([Fault.LATE, Fault.LOST, Fault.LOST, Fault.LOST])
    world.remote.late_by = 100
    with pytest.raises(UnknownOutcome):
        world.of(JO).release([BUILD])
    world.remote.arrive()

    def refuse(_head: Snapshot) -> None:
        raise Invalid("this record cannot be read")

    jo = world.of(JO)
    with pytest.raises(Invalid):
        jo.session.read(refuse)
    assert "an earlier release of build had reached the remote" in jo.session.messages.take()


def test_a_claim_that_is_planned_once_more_reports_the_messages_of_its_first_try(
    world: MemoryWorld,
) -> None:
    kim = KIM.holder
    world.files[JO.holder] = MemoryTasks.of(task("F001", kim))
    world.files[JO.holder].since[kim] = world.clock.wall_ms // 1_000
    world.clock.advance(60)
    world.of(KIM).claim([F001])
    world.of(KIM).release([F001])
    answer = world.of(JO).claim([F001])  # by a copy that knows nothing of the release
    assert answer.status == "claimed"
    assert answer.warnings.count(NOTE) == 1


def test_the_refusal_to_complete_a_task_of_a_branch_reports_the_messages(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = world.files[JO.holder] = MemoryTasks()

    def fetched(_kind: str) -> None:
        side = "refs/heads/side", task("F002")
        monkeypatch.setattr(files, "on_a_branch", lambda _resource: side)

    world.remote.during = fetched
    with pytest.raises(NotFound, match="side") as refused:
        world.of(JO).complete(F002)
    assert refused.value.warnings.count(NOTE) == 1
