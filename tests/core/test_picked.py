"""What a pool or a run picked by itself: its edge ends with the lease, and format 4 says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core.values import (
    JO,
    KIM,
    SKEW,
    TTL,
    claim,
    code,
    complete,
    empty,
    holding,
    lease,
    leases_in,
    moment,
    park,
    renew,
    step,
)

from gitlease.core import (
    FORMAT,
    NEWEST_FORMAT,
    Actor,
    EndSession,
    Ledger,
    Operation,
    RunOut,
    grant_of,
)

LAPSED = TTL + SKEW + 1
POOL = Actor(JO.holder, session="work-1", session_explicit=True)
PICKED: dict[str, Any] = {"edge": True, "picked": True}


def picked(who: Actor = POOL) -> Ledger:
    return step(empty(), claim(who, **PICKED), when=moment(0))[0]


def test_picked_task_at_its_lapse_is_anyones() -> None:
    """S2: not a moment before; and the former holder is notified."""
    assert code(picked(), claim(KIM, abandoned=True), moment(TTL + SKEW)) == "held"
    ledger, done = step(picked(), claim(KIM, abandoned=True), when=moment(LAPSED))
    assert (done.status, done.displaced[0].holder) == ("taken_over", JO.holder)
    assert [x.what for x in ledger.notices(JO.holder)] == ["taken_over"]


@pytest.mark.parametrize(
    "operation",
    [
        claim(POOL, edge=True),
        park(POOL),
        complete(POOL),
    ],
)
def test_mark_is_taken_away_by_name(operation: Operation) -> None:
    ledger, done = step(picked(), operation, when=moment(1))
    assert not leases_in(ledger)[0].picked
    assert not done.is_renewal, "history may not forget it"


def test_mark_outlasts_heartbeats_and_the_session() -> None:
    ledger, _ = step(picked(), renew(POOL), when=moment(1))
    over = RunOut(id="over", actor=POOL, grants=(grant_of(leases_in(ledger)[0]),))
    ledger, _ = step(ledger, over, when=moment(2))
    assert [(x.session, x.edge, x.picked) for x in leases_in(ledger)] == [(None, True, True)]
    ledger = picked()
    parks = EndSession(id="p", actor=POOL, grants=(grant_of(leases_in(ledger)[0]),), park=True)
    assert not leases_in(step(ledger, parks, when=moment(1))[0])[0].picked


@pytest.mark.parametrize("chosen", [lease(edge=True), replace(lease(edge=True), parked=True)])
def test_pick_of_what_its_person_chose_has_no_mark(chosen: Any) -> None:
    when = moment(1 if chosen.parked else LAPSED)
    ledger, _ = step(holding(chosen), claim(POOL, **PICKED), when=when)
    assert [(x.edge, x.picked) for x in leases_in(ledger)] == [(True, False)]
    again, _ = step(picked(), claim(replace(POOL, session="w2"), **PICKED), when=moment(LAPSED))
    assert leases_in(again)[0].picked


def test_format_is_raised_by_the_first_use_only() -> None:
    ledger, _ = step(empty(), claim(JO, edge=True), when=moment(0))
    assert ledger.header.format == FORMAT
    ledger, _ = step(ledger, claim(POOL, "F002", **PICKED), when=moment(1))
    assert ledger.header.format == NEWEST_FORMAT
    ledger, _ = step(ledger, complete(POOL, "F002"), when=moment(2))
    assert ledger.header.format == NEWEST_FORMAT
