"""A kept task waits for its person: what a session, as an agent's, may and may not do about it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel.rules.values import F001, JO
from support.session import MemoryWorld
from support.tasks import task

from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.rules.errors import Hint, UsageError
from gitlease.kernel.rules.ledger import is_kept
from gitlease.kernel.rules.resources import parse_resource

pytestmark = pytest.mark.default

F002, SRC, NAME = map(parse_resource, ("F002", "src/", "staging"))
ONE, TWO = (replace(JO, session=name, session_explicit=True) for name in ("one", "two"))


@pytest.fixture
def world() -> MemoryWorld:
    world = MemoryWorld(task("F001"), task("F002"))
    world.of(ONE).claim([F001])
    world.of(ONE).keep([F001], note="which colour?")
    return world


def kept(world: MemoryWorld) -> list[str]:
    return [f"{x.resource} {x.scope}" for x in world.leases() if is_kept(x)]


@pytest.mark.parametrize("who", [ONE, TWO])
def test_a_release_in_a_session_leaves_it_waiting(world: MemoryWorld, who: object) -> None:
    answer = world.of(who).release([F001])  # type: ignore[arg-type]
    assert (answer.status, answer.changed, answer.leases) == ("released", False, ())
    assert [x for x in answer.warnings if "F001 was kept and waits for its person" in x]
    assert kept(world) == ["F001 *"]
    assert world.files[JO.holder]["F001"].assigned == (JO.holder,)


def test_a_person_s_release_ends_its_waiting(world: MemoryWorld) -> None:
    assert world.of(JO).release([F001]).leases[0].resource == "F001"
    assert kept(world) == []
    assert world.files[JO.holder]["F001"].assigned == ()


def test_the_session_s_other_leases_and_its_note_are_not_lost(world: MemoryWorld) -> None:
    world.of(ONE).claim([F002])
    answer = world.of(ONE).release([F001, F002], note="tests are red")
    assert [x.resource for x in answer.leases] == ["F002"]
    assert kept(world) == ["F001 *"]
    for resource in (F001, F002):
        notes = world.of(JO).read(resource=resource).notes
        assert notes[-1].text == "tests are red"


def test_another_scope_of_it_is_released(world: MemoryWorld) -> None:
    for scope in ("api", "ui"):
        world.of(ONE).claim([F002], ClaimOptions(scope=scope))
    world.of(ONE).keep([F002], scope="api")
    assert [x.scope for x in world.of(ONE).release([F002]).leases] == ["ui"]
    assert kept(world) == ["F001 *", "F002 api"]


def test_what_was_claimed_again_elsewhere_is_released(world: MemoryWorld) -> None:
    """The clone still knows it as kept."""
    world.of(ONE, clone="b").claim([F001])
    assert [x.resource for x in world.of(ONE).release([F001]).leases] == ["F001"]
    assert world.leases() == []


@pytest.mark.parametrize(("resource", "any_name"), [(SRC, False), (NAME, True)])
@pytest.mark.parametrize("scope", ["*", "api"])
def test_what_is_no_task_has_a_claim_that_lasts_instead(
    world: MemoryWorld, resource: object, any_name: bool, scope: str
) -> None:
    options = ClaimOptions(scope=scope, any_name=any_name)
    world.of(JO).claim([resource], options)  # type: ignore[list-item]
    with pytest.raises(UsageError) as refused:
        world.of(JO).keep([resource])  # type: ignore[list-item]
    (hint,) = refused.value.hints
    assert isinstance(hint, Hint)
    words = f"gitlease claim {resource}{' --scope api' * (scope == 'api')} --ttl 8h"
    assert str(hint).removesuffix(" --any").endswith(words)
    assert str(hint).endswith(" --any") == any_name
