"""What sessions do to leases: a run binds and unbinds, and a session's end keeps edges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core.values import (
    F001,
    JO,
    KIM,
    SKEW,
    TTL,
    at,
    claim,
    code,
    empty,
    fresh,
    holding,
    lease,
    moment,
    only,
    park,
    release,
    step,
)

from gitlease.core import (
    Actor,
    Bind,
    GitleaseError,
    Grant,
    Lease,
    LeaseHeld,
    Loss,
    NotHolder,
    Relation,
    RunOut,
    Sighting,
    State,
    Unbind,
    apply,
    parse_resource,
    still_held,
    without_process,
)
from gitlease.core.lease import relation
from gitlease.store import check_lease, read_lease

RUN = replace(JO, session="run-1", host="laptop:4711")
OTHER = replace(JO, session="run-2", host="desk:12")
LIVE = TTL / 2
LAPSED = TTL + SKEW + 5


def grants(*leases: Lease) -> tuple[Grant, ...]:
    return tuple(Grant(x.resource, x.scope, x.session, x.lease_id, x.token) for x in leases)


def bind(who: Actor, *names: str, **more: Any) -> Bind:
    return Bind(id=fresh(), actor=who, resources=tuple(map(parse_resource, names)), **more)


def unbind(who: Actor, *leases: Lease) -> Unbind:
    return Unbind(id=fresh(), actor=who, grants=grants(*leases))


def run_out(who: Actor, *leases: Lease, **more: Any) -> RunOut:
    return RunOut(id=fresh(), actor=who, grants=grants(*leases), **more)


# --- a run binds ----------------------------------------------------------------------------------


def test_a_run_binds_what_its_person_holds_and_a_second_one_is_refused() -> None:
    first = [bind(RUN, "F001"), claim(RUN)]
    ledger, outcome = step(holding(lease()), *first, when=moment(LIVE))
    assert [x.session for x in outcome.leases] == ["run-1"]
    stands = only(ledger)
    assert (stands.session, stands.host, stands.token) == ("run-1", "laptop:4711", 1)
    with pytest.raises(LeaseHeld) as refused:
        apply(ledger, [bind(OTHER, "F001"), claim(OTHER)], moment(LIVE))
    assert refused.value.conflicts[0] == stands


def test_what_it_gives_back_is_its_persons_again() -> None:
    ledger, _ = step(holding(lease(edge=True)), bind(RUN, "F001"), when=moment(LIVE))
    ledger, outcome = step(ledger, unbind(RUN, only(ledger)), when=moment(LIVE))
    assert (outcome.status, [e.kind for e in outcome.events]) == ("unbound", ["unbound"])
    back = only(ledger)
    assert (back.session, back.edge, back.expires_at) == (None, True, at(TTL).wall_ms)
    assert relation(back, OTHER, ledger.header.policy, moment(LIVE)) is Relation.MINE


@pytest.mark.parametrize(
    "record",
    [
        lease(holder=KIM),
        lease(holder=OTHER),
        lease(resource="F002"),
        lease(scope="ui"),
        replace(lease(), parked=True),
        lease(state=State.COMPLETED),
        lease(ttl=5),
    ],
    ids=["another's", "of a run", "another", "a part", "parked", "completed", "run out"],
)
def test_nothing_else_is_bound(record: Lease) -> None:
    assert not apply(holding(record), [bind(RUN, "F001")], moment(LIVE)).changed


def test_what_shares_work_with_another_run_is_not_bound() -> None:
    ledger = holding(lease(paths=("src/a.py",)), lease(resource="src/", holder=OTHER))
    assert not apply(ledger, [bind(RUN, "F001")], moment(LIVE)).changed


def test_only_the_run_and_its_person_unbind() -> None:
    """And without a session nothing can be bound."""
    ledger = holding(bound := lease(holder=RUN))
    for who in (OTHER, KIM, replace(KIM, session="run-1")):
        with pytest.raises(NotHolder) as refused:
            apply(ledger, [unbind(who, bound)], moment(LIVE))
        assert refused.value.conflicts
    for who in (RUN, JO):
        after, _ = step(ledger, unbind(who, bound), when=moment(LIVE))
        assert only(after).session is None
    assert code(holding(lease()), bind(JO, "F001"), moment(LIVE)) == "usage"


@pytest.mark.parametrize(
    "after",
    [[release(RUN)], [release(RUN), claim(RUN)], [release(RUN), claim(KIM)], [park(RUN)]],
    ids=["released", "granted anew", "another's", "parked"],
)
def test_what_is_bound_no_more_is_left_alone(after: list[Any]) -> None:
    ledger = holding(bound := lease(holder=RUN))
    for wish in after:
        ledger, _ = step(ledger, replace(wish, id=fresh()), when=moment(LIVE))
    assert not apply(ledger, [unbind(RUN, bound)], moment(LIVE)).changed


def test_a_run_whose_lease_was_unbound_and_bound_again_has_lost_it() -> None:
    ledger, _ = step(holding(lease()), bind(RUN, "F001"), when=moment(LIVE))
    (held,) = grants(only(ledger))
    for wish in (unbind(JO, only(ledger)), bind(OTHER, "F001")):
        ledger, _ = step(ledger, wish, when=moment(LIVE))
    with pytest.raises(GitleaseError) as lost:
        still_held(ledger, held, JO.holder, moment(LIVE))
    assert getattr(lost.value, "loss", None) == Loss.TAKEN_OVER.value


# --- a session ends -------------------------------------------------------------------------------


def test_what_has_an_edge_runs_out_now_and_stays() -> None:
    work, port = lease(holder=RUN, edge=True), lease(resource="port-80", holder=RUN)
    ledger, outcome = step(holding(work, port), run_out(RUN, work, port), when=moment(LIVE))
    assert outcome.status == "run_out"
    assert [(e.kind, e.resource) for e in outcome.events] == [
        ("run_out", "F001"),
        ("released", "port-80"),
    ]
    left = only(ledger)
    now = at(LIVE).wall_ms
    assert (left.session, left.edge, left.renewed_at, left.expires_at) == (None, True, now, now)
    assert read_lease(check_lease(left)) == left
    assert not apply(ledger, [run_out(RUN, work, port)], moment(LIVE)).changed


def test_its_person_goes_on_at_once_by_a_new_grant_and_others_may_not() -> None:
    work = lease(holder=RUN, edge=True)
    ledger, _ = step(holding(work), run_out(JO, work), when=moment(LIVE))
    seen = Sighting(at(LIVE), changed=True)
    for when in (moment(LIVE + 1, seen), moment(LIVE + SKEW + 10, seen)):
        assert code(ledger, claim(KIM), when) == "held"
    ledger, outcome = step(ledger, claim(OTHER, edge=True), when=moment(LIVE))
    assert (outcome.status, only(ledger).token) == ("claimed", 2)
    late, _ = step(holding(work), run_out(RUN, work), when=moment(LAPSED))
    assert (only(late).expires_at, only(late).session) == (at(TTL).wall_ms, None)


def test_whoever_still_works_in_it_has_lost_it() -> None:
    """Nobody ends the session of another, though."""
    work = lease(holder=RUN, edge=True)
    for who in (KIM, replace(KIM, session="run-1")):
        assert not apply(holding(work), [run_out(who, work)], moment(LIVE)).changed
    ledger, _ = step(holding(work), run_out(JO, work, note="half done"), when=moment(LIVE))
    assert [n.text for n in ledger.notes(F001)] == ["half done"]
    with pytest.raises(GitleaseError) as lost:
        still_held(ledger, grants(work)[0], JO.holder, moment(LIVE))
    assert getattr(lost.value, "loss", None) == Loss.RELEASED_ELSEWHERE.value


# --- one worker is one session --------------------------------------------------------------------


@pytest.mark.parametrize("who", [JO, RUN])
def test_a_claim_that_wants_a_new_grant_is_refused_by_ones_own_live_lease(who: Actor) -> None:
    ledger = holding(lease(holder=who))
    assert code(ledger, claim(who, new=True), moment(LIVE)) == "held"
    _, outcome = step(ledger, claim(who, new=True), when=moment(LAPSED))
    assert outcome.status == "claimed"
    _, outcome = step(empty(), claim(who, new=True), when=moment())
    assert outcome.status == "claimed"


@pytest.mark.parametrize(
    ("host", "place", "machine"),
    [
        (None, (None, None, None), None),
        ("laptop", ("laptop", None, None), "laptop"),
        ("laptop:4711", ("laptop", 4711, None), "laptop"),
        ("laptop/T001", ("laptop", None, "T001"), "laptop/T001"),
        ("laptop/a:b:4711", ("laptop", 4711, "a:b"), "laptop/a:b"),
    ],
)
def test_a_host_names_machine_process_and_work_tree(
    host: str | None, place: tuple[object, ...], machine: str | None
) -> None:
    assert replace(lease(), host=host).place == place
    assert without_process(host) == machine
