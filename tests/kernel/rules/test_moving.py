"""A ledger that moves: its last step here, its first one there, and nothing in between."""

from __future__ import annotations

import pytest
from kernel.rules.values import (
    JO,
    KIM,
    claim,
    code,
    fresh,
    holding,
    lease,
    leases_in,
    moment,
    renew,
    set_policy,
    step,
)

from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.moves.operations import Barrier, MoveLedger, OpenMoved
from gitlease.kernel.rules.moves.transitions import apply
from gitlease.kernel.store.records import read_header, write_header

pytestmark = pytest.mark.default

PLACE = "- refs/heads/gitlease global"
BASE = holding(lease())


def test_nothing_is_decided_at_the_former_place() -> None:
    ledger, _ = step(BASE, MoveLedger(id=fresh(), actor=KIM, to=PLACE), when=moment(1))
    for operation in (
        claim(KIM, "F9"),
        renew(JO),
        Barrier(id=fresh(), actor=JO),
        MoveLedger(id=fresh(), actor=JO, to=PLACE),
        OpenMoved(id=fresh(), actor=JO, at="- refs/other global"),
    ):
        assert code(ledger, operation, moment(1)) == "invalid"
    batch = [MoveLedger(id=fresh(), actor=KIM, to=PLACE), claim(KIM, "F9")]
    with pytest.raises(Invalid):
        apply(BASE, batch, moment(1))


def test_all_goes_on_at_the_new_place() -> None:
    ledger, _ = step(BASE, MoveLedger(id=fresh(), actor=KIM, to=PLACE), when=moment(1))
    ledger, _ = step(ledger, OpenMoved(id=fresh(), actor=JO, at=PLACE), when=moment(1))
    before, after = BASE.header, ledger.header
    assert (after.ledger_id, after.token) == (before.ledger_id, before.token)
    assert leases_in(ledger) == leases_in(BASE)
    ledger, outcome = step(ledger, renew(JO), when=moment(1))
    assert outcome.leases[0].renewals == 1
    assert code(ledger, claim(KIM), moment(1)) == "held"
    assert code(BASE, OpenMoved(id=fresh(), actor=JO, at=PLACE), moment(1)) == "invalid"


def test_admins_alone_move_a_ledger_that_has_some() -> None:
    ledger, _ = step(BASE, set_policy(JO, admins=JO.holder), when=moment(1))
    assert code(ledger, MoveLedger(id=fresh(), actor=KIM, to=PLACE), moment(1)) == "policy"
    step(ledger, MoveLedger(id=fresh(), actor=JO, to=PLACE), when=moment(1))


@pytest.mark.parametrize(
    "place", ["", "refs/x", "a\nb refs/x global", "x" * 700 + " refs/x global"]
)
def test_ledger_moves_to_a_place_alone(place: str) -> None:
    assert code(BASE, MoveLedger(id=fresh(), actor=JO, to=place), moment(1)) == "invalid"


def test_an_older_gitlease_refuses_a_ledger_that_has_moved() -> None:
    """It would go on at the former place."""
    ledger, _ = step(BASE, MoveLedger(id=fresh(), actor=KIM, to=PLACE), when=moment(1))
    data = write_header(ledger.header)
    assert data.startswith(b"format: 5\n")
    assert read_header(data).moved_to == PLACE
    assert b"moved_to" not in write_header(BASE.header)
