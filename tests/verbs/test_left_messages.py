"""What a verb's answer reports that no step or reading of it has reported."""

from __future__ import annotations

import pytest
from kernel.rules.values import JO, KIM
from support.memory import Fault
from support.session import MemoryWorld
from support.tasks import task

from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.rules.errors import NotFound, UnknownOutcome
from gitlease.kernel.rules.resources import parse_resource
from gitlease.tasks.queue import TaskQueue
from gitlease.verbs.table import Door, find_verb

F001, F009 = parse_resource("F001"), parse_resource("F009")
BUILD = parse_resource("build")


class Desk(Door):
    """A person with a session on a ledger in memory."""

    def __init__(self, session: LedgerSession) -> None:
        self._session = session

    @property
    def ledger(self) -> LedgerSession:
        return self._session

    @property
    def queue(self) -> TaskQueue:
        return TaskQueue(self._session)


@pytest.fixture
def world() -> MemoryWorld:
    world = MemoryWorld(task("F001"))
    world.of(JO).claim([F001])
    return world


def test_a_refusal_before_the_step_reports_what_became_of_an_earlier_change(
    world: MemoryWorld,
) -> None:
    world.remote.pushes.extend([Fault.LATE, Fault.LOST, Fault.LOST, Fault.LOST])
    world.remote.late_by = 100
    with pytest.raises(UnknownOutcome):
        world.of(JO).release([F001])
    world.remote.arrive()
    desk = Desk(world.of(JO).session)
    with pytest.raises(NotFound) as refused:
        find_verb("done").answer(desk, resource=F009)
    assert "an earlier release of F001 had reached the remote" in refused.value.warnings
    assert desk.take_messages() == ()


def test_an_answer_reports_what_only_a_look_has_shown(world: MemoryWorld) -> None:
    world.of(JO).claim([BUILD], ClaimOptions(any_name=True))
    world.of(KIM).note(BUILD, "main is red", to_holder=True)
    desk = Desk(world.of(JO).session)
    desk.is_known(F009)
    noted = 'note on build by kim@example.com: "main is red"'
    assert noted in find_verb("wait").answer(desk, resources=[F009], any=True).warnings
    assert noted not in find_verb("list").answer(desk).warnings
