"""A fault of gitlease itself does not end a heartbeat: it is told as any other failure."""

from __future__ import annotations

import random

import pytest
from kernel.rules.values import JO, lease
from support.session import MemoryWorld

from gitlease.kernel.ledger.acts import _process
from gitlease.kernel.ledger.keeping import Keeper, holds_of
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.rules.errors import Unavailable
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.resources import parse_resource


def test_a_fault_of_ours_is_a_failure_and_the_heartbeat_goes_on() -> None:
    world, broken = MemoryWorld(), True
    holds = holds_of(world.of(Actor(JO.holder)).claim([parse_resource("F001")]))

    def open_session(limit: float) -> LedgerSession:
        if broken:
            raise ZeroDivisionError("in our own code")
        return world.of(Actor(JO.holder)).session

    keeper = Keeper(open_session, clock=world.clock, dice=random.Random(7))
    keeper.add(holds)
    failed = keeper.renew(holds)
    assert isinstance(failed.failure, Unavailable)
    assert "ZeroDivisionError" in failed.failure.message
    assert (failed.renewed, failed.lost) == ((), ())
    assert keeper.settle(failed) == ()
    broken = False
    assert len(keeper.renew(holds).renewed) == 1


@pytest.mark.parametrize(
    ("session", "pid", "said"),
    [
        (None, None, ""),
        ("build-7", None, " (session build-7)"),
        (None, 42, " (pid 42)"),
        ("build-7", 42, " (session build-7, pid 42)"),
    ],
)
def test_a_command_that_is_stopped_is_named(
    session: str | None, pid: int | None, said: str
) -> None:
    host = None if pid is None else f"here:{pid}"
    assert _process(lease(holder=Actor(JO.holder, session=session, host=host))) == said
