"""Parking: whose lease may be parked, what that keeps, who resumes it, and how a session ends."""

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
    complete,
    end,
    extend,
    fresh,
    holding,
    lease,
    leases_in,
    moment,
    park,
    picture,
    release,
    renew,
    revoke,
    set_policy,
    step,
    task,
)
from support.snapshots import check_words, raises

from gitlease.core import (
    DEFAULT_POLICY,
    MS,
    TABLE,
    Actor,
    Assignee,
    GitleaseError,
    Grant,
    Lease,
    LeaseHeld,
    LeaseLost,
    Ledger,
    Moment,
    NothingLeft,
    Outcome,
    ParkedMeanwhile,
    People,
    Pick,
    Policy,
    PolicyRefused,
    Progress,
    Relation,
    Renew,
    Sighting,
    Standing,
    State,
    Task,
    UsageError,
    apply,
    change_policy,
    standing,
)
from gitlease.core.lease import relation
from gitlease.engine import Carried, QueueContext, WhyNot, carrying, hand_out, survey
from gitlease.store import (
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


def only(ledger: Ledger) -> Lease:
    (record,) = leases_in(ledger)
    return record


def code_of(ledger: Ledger, operation: Any, seconds: float) -> str:
    """What an operation comes to: its status, or the code of its refusal, which changes nothing."""
    before = picture(ledger)
    (result,) = apply(ledger, [operation], moment(seconds), together=False).results
    if isinstance(result, Outcome):
        return result.status
    assert picture(ledger) == before
    return result.code


# --- whose lease may be parked ------------------------------------------------------------------

DONE = lease(state=State.COMPLETED, ttl=10)
KEPT = replace(lease(), parked=True)
SITUATIONS = [
    (Relation.MINE, lease(), JO, LIVE, "parked"),
    (Relation.MINE, lease(), JO_AGENT, LIVE, "parked"),
    (Relation.MINE, lease(holder=JO_CI), JO_CI, LIVE, "parked"),
    (Relation.PARKED, KEPT, JO, LIVE, "parked"),
    (Relation.PARKED, KEPT, JO_CI, LIVE, "parked"),
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
    assert code_of(holding(record), park(caller), seconds) == expected


def test_of_several_runs_the_ones_that_ran_out_stay_as_they_are() -> None:
    short = lease(holder=JO_CI, scope="short", ttl=5)
    ledger, outcome = step(
        holding(short, lease(holder=JO_AGENT, scope="long")), park(JO), when=moment(LIVE)
    )
    assert [x.scope for x in outcome.leases] == ["long"]
    assert [x for x in leases_in(ledger) if x.scope == "short"] == [replace(short, token=1)]


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


def test_every_relation_has_its_situation() -> None:
    assert {how for how, *_ in SITUATIONS} == set(Relation) == set(TABLE)


def test_nothing_cannot_be_parked() -> None:
    assert code_of(holding(), park(JO), LIVE) == "lost"


def test_a_refusal_names_whose_it_is() -> None:
    with pytest.raises(GitleaseError) as refused:
        apply(holding(lease(holder=JO_CI)), [park(JO_AGENT)], moment(LIVE))
    assert refused.value.conflicts
    assert refused.value.conflicts[0].session == "build-7"


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
        ({}, DAY, DAY, False),
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


def test_it_may_last_longer_than_any_ttl_and_a_new_policy_shortens_nothing() -> None:
    ledger = parked(policy=Policy(ttl_max=TTL))
    assert only(ledger).duration_ms == HOUR * MS
    ledger, _ = step(ledger, set_policy(KIM, park_max="1m"), when=moment(LIVE))
    ledger, outcome = step(ledger, park(JO), when=moment(LIVE + 60))
    assert only(ledger).expires_at == at(LIVE + HOUR).wall_ms
    assert not outcome.capped_to_max


def test_where_the_policy_parks_nothing_it_is_refused() -> None:
    ledger = holding(lease(holder=JO_CI), policy=Policy(park_max=0))
    for wish in (park(JO_CI), park(JO_CI, seconds=5), end(JO_CI, only(ledger), park=True)):
        with raises(PolicyRefused):
            apply(ledger, [wish], moment(LIVE))
    assert code_of(ledger, end(JO_CI, only(ledger)), LIVE) == "released"


def test_parking_it_again_keeps_it_for_longer() -> None:
    ledger, _ = step(parked(), park(JO_AGENT, seconds=2 * HOUR), when=moment(LIVE + 60))
    assert only(ledger).expires_at == at(LIVE + 60 + 2 * HOUR).wall_ms
    assert (only(ledger).parked, only(ledger).session) == (True, None)


def test_a_reason_is_shown_to_others_and_a_note_left_for_the_next() -> None:
    wish = park(JO, reason="back tomorrow", note="half done")
    ledger, outcome = step(holding(lease()), wish, when=moment(LIVE))
    assert only(ledger).reason == "back tomorrow"
    assert [n.text for n in ledger.notes(F001)] == ["half done"]
    assert [e.reason for e in outcome.events] == ["half done"]


def test_all_own_scopes_are_parked_unless_one_is_named() -> None:
    ledger = holding(lease(scope="a"), lease(scope="b"), lease(scope="c", holder=KIM))
    ledger, outcome = step(ledger, park(JO), when=moment(LIVE))
    assert [x.scope for x in outcome.leases] == ["a", "b"]
    assert {x.scope: x.parked for x in leases_in(ledger)} == {"a": True, "b": True, "c": False}
    ledger, outcome = step(
        holding(lease(scope="a"), lease(scope="b")), park(JO, scope="B"), when=moment(LIVE)
    )
    assert [x.scope for x in outcome.leases] == ["b"]


def test_several_are_parked_together_or_none() -> None:
    ledger = holding(lease(), lease(resource="F002", holder=KIM))
    with pytest.raises(GitleaseError) as refused:
        apply(ledger, [park(JO), park(JO, "F002")], moment(LIVE))
    assert (refused.value.code, refused.value.resource) == ("not_holder", "F002")


def test_others_are_kept_out_until_it_lapses() -> None:
    ledger = parked()
    until = LIVE + HOUR + SKEW
    for seconds in (LIVE + 1, TTL + SKEW + 1, until):
        with pytest.raises(LeaseHeld) as refused:
            apply(ledger, [claim(KIM)], moment(seconds))
        assert refused.value.free_at_ms == at(until).wall_ms
    ledger, outcome = step(ledger, claim(KIM), when=moment(until + 1))
    assert outcome.status == "taken_over"
    assert (only(ledger).holder, only(ledger).parked) == (KIM.holder, False)


def test_with_an_edge_it_stays_assigned_when_it_has_lapsed() -> None:
    ledger = parked(lease(edge=True))
    later = LIVE + HOUR + SKEW + 1
    with raises(LeaseHeld):
        apply(ledger, [claim(KIM)], moment(later))
    taken = claim(KIM, takeover=True, reason="on holiday")
    assert code_of(ledger, taken, later) == "taken_over"


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


def test_what_has_lapsed_is_not_called_parked() -> None:
    with raises(LeaseLost):
        apply(parked(), [renew(JO)], moment(LIVE + HOUR + 1))


def test_renewing_everything_leaves_it_alone() -> None:
    ledger = parked(lease(), lease(resource="F002"))
    assert not apply(ledger, [renew(JO, None)], moment(LIVE + 1)).changed
    mixed = parked().put(lease(resource="F002", holder=JO_CI))
    _, outcome = step(mixed, renew(JO_CI, None), when=moment(LIVE + 1))
    assert [str(x.resource) for x in outcome.leases] == ["F002"]
    assert outcome.refused == ()
    assert not apply(ledger, [renew(JO, None)], moment(LIVE + HOUR + 1)).changed, "lapsed as well"


def test_a_renewal_of_another_scope_leaves_it_alone() -> None:
    ledger = holding(lease(scope="a"), lease(scope="b"))
    ledger, _ = step(ledger, park(JO, scope="a"), when=moment(LIVE))
    _, outcome = step(ledger, renew(JO), when=moment(LIVE + 1))
    assert [x.scope for x in outcome.leases] == ["b"]


def test_the_grant_of_a_run_is_lost_once_the_person_has_parked_it() -> None:
    run = lease(holder=JO_CI)
    ledger = parked(run, who=JO)
    grant = Grant(run.resource, run.scope, run.session, run.lease_id, 1)
    beat = Renew(id=fresh(), actor=JO_CI, grants=(grant,))
    (outcome,) = apply(ledger, [beat], moment(LIVE + 1)).outcomes
    assert outcome.leases == ()
    (lost,) = outcome.refused
    assert isinstance(lost, LeaseLost)
    assert lost.loss == "released_elsewhere"


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


def test_a_claim_may_give_it_another_ttl_within_the_limits() -> None:
    ledger, _ = step(parked(), claim(JO, ttl=120), when=moment(LIVE + 1))
    assert only(ledger).ttl == 120
    with pytest.raises(PolicyRefused):
        apply(parked(), [claim(JO, ttl=5)], moment(LIVE + 1))


def test_only_one_of_two_sessions_goes_on_with_it() -> None:
    ledger, _ = step(parked(), claim(JO_CI), when=moment(LIVE + 1))
    with pytest.raises(LeaseHeld):
        apply(ledger, [claim(JO_AGENT)], moment(LIVE + 2))


def test_after_its_time_it_is_claimed_like_anything_that_lapsed() -> None:
    ledger, outcome = step(parked(), claim(JO_AGENT), when=moment(LIVE + HOUR + 1))
    assert outcome.status == "claimed"
    assert (only(ledger).parked, only(ledger).session) == (False, "claude:1234")


def test_a_claim_of_overlapping_work_of_ones_own_leaves_it_parked() -> None:
    ledger = parked(lease(resource="src/"), lease(resource="F001"))
    ledger, _ = step(ledger, claim(JO_CI, "src/a.py"), when=moment(LIVE + 1))
    ledger, _ = step(ledger, claim(JO_CI, "F001", scope="parser"), when=moment(LIVE + 1))
    records = {(str(x.resource), x.scope): x.parked for x in leases_in(ledger)}
    assert records == {
        ("path:src", "*"): True,
        ("src/a.py", "*"): False,
        ("F001", "*"): True,
        ("F001", "parser"): False,
    }


def test_another_session_at_overlapping_work_keeps_it_from_being_resumed() -> None:
    ledger = parked(lease(resource="src/"))
    ledger, _ = step(ledger, claim(JO_CI, "src/a.py"), when=moment(LIVE + 1))
    with pytest.raises(LeaseHeld):
        apply(ledger, [claim(JO_AGENT, "src/")], moment(LIVE + 2))
    step(ledger, claim(JO_CI, "src/"), when=moment(LIVE + 2))


def test_the_edge_of_a_parked_task_is_ones_own_beside_another_assignee() -> None:
    named = (Assignee("@kim", ("kim@example.com",)),)
    ledger = parked(lease(edge=True))
    _, outcome = step(ledger, claim(JO, edge=True, assigned=named), when=moment(LIVE + 1))
    assert outcome.assigned == ("@kim",)


@pytest.mark.parametrize(
    ("wish", "status", "left"),
    [
        (release(JO_AGENT), "released", []),
        (complete(JO_AGENT), "completed", [State.COMPLETED]),
        (revoke(KIM), "revoked", []),
    ],
)
def test_it_ends_like_any_lease(wish: Any, status: str, left: list[State]) -> None:
    ledger = parked(policy=Policy(admins=(KIM.holder,)))
    ledger, outcome = step(ledger, wish, when=moment(LIVE + 1))
    assert outcome.status == status
    assert [x.state for x in leases_in(ledger)] == left
    assert not any(x.parked for x in leases_in(ledger))


# --- the queue ----------------------------------------------------------------------------------


def around(ledger: Ledger, who: Actor = JO, seconds: float = LIVE + 1) -> QueueContext:
    return QueueContext(who, People(), leases_in(ledger), DEFAULT_POLICY, moment(seconds))


TASKS = (
    task("F001", priority="low", depends_on=("F002",)),
    task("F002", priority="high"),
    task("F003"),
)


@pytest.mark.parametrize("who", [JO, JO_CI])
def test_ones_parked_task_comes_first_whatever_its_priority(who: Actor) -> None:
    entries = survey(TASKS, around(parked(), who))
    assert [e.task.resource.text for e in entries] == ["F001", "F002", "F003"]
    assert [e.task.resource.text for e in hand_out(entries)] == ["F001", "F002", "F003"]
    assert (entries[0].parked, entries[0].claimable) == (True, True)
    assert entries[0].lease is not None


def test_anothers_parked_task_is_held_like_any() -> None:
    entries = {e.task.resource.text: e for e in survey(TASKS, around(parked(), KIM))}
    assert entries["F001"].why_not is WhyNot.HELD
    assert not entries["F001"].parked


def test_once_it_has_lapsed_it_has_no_place_of_its_own() -> None:
    entries = survey(TASKS, around(parked(), seconds=LIVE + HOUR + 1))
    assert [e.task.resource.text for e in hand_out(entries)] == ["F002", "F003", "F001"]


def test_a_parked_part_of_a_task_is_resumed_beside_the_parts_of_others() -> None:
    ledger = parked(lease(scope="parser")).put(lease(scope="lexer", holder=KIM))
    entry = survey(TASKS, around(ledger))[0]
    assert (entry.parked, entry.lease and entry.lease.scope) == (True, "parser")


@pytest.mark.parametrize(
    ("found", "record", "why"),
    [
        (task("F001", progress=Progress.DONE), lease(), WhyNot.DONE),
        (task("F001", progress=Progress.OTHER), lease(), WhyNot.STATUS),
        (task("F001", assigned=("@kim",)), lease(), WhyNot.ASSIGNED),
        (task("F001", assigned=("@kim",)), lease(edge=True), None),
    ],
)
def test_a_parked_task_that_its_file_keeps_back_is_not_handed_out(
    found: Task, record: Lease, why: WhyNot | None
) -> None:
    (entry,) = survey([found], around(parked(record)))
    assert (entry.why_not, entry.parked) == (why, why is None)


def test_what_one_parked_comes_first_of_what_one_carries() -> None:
    ledger = parked(lease(resource="F009")).put(lease(resource="F001")).put(lease(resource="F002"))
    found = carrying((), around(ledger))
    assert [(c.resource, c.state) for c in found] == [
        ("F009", Carried.PARKED),
        ("F001", Carried.LIVE),
        ("F002", Carried.LIVE),
    ]


def test_of_a_task_with_several_leases_the_live_one_is_told() -> None:
    ledger = parked(lease(scope="a")).put(lease(scope="b"))
    mine = task("F001", assigned=(JO.holder,))
    (found,) = carrying((mine,), around(ledger))
    assert found.state is Carried.LIVE
    (found,) = carrying((mine,), around(parked(lease(scope="a"))))
    assert found.state is Carried.PARKED


def pick(who: Actor, *names: str, **more: Any) -> Pick:
    claims = tuple(claim(who, name) for name in names)
    return Pick(id=fresh(), actor=who, claims=claims, **more)


def test_a_pick_resumes_what_is_parked_and_the_next_one_gets_the_next() -> None:
    ledger = parked()
    known = {"tasks": frozenset({"f001", "f002"}), "parked": frozenset({only(ledger).key})}
    ledger, first = step(ledger, pick(JO_CI, "F001", "F002", **known), when=moment(LIVE + 1))
    ledger, then = step(ledger, pick(JO_AGENT, "F001", "F002", **known), when=moment(LIVE + 1))
    assert [str(o.leases[0].resource) for o in (first, then)] == ["F001", "F002"]
    with pytest.raises(NothingLeft):
        apply(ledger, [pick(JO_AGENT, "F001", "F002", **known)], moment(LIVE + 1))


def test_without_sessions_too_only_one_pick_resumes_it() -> None:
    ledger, _ = step(parked(), pick(JO, "F001", "F002"), when=moment(LIVE + 1))
    _, then = step(ledger, pick(JO, "F001", "F002"), when=moment(LIVE + 1))
    assert str(then.leases[0].resource) == "F002"


def test_a_pick_is_planned_anew_for_what_was_parked_meanwhile() -> None:
    among = {"tasks": frozenset({"f001", "f002"})}
    with pytest.raises(ParkedMeanwhile):
        apply(parked(), [pick(JO, "F002", **among)], moment(LIVE + 1))
    for ledger, wish in (
        (parked(), pick(JO, "F002", tasks=frozenset({"f002"}))),  # no task of this work tree
        (parked(), pick(KIM, "F002", **among)),  # not this person's
        (holding(lease(holder=KIM)), pick(JO, "F002", **among)),
    ):
        assert code_of(ledger, wish, LIVE + 1) == "claimed"


# --- the end of a session -----------------------------------------------------------------------


def run_of_four() -> tuple[Ledger, list[Lease]]:
    """Three leases of a session, and three that are not."""
    own = [
        lease(resource="A", holder=JO_CI),
        lease(resource="B", scope="x", holder=JO_CI),
        lease(resource="src/", holder=JO_CI),
    ]
    others = [
        lease(resource="B", scope="y"),
        lease(resource="C", holder=JO_AGENT),
        lease(resource="D", holder=KIM),
    ]
    return holding(*own, *others), own


def test_a_session_ends_with_all_it_holds_and_nothing_else() -> None:
    ledger, own = run_of_four()
    ledger, outcome = step(ledger, end(JO_CI, *own), when=moment(LIVE))
    assert (outcome.status, [str(x.resource) for x in outcome.leases]) == (
        "released",
        [str(x.resource) for x in own],
    )
    assert {x.state for x in outcome.leases} == {State.RELEASED}
    assert [str(x.resource) for x in leases_in(ledger)] == ["B", "C", "D"]
    assert [e.kind for e in outcome.events] == ["released"] * 3
    assert len(ledger.header.ring) == 1, "one operation, however many leases"
    again = apply(ledger, [end(JO_CI, *own)], moment(LIVE))
    assert not again.changed


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


def test_what_lapsed_under_a_session_is_released_with_it() -> None:
    run = lease(holder=JO_CI, edge=True)
    ledger, outcome = step(holding(run), end(JO_CI, run), when=moment(LAPSED))
    assert leases_in(ledger) == []
    assert len(outcome.leases) == 1


def test_a_note_is_left_with_each_lease() -> None:
    ledger, own = run_of_four()
    ledger, _ = step(ledger, end(JO_CI, *own, note="stopped"), when=moment(LIVE))
    notes = [n for x in own for n in ledger.notes(x.resource)]
    assert [n.text for n in notes] == ["stopped"] * 3
    assert len({n.id for n in notes}) == 3


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
    kept = replace(lease(), parked=True)
    assert write_lease(kept).endswith(b"parked: true\n")
    assert read_lease(check_lease(kept)) == kept


def test_other_leases_are_recorded_as_before() -> None:
    data = write_lease(lease())
    assert b"parked" not in data
    assert read_lease(data).parked is False
    assert read_lease(data + b"parked: false\n").parked is False


@pytest.mark.parametrize(
    "record",
    [
        write_lease(lease()) + b"parked: 1\n",
        write_lease(lease()) + b"parked: null\n",
        write_lease(lease()) + b"parked: [true]\n",
        write_lease(lease(holder=JO_CI)) + b"parked: true\n",
        write_lease(lease(state=State.COMPLETED)) + b"parked: true\n",
    ],
    ids=["a number", "nothing", "a list", "and a session's", "and completed"],
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


@pytest.mark.parametrize(("text", "seconds"), [("2d", 2 * DAY), ("0", 0), ("0s", 0)])
def test_the_policy_is_set_in_words(text: str, seconds: int) -> None:
    assert change_policy(DEFAULT_POLICY, {"park_max": text}).park_max == seconds


def test_the_policy_has_an_end() -> None:
    with pytest.raises(UsageError):
        change_policy(DEFAULT_POLICY, {"park_max": "11000d"})
