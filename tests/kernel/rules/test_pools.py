"""What pools pick by themselves, and the failures that they count in a task's notes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kernel.rules.values import (
    F001,
    JO,
    KIM,
    SKEW,
    TTL,
    claim,
    code,
    complete,
    empty,
    fresh,
    holding,
    lease,
    leases_in,
    moment,
    park,
    renew,
    step,
)

from gitlease.kernel.rules.errors import NothingLeft
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.ledger import (
    FAILED,
    FORMAT,
    LEFT_ALONE,
    PICKED_FORMAT,
    WAITS,
    WORD,
    Ledger,
    Setback,
)
from gitlease.kernel.rules.moves.operations import (
    AddNote,
    EndSession,
    Operation,
    Park,
    Pick,
    Release,
    RunOut,
    grant_of,
)
from gitlease.kernel.rules.moves.transitions import apply
from gitlease.kernel.rules.resources import parse_resource

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
    assert ledger.header.format == PICKED_FORMAT
    ledger, _ = step(ledger, complete(POOL, "F002"), when=moment(2))
    assert ledger.header.format == PICKED_FORMAT


OTHER = Actor(KIM.holder, session="work-2", session_explicit=True)
NOTE = "exit 3 on laptop"
F002 = parse_resource("F002")


def failing(ledger: Ledger, at: float, who: Actor = POOL) -> Ledger:
    """The ledger after a pool claimed the task, and gave it back failed."""
    ledger, _ = step(ledger, claim(who, picked=True), when=moment(at))
    return step(ledger, ending(ledger, who), when=moment(at + 1))[0]


def ending(ledger: Ledger, who: Actor = POOL, mark: str = FAILED) -> EndSession:
    grants = tuple(map(grant_of, leases_in(ledger)))
    return EndSession(id=fresh() + mark, actor=who, grants=grants, note=NOTE)


def picking(who: Actor = OTHER) -> Pick:
    made = [replace(claim(who, name, picked=True), id="pick") for name in ("F001", "F002")]
    return Pick(id=fresh(), actor=who, claims=tuple(made))


def found(ledger: Ledger) -> Setback:
    setback = ledger.setback(F001)
    assert setback is not None
    return setback


def test_pick_leaves_a_failed_task_alone_for_a_while() -> None:
    """S1, L1: whoever decides again, on the ledger with the failure, comes to the next task."""
    ledger = failing(empty(), 0)
    _, other = step(ledger, picking(), when=moment(LEFT_ALONE))
    assert other.leases[0].resource == F002
    _, again = step(ledger, picking(), when=moment(1 + LEFT_ALONE))
    assert again.leases[0].resource == F001


def test_time_doubles_and_after_three_a_person_is_needed() -> None:
    ledger, at = empty(), 0.0
    for waits in (LEFT_ALONE, 2 * LEFT_ALONE):
        ledger = failing(ledger, at)
        assert found(ledger).free_at == found(ledger).last.at + waits * 1_000
        at += waits + 2
    ledger = failing(ledger, at)
    assert (found(ledger).failures, found(ledger).free_at) == (3, None)
    assert found(ledger).is_left_alone(10**15)
    pick = replace(picking(), claims=picking().claims[:1])
    with pytest.raises(NothingLeft):
        apply(ledger, [pick], moment(10**6))


def test_claim_by_name_is_never_kept_out() -> None:
    """L1."""
    ledger = failing(failing(failing(empty(), 0), 10), 20)
    ledger, done = step(ledger, claim(KIM), when=moment(30))
    assert done.status == "claimed"
    assert found(ledger).failures == 3


@pytest.mark.parametrize(
    "word",
    [
        AddNote(id=f"1{WORD}", actor=KIM, resource=F001, text="the database is up again"),
        Release(id=f"1{WORD}", actor=KIM, resource=F001, note="look at the log first"),
        complete(KIM),
    ],
)
def test_word_of_a_person_and_done_end_it(word: Operation) -> None:
    ledger, _ = step(failing(empty(), 0), word, when=moment(9))
    assert ledger.setback(F001) is None
    if not leases_in(ledger):
        assert found(failing(ledger, 10)).failures == 1


@pytest.mark.parametrize(
    "other",
    [
        AddNote(id="1", actor=POOL, resource=F001, text="starting"),
        Release(id="1", actor=POOL, resource=F001, note="half of it"),
    ],
)
def test_notes_of_sessions_change_nothing(other: Operation) -> None:
    ledger, _ = step(failing(empty(), 0), other, when=moment(9))
    assert found(ledger).failures == 1
    assert found(ledger).last.text == NOTE


def test_failure_counts_once_and_with_the_end_of_its_lease() -> None:
    """S6, S7: not again, nor for a lease that is another's by now."""
    ledger, _ = step(empty(), claim(POOL, picked=True), when=moment(0))
    late = ending(ledger)
    after, _ = step(ledger, ending(ledger), when=moment(1))
    _, nothing = step(ledger, ending(ledger, OTHER), when=moment(1), together=False)
    assert not nothing.changed
    after, _ = step(after, claim(OTHER), when=moment(2))
    assert not apply(after, [late], moment(3)).changed
    assert found(after).failures == 1


def test_parked_for_a_person_is_left_alone_by_its_own_pool() -> None:
    ledger, _ = step(empty(), claim(POOL, picked=True), when=moment(0))
    parked = Park(id=fresh() + WAITS, actor=POOL, resource=F001, note="which colour?")
    ledger, _ = step(ledger, parked, when=moment(1))
    assert (found(ledger).waits, found(ledger).failures, found(ledger).free_at) == (True, 0, None)
    _, other = step(ledger, picking(replace(POOL, session="work-3")), when=moment(9))
    assert other.leases[0].resource == F002
    answer = AddNote(id=f"1{WORD}", actor=JO, resource=F001, text="blue")
    ledger, _ = step(ledger, answer, when=moment(10))
    _, own = step(ledger, picking(replace(POOL, session="work-3")), when=moment(11))
    assert own.leases[0].resource == F001


def test_note_from_the_future_keeps_nobody_out() -> None:
    """L2: whoever wrote it has a wrong clock."""
    setback: Any = found(failing(empty(), 10**7))
    assert not setback.is_left_alone(moment(0).now.wall_ms)
