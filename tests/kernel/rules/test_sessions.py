"""What sessions do to leases: a run binds, a session ends, and what older versions parked.

Nothing writes a parked lease any more. Histories have them, so their moves stay as they were.
"""

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
    at,
    claim,
    code,
    complete,
    empty,
    end,
    extend,
    fresh,
    holding,
    lease,
    leases_in,
    moment,
    only,
    park,
    release,
    renew,
    step,
)
from support.snapshots import check_words, raises

from gitlease.kernel.rules.errors import (
    GitleaseError,
    LeaseHeld,
    LeaseLost,
    Loss,
    NothingLeft,
    NotHolder,
    PolicyRefused,
)
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import (
    DEFAULT_POLICY,
    TABLE,
    Actor,
    Lease,
    Moment,
    Policy,
    Relation,
    Sighting,
    Standing,
    State,
    relation,
    standing,
    without_process,
)
from gitlease.kernel.rules.ledger import Ledger
from gitlease.kernel.rules.loss import still_held
from gitlease.kernel.rules.moves.operations import Bind, Grant, Pick, Renew, RunOut, Unbind
from gitlease.kernel.rules.moves.transitions import apply
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store.records import (
    BadRecord,
    check_lease,
    read_header,
    read_lease,
    write_header,
    write_lease,
)

LIVE, EXPIRED, LAPSED = 10, TTL + 1, TTL + SKEW + 1  # seconds after the grant
HOUR, DAY = 3_600, 86_400

JO_CI = replace(JO, session="build-7")
JO_AGENT = replace(JO, session="claude:1234", session_explicit=True)


def parked(
    *records: Lease, who: Actor = JO, seconds: float = LIVE, policy: Policy = DEFAULT_POLICY
) -> Ledger:
    """A ledger in which somebody has parked these records, each for an hour."""
    ledger = holding(*(records or (lease(),)), policy=policy)
    for record in leases_in(ledger):
        wish = park(who, str(record.resource), scope=record.scope, seconds=HOUR)
        ledger, _ = step(ledger, wish, when=moment(seconds))
    return ledger


# --- whose lease may be parked ------------------------------------------------------------------

DONE = lease(state=State.COMPLETED, ttl=10)
KEPT = replace(lease(), parked=True)
SITUATIONS = [
    (Relation.MINE, lease(), JO, LIVE, "parked"),
    (Relation.MINE, lease(), JO_AGENT, LIVE, "parked"),
    (Relation.MINE, lease(holder=JO_CI), JO_CI, LIVE, "parked"),
    (Relation.MINE, KEPT, JO, LIVE, "parked"),
    (Relation.MINE, KEPT, JO_CI, LIVE, "parked"),
    (Relation.MINE_LAPSED, lease(), JO, EXPIRED, "lost"),
    (Relation.MINE_LAPSED, KEPT, JO, EXPIRED, "lost"),
    (Relation.MINE_LAPSED, lease(holder=JO_CI), JO, LAPSED, "lost"),
    (Relation.MY_RUN, lease(holder=JO_CI), JO, LIVE, "parked"),
    (Relation.MY_RUN, lease(holder=JO_CI), JO, EXPIRED, "lost"),
    (Relation.MY_OTHER_RUN, lease(holder=JO_CI), JO_AGENT, LIVE, "not_holder"),
    (Relation.MY_OTHER_RUN, lease(holder=JO_CI), JO_AGENT, EXPIRED, "not_holder"),
    (Relation.THEIRS, lease(), KIM, LIVE, "not_holder"),
    (Relation.THEIRS, KEPT, KIM, LIVE, "not_holder"),
    (Relation.THEIRS, lease(), KIM, EXPIRED, "not_holder"),
    (Relation.THEIRS_LAPSED, lease(), KIM, LAPSED, "lost"),
    (Relation.THEIRS_ASSIGNED, lease(edge=True), KIM, LAPSED, "lost"),
    (Relation.THEIRS_ABANDONED, lease(edge=True), KIM, 7 * DAY + LAPSED, "lost"),
    (Relation.COMPLETED, DONE, JO, LIVE, "lost"),
    (Relation.GONE, DONE, JO, 31 * DAY, "lost"),
]


@pytest.mark.parametrize(
    ("how", "record", "caller", "seconds", "expected"),
    SITUATIONS,
    ids=[f"{how.name.lower()}-{number}" for number, (how, *_) in enumerate(SITUATIONS)],
)
def test_only_ones_own_live_lease_is_parked(
    how: Relation, record: Lease, caller: Actor, seconds: float, expected: str
) -> None:
    assert relation(record, caller, DEFAULT_POLICY, moment(seconds)) is how
    assert code(holding(record), park(caller), moment(seconds)) == expected
    assert {how for how, *_ in SITUATIONS} == set(Relation) == set(TABLE)


def test_no_verb_makes_live_again_what_ran_out() -> None:
    """Neither for its own run nor for the person, and what ran out here may live elsewhere."""
    run = lease(holder=JO_CI, ttl=60)
    slow_clock = at(LIVE + 1, boot=LIVE + 61)  # it was set back
    slow = Moment(slow_clock, lambda _: Sighting(at=at(LIVE), changed=True))
    for when in (moment(61), slow):
        for who in (JO, JO_CI, JO_AGENT):
            wishes: list[Any] = [park(who), renew(who), renew(who, None), extend(who, DAY)]
            wishes += [end(who, run, park=True)]
            wishes += [Renew(id=fresh(), actor=who, resource=None, grants=end(who, run).grants)]
            wishes += [claim(who)] if who is not JO_CI else []
            for wish in wishes:
                ledger = apply(holding(run), [wish], when, together=False).ledger
                assert leases_in(ledger) == [replace(run, token=1)], wish


# --- what it keeps, and for how long ------------------------------------------------------------


def test_a_parked_lease_is_bound_to_nobody_and_lasts_as_long_as_was_asked() -> None:
    before = lease(holder=JO_CI, edge=True, paths=("src/",))
    ledger, outcome = step(holding(before), park(JO_CI, seconds=3 * HOUR), when=moment(LIVE))
    record = only(ledger)
    assert (record.parked, record.session) == (True, None)
    assert (record.renewed_at, record.expires_at) == (
        at(LIVE).wall_ms,
        at(LIVE + 3 * HOUR).wall_ms,
    )
    kept = ("resource", "scope", "holder", "lease_id", "ttl", "claimed_at", "paths", "edge", "host")
    assert all(getattr(record, name) == getattr(before, name) for name in kept)
    assert record.token == 1
    assert (outcome.status, outcome.leases, outcome.is_renewal) == ("parked", (record,), False)
    assert [(e.kind, e.session) for e in outcome.events] == [("parked", "build-7")]
    assert not outcome.capped_to_max


@pytest.mark.parametrize(
    ("policy", "asked", "lasts", "capped"),
    [
        ({}, None, DAY, False),
        ({}, DAY + 1, DAY, True),
        ({"park_max": 2 * HOUR}, None, 2 * HOUR, False),
        ({"park_max": 2 * HOUR}, 3 * HOUR, 2 * HOUR, True),
        ({"park_max": 5}, None, TTL - LIVE, False),
        ({}, 60, TTL - LIVE, False),
    ],
)
def test_the_policy_caps_it_and_it_never_shortens(
    policy: dict[str, int], asked: int | None, lasts: int, capped: bool
) -> None:
    ledger = holding(lease(), policy=Policy(**policy))  # type: ignore[arg-type]
    ledger, outcome = step(ledger, park(JO, seconds=asked), when=moment(LIVE))
    assert only(ledger).expires_at == at(LIVE + lasts).wall_ms
    assert outcome.capped_to_max == capped


def test_where_the_policy_parks_nothing_it_is_refused() -> None:
    ledger = holding(lease(holder=JO_CI), policy=Policy(park_max=0))
    for wish in (park(JO_CI), park(JO_CI, seconds=5), end(JO_CI, only(ledger), park=True)):
        with raises(PolicyRefused):
            apply(ledger, [wish], moment(LIVE))
    assert code(ledger, end(JO_CI, only(ledger)), moment(LIVE)) == "released"


def test_all_own_scopes_are_parked_unless_one_is_named() -> None:
    """A reason is shown to others, and a note left for the next; a renewal passes them over."""
    ledger = holding(lease(scope="a"), lease(scope="b"), lease(scope="c", holder=KIM))
    wish = park(JO, scope="B", reason="back tomorrow", note="half done")
    ledger, outcome = step(ledger, wish, when=moment(LIVE))
    assert [(x.scope, x.reason) for x in outcome.leases] == [("b", "back tomorrow")]
    assert [n.text for n in ledger.notes(F001)] == ["half done"]
    assert [e.reason for e in outcome.events] == ["half done"]
    _, renewed = step(ledger, renew(JO), when=moment(LIVE + 1))
    assert [x.scope for x in renewed.leases] == ["a"]
    ledger, outcome = step(ledger, park(JO), when=moment(LIVE))
    assert [x.scope for x in outcome.leases] == ["a", "b"]
    assert {x.scope: x.parked for x in leases_in(ledger)} == {"a": True, "b": True, "c": False}


@pytest.mark.parametrize("edge", [False, True])
def test_others_are_kept_out_until_it_lapses(edge: bool) -> None:
    ledger, until = parked(lease(edge=edge)), LIVE + HOUR + SKEW
    for seconds in (LIVE + 1, TTL + SKEW + 1, until):
        with pytest.raises(LeaseHeld) as refused:
            apply(ledger, [claim(KIM)], moment(seconds))
        assert edge or refused.value.free_at_ms == at(until).wall_ms
    if edge:
        assert code(ledger, claim(KIM), moment(until + 1)) == "held"
    more: Any = {"takeover": True, "reason": "on holiday"} if edge else {}
    ledger, outcome = step(ledger, claim(KIM, **more), when=moment(until + 1))
    assert outcome.status == "taken_over"
    assert (only(ledger).holder, only(ledger).parked) == (KIM.holder, False)


def test_one_from_the_future_is_waited_for_as_long_as_it_was_parked() -> None:
    """The clock is wrong: the record is judged by its duration, and that by what may be parked."""
    record = replace(
        lease(since=7 * DAY), parked=True, expires_at=at(7 * DAY).wall_ms + 10 * HOUR * MS
    )
    seen = Sighting(at=at(0), changed=False)
    for hours, expected in ((9, Standing.LIVE), (11, Standing.LAPSED)):
        when = moment(hours * HOUR, seen)
        assert standing(record, DEFAULT_POLICY, when) is expected
    short = replace(record, parked=False)
    assert standing(short, DEFAULT_POLICY, moment(9 * HOUR, seen)) is Standing.LAPSED


# --- who keeps it alive: nobody -----------------------------------------------------------------


@pytest.mark.parametrize("who", [JO, JO_CI, JO_AGENT])
def test_neither_renew_nor_extend_touches_it(who: Actor) -> None:
    ledger = parked()
    for wish in (renew(who), extend(who, HOUR)):
        with raises(LeaseLost) as refused:
            apply(ledger, [wish], moment(LIVE + 1))
        check_words(refused.value.hints)
    for seconds in (LIVE + 1, LIVE + HOUR + 1):
        assert not apply(ledger, [renew(who, None)], moment(seconds)).changed


# --- who goes on with it ------------------------------------------------------------------------


@pytest.mark.parametrize("who", [JO, JO_CI, JO_AGENT])
def test_any_session_of_its_holder_goes_on_with_it_by_a_new_grant(who: Actor) -> None:
    before = lease(holder=JO_CI, ttl=600, edge=True, paths=("src/",))
    ledger = parked(replace(before, reason="limits"), who=JO_CI)
    old = only(ledger)
    ledger, outcome = step(ledger, claim(who, paths=("docs/",)), when=moment(LIVE + 60))
    record = only(ledger)
    assert (outcome.status, outcome.displaced) == ("claimed", ())
    assert (record.parked, record.session) == (False, who.session)
    assert (record.paths, record.reason, record.edge) == (("src/", "docs/"), "limits", True)
    assert record.token > old.token, "whoever works under the parked one is fenced off"
    assert record.lease_id != old.lease_id
    assert record.ttl == 600
    assert record.claimed_at == record.renewed_at == at(LIVE + 60).wall_ms
    assert record.expires_at == at(LIVE + 660).wall_ms, "the usual time: it is a new promise"
    assert ledger.notices(JO.holder) == ()
    other = JO_AGENT if who != JO_AGENT else JO_CI
    expected = "renewed" if who is JO else "held"
    assert code(ledger, claim(other), moment(LIVE + 61)) == expected


def test_a_claim_of_overlapping_work_of_ones_own_leaves_it_parked() -> None:
    """Only the session that works on it may resume it then."""
    ledger = parked(lease(resource="src/"), lease(resource="F001"))
    ledger, _ = step(ledger, claim(JO_CI, "src/a.py"), when=moment(LIVE + 1))
    ledger, _ = step(ledger, claim(JO_CI, "F001", scope="parser"), when=moment(LIVE + 1))
    records = {(str(x.resource), x.scope): x.parked for x in leases_in(ledger)}
    names = [("path:src", "*"), ("src/a.py", "*"), ("F001", "*"), ("F001", "parser")]
    assert records == dict(zip(names, [True, False, True, False], strict=True))
    assert code(ledger, claim(JO_AGENT, "src/"), moment(LIVE + 2)) == "held"
    step(ledger, claim(JO_CI, "src/"), when=moment(LIVE + 2))


# --- the pick ----------------------------------------------------------------------------------


def pick(who: Actor, *names: str) -> Pick:
    claims = tuple(claim(who, name) for name in names)
    return Pick(id=fresh(), actor=who, claims=claims)


def test_a_pick_resumes_what_is_parked_and_the_next_one_gets_the_next() -> None:
    ledger = parked()
    ledger, first = step(ledger, pick(JO_CI, "F001", "F002"), when=moment(LIVE + 1))
    ledger, then = step(ledger, pick(JO_AGENT, "F001", "F002"), when=moment(LIVE + 1))
    assert [str(o.leases[0].resource) for o in (first, then)] == ["F001", "F002"]
    with pytest.raises(NothingLeft):
        apply(ledger, [pick(JO_AGENT, "F001", "F002")], moment(LIVE + 1))


# --- the end of a session -----------------------------------------------------------------------


def run_of_four() -> tuple[Ledger, list[Lease]]:
    """Three leases of a session, one of which ran out, and three that are not."""
    own = [lease(resource="A", holder=JO_CI), lease(resource="B", scope="x", holder=JO_CI, ttl=5)]
    own.append(lease(resource="src/", holder=JO_CI))
    others = [lease(resource="B", scope="y"), lease(resource="C", holder=JO_AGENT)]
    return holding(*own, *others, lease(resource="D", holder=KIM)), own


def test_a_session_ends_with_all_it_holds_and_nothing_else() -> None:
    ledger, own = run_of_four()
    ledger, outcome = step(ledger, end(JO_CI, *own, note="stopped"), when=moment(LIVE))
    assert outcome.status == "released"
    assert [str(x.resource) for x in outcome.leases] == [str(x.resource) for x in own]
    assert {x.state for x in outcome.leases} == {State.RELEASED}
    assert [str(x.resource) for x in leases_in(ledger)] == ["B", "C", "D"]
    assert [e.kind for e in outcome.events] == ["released"] * 3
    assert len(ledger.header.ring) == 1, "one operation, however many leases"
    notes = [n for x in own for n in ledger.notes(x.resource)]
    assert [n.text for n in notes] == ["stopped"] * 3
    assert len({n.id for n in notes}) == 3
    assert not apply(ledger, [end(JO_CI, *own)], moment(LIVE)).changed


def test_a_session_that_is_parked_keeps_what_is_live() -> None:
    run = lease(holder=JO_CI)
    over = lease(resource="F002", holder=JO_CI, ttl=5)
    wish = end(JO_CI, run, over, park=True, seconds=2 * DAY, note="half done")
    ledger, outcome = step(holding(run, over), wish, when=moment(LIVE))
    assert (outcome.status, outcome.capped_to_max) == ("parked", True)
    records = {str(x.resource): x for x in leases_in(ledger)}
    assert (records["F001"].parked, records["F001"].session) == (True, None)
    assert records["F001"].expires_at == at(LIVE + DAY).wall_ms
    assert (records["F002"].parked, records["F002"].session) == (False, "build-7")
    assert [n.text for n in ledger.notes(F001)] == ["half done"]


@pytest.mark.parametrize("who", [KIM, replace(KIM, session="build-7")])
def test_nobody_ends_the_session_of_another_person(who: Actor) -> None:
    ledger, own = run_of_four()
    assert not apply(ledger, [end(who, *own)], moment(LIVE)).changed
    assert not apply(ledger, [end(who, *own, park=True)], moment(LIVE)).changed


@pytest.mark.parametrize(
    "after",
    [
        [release(JO_CI), claim(JO)],  # the person's own by now
        [release(JO_CI), claim(JO_CI)],  # another grant to the same session
        [release(JO_CI), claim(KIM)],
        [park(JO_CI)],
        [complete(JO_CI)],
    ],
    ids=["unbound", "granted anew", "another's", "parked", "completed"],
)
def test_what_became_something_else_meanwhile_is_left_alone(after: list[Any]) -> None:
    run = lease(holder=JO_CI)
    ledger = holding(run)
    for wish in after:
        ledger, _ = step(ledger, replace(wish, id=fresh()), when=moment(LIVE))
    for more in ({}, {"park": True}):
        assert not apply(ledger, [end(JO_CI, run, **more)], moment(LIVE)).changed


# --- the record and the policy ------------------------------------------------------------------


def test_a_parked_lease_is_recorded_and_read_again() -> None:
    kept, data = replace(lease(), parked=True), write_lease(lease())
    assert write_lease(kept).endswith(b"parked: true\n")
    assert read_lease(check_lease(kept)) == kept
    assert b"parked" not in data
    assert read_lease(data + b"parked: false\n").parked is False


@pytest.mark.parametrize(
    "record",
    [
        write_lease(lease()) + b"parked: 1\n",
        write_lease(lease(holder=JO_CI)) + b"parked: true\n",
        write_lease(lease(state=State.COMPLETED)) + b"parked: true\n",
    ],
    ids=["a number", "and a session's", "and completed"],
)
def test_a_record_that_cannot_be_parked_like_that_is_damaged(record: bytes) -> None:
    with pytest.raises(BadRecord):
        read_lease(record)


def test_a_ledger_from_before_parking_has_its_default() -> None:
    header = holding(lease(), policy=Policy(park_max=60)).header
    data = write_header(header)
    assert read_header(data) == header
    older = data.replace(b"  park_max: 60\n", b"")
    assert len(older) < len(data)
    assert read_header(older).policy == replace(header.policy, park_max=DAY)


RUN = replace(JO, session="run-1", host="laptop:4711")
OTHER = replace(JO, session="run-2", host="desk:12")


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
