"""A restored ledger whose first step could not have been made by the table of moves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel.rules.values import F001, JO, KIM
from support.session import MemoryWorld

from gitlease.kernel.ledger.deleted import restore
from gitlease.kernel.rules.errors import Rollback
from gitlease.kernel.rules.resources import parse_resource

pytestmark = pytest.mark.default

F002 = parse_resource("F002")


def test_a_restoration_as_it_was_made_is_believed() -> None:
    assert forged({}) == "renewed"


@pytest.mark.parametrize(
    "header",
    [
        {"epoch": 0, "sequence": 2},  # Kim has token 2
        {"epoch": 0, "sequence": 1},
        {"closed_until": None},
        {"ledger_id": "another"},
    ],
)
def test_a_restoration_with_a_forged_header_is_a_rollback(header: dict[str, object]) -> None:
    """S2 and S4: without its wait, or with tokens that were given before."""
    with pytest.raises(Rollback):
        forged(header)


def forged(header: dict[str, object]) -> str:
    """Kim's renewal of F002, which Jo's restoration lacks, when that has another header."""
    world = MemoryWorld()
    world.of(JO).claim([F001])
    world.of(KIM).claim([F002])
    world.remote.force("global", "")
    restore(world.of(JO).session)
    step = world.remote.steps[world.remote.refs["global"]]
    made = replace(step, header=replace(step.header, **header))  # type: ignore[arg-type]
    world.remote.force("global", world.remote.keep(made))
    return world.of(KIM).renew([F002]).status
