"""A task that its person kept is held by nobody, and no pool reports that it is stranded."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest
from kernel.rules.values import F001, JO, KIM
from support.session import MemoryWorld
from support.tasks import task

from gitlease.guard.discards import discards
from gitlease.kernel.ledger import acts
from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.ledger import is_kept
from gitlease.kernel.rules.resources import parse_resource
from gitlease.runs.pool import PoolRequest, PoolTaker
from gitlease.runs.records import RunPlace

pytestmark = pytest.mark.default

F002 = parse_resource("F002")
ONE, TWO = (replace(JO, session=name, session_explicit=True) for name in ("one", "two"))


@pytest.fixture
def world() -> MemoryWorld:
    world = MemoryWorld(task("F001"), task("F002"))
    world.of(ONE).claim([F001])
    world.of(ONE).keep([F001], note="which colour?")
    return world


@pytest.mark.parametrize("who", [JO, ONE, TWO])
def test_a_release_of_everything_leaves_it(world: MemoryWorld, who: Actor) -> None:
    world.of(who).claim([F002])
    answer = acts.release_all([world.of(who).session])
    assert [view.resource for view in answer.leases] == ["F002"]
    assert [x.resource for x in world.leases() if is_kept(x)] == [F001]


def test_nor_does_it_end_a_kept_scope_with_the_others(world: MemoryWorld) -> None:
    for scope in ("api", "ui"):
        world.of(ONE).claim([F002], ClaimOptions(scope=scope))
    world.of(ONE).keep([F002], scope="api")
    answer = acts.release_all([world.of(ONE).session])
    assert [(view.resource, view.scope) for view in answer.leases] == [("F002", "ui")]
    assert [x.scope for x in world.leases() if x.resource == F002 and is_kept(x)] == ["api"]


@pytest.mark.parametrize("who", [JO, KIM])
@pytest.mark.parametrize("seconds", [1, 86_400])
def test_a_pool_counts_it_as_left(world: MemoryWorld, who: Actor, seconds: int) -> None:
    world.clock.advance(seconds)
    warned: list[str] = []
    world.of(who).read()
    place = cast(RunPlace, SimpleNamespace(queue=world.queue(who)))
    request = cast(PoolRequest, SimpleNamespace(worktrees=False))
    taker = PoolTaker(place, request, Mock(), warn=warned.append, stop_level=int)
    assert "F001" in taker.names_left({"F002"}, is_over=True)
    assert (taker.stranded, warned) == ({}, [])


@pytest.mark.parametrize("command", [r"\rm -rf src", r"ls && \git reset --hard"])
def test_a_backslash_against_an_alias_hides_no_command(command: str) -> None:
    assert len(list(discards(command, "/r"))) == 1
