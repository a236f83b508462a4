"""Retirement: what lapsed may be cleaned up, by whom, and what is never touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from kernel.rules.values import (
    F001,
    JO,
    KIM,
    SKEW,
    TTL,
    StoredRecords,
    claim,
    complete,
    holding,
    lease,
    leases_in,
    moment,
    picture,
    retire,
    retirement,
    step,
)
from support.snapshots import raises

from gitlease.kernel.rules.edge import Assignee
from gitlease.kernel.rules.errors import (
    Invalid,
    LeaseHeld,
    LeaseLost,
    Loss,
    PolicyRefused,
    UsageError,
)
from gitlease.kernel.rules.lease import Actor, Lease, Policy, Rule, Sighting, State
from gitlease.kernel.rules.ledger import HOLDERS_TOLD, Ledger
from gitlease.kernel.rules.loss import ending, still_held
from gitlease.kernel.rules.moves.operations import Outcome, Retirement
from gitlease.kernel.rules.moves.transitions import apply
from gitlease.kernel.rules.resources import Resource, parse_resource

LIVE, EXPIRED, LAPSED = 10, TTL + 1, TTL + SKEW + 1  # seconds after the grant
JO_CI = replace(JO, session="build-7")
JO_AGENT = replace(JO, session="claude:1234", session_explicit=True)


def item(*records: Lease, resource: Resource = F001, **more: Any) -> Retirement:
    return retirement(*records, what=resource.text, **more)


def after(
    ledger: Ledger, who: Actor, *items: Retirement, seconds: float = LAPSED
) -> tuple[Ledger, Outcome]:
    return step(ledger, retire(who, *items), when=moment(seconds))


# --- which records may go -----------------------------------------------------------------------

THEIRS, WITH_EDGE = lease(), lease(edge=True)
RUN = lease(holder=JO_CI)


@pytest.mark.parametrize(
    ("record", "who", "seconds", "assigned", "refusal"),
    [
        (THEIRS, KIM, LIVE, True, "held"),
        (THEIRS, KIM, EXPIRED, True, "held"),
        (THEIRS, KIM, LAPSED, False, None),
        (WITH_EDGE, KIM, LIVE, True, "held"),
        (WITH_EDGE, KIM, LAPSED, False, "held"),  # it is not asked for
        (WITH_EDGE, KIM, LAPSED, True, None),
        (THEIRS, JO, LIVE, True, "held"),
        (THEIRS, JO, EXPIRED, False, None),
        (WITH_EDGE, JO, LAPSED, False, None),
        (RUN, JO_AGENT, LIVE, True, "held"),
        (RUN, JO, LIVE, True, "held"),
        (RUN, JO_AGENT, LAPSED, False, None),
        (replace(THEIRS, parked=True), JO, LIVE, True, "held"),
        (lease(state=State.COMPLETED), KIM, LAPSED, True, "held"),
    ],
)
def test_only_what_lapsed_goes(
    record: Lease, who: Actor, seconds: float, assigned: bool, refusal: str | None
) -> None:
    before = holding(record)
    asked = item(leases_in(before)[0], assigned=assigned)
    ledger, outcome = after(before, who, asked, seconds=seconds)
    assert [r.code for r in outcome.refused] == ([] if refusal is None else [refusal])
    assert (leases_in(ledger) == []) is (refusal is None)
    if refusal is not None:
        assert not outcome.changed
        assert picture(ledger) == picture(before)


def test_by_the_observed_rule_it_must_have_been_seen_for_its_time() -> None:
    ledger = holding(lease(), policy=Policy(rule=Rule.OBSERVED))
    (record,) = leases_in(ledger)
    seen = moment(LAPSED * 4, Sighting(moment(LAPSED * 4 - 5).now, changed=False))
    _, outcome = step(ledger, retire(KIM, item(record)), when=seen)
    assert [type(r) for r in outcome.refused] == [LeaseHeld]
    seen = moment(LAPSED * 4, Sighting(moment(LAPSED).now, changed=False))
    _, outcome = step(ledger, retire(KIM, item(record)), when=seen)
    assert outcome.changed


def test_a_grant_that_was_made_since_is_not_the_one_that_was_named() -> None:
    before = holding(lease())
    (old,) = leases_in(before)
    ledger, _ = step(before, claim(JO), when=moment(LAPSED))
    late, outcome = after(ledger, KIM, item(old), seconds=3 * LAPSED)
    assert (outcome.changed, outcome.refused) == (False, ())
    assert picture(late) == picture(ledger)


# --- edges --------------------------------------------------------------------------------------

KIMS = Assignee("@kim", (KIM.holder,))


def test_a_name_leaves_with_a_word_to_whom_it_means_and_a_note_to_who_comes_next() -> None:
    asked = item(unassigned=(KIMS,), assigned=True, note="was kim's")
    ledger, outcome = after(holding(), JO, asked)
    assert (outcome.status, outcome.changed) == ("retired", True)
    assert (outcome.retired, outcome.unassigned) == ((F001,), ("@kim",))
    (notice,) = ledger.notices(KIM.holder)
    assert (notice.what, notice.resource) == ("retired", "F001")
    assert (notice.by, notice.reason) == (JO.holder, "idle")
    assert [(n.author, n.text) for n in ledger.notes(F001)] == [(JO.holder, "was kim's")]
    (event,) = outcome.events
    assert (event.kind, event.resource, event.holder) == ("retired", "F001", KIM.holder)


def test_every_address_of_somebody_is_told_but_never_oneself() -> None:
    """Once: not of the edge as well where it is told of the lease."""
    both = Assignee("@kim", (KIM.holder, "k@work.example", JO.holder))
    ledger, _ = after(holding(), JO, item(unassigned=(both,)))
    assert [len(ledger.notices(x)) for x in (KIM.holder, "k@work.example")] == [1, 1]
    assert ledger.notices(JO.holder) == ()
    for who, told in ((KIM, 1), (JO, 0)):
        before = holding(lease(holder=who, edge=True))
        asked = item(*leases_in(before), assigned=True, unassigned=(both,))
        ledger, outcome = after(before, JO, asked)
        assert len(ledger.notices(who.holder)) == told
        assert outcome.events[0].kind == "retired"


def test_one_step_tells_a_bounded_number_of_people() -> None:
    many = Assignee("@all", tuple(f"{n}@example.com" for n in range(HOLDERS_TOLD + 1)))
    ledger, _ = after(holding(), JO, item(unassigned=(many, many)))
    told = [len(ledger.notices(holder)) for holder in many.holders]
    assert told == [2] * HOLDERS_TOLD + [0]


@pytest.mark.parametrize("scope", ["*", "parser"])
def test_a_claim_of_the_assignees_keeps_its_edge(scope: str) -> None:
    before = holding(lease(holder=KIM, scope=scope, since=LAPSED))
    ledger, outcome = after(before, JO, item(unassigned=(KIMS,), assigned=True), seconds=LAPSED + 5)
    (refusal,) = outcome.refused
    assert (refusal.code, refusal.resource) == ("held", "F001")
    assert picture(ledger) == picture(before)


def test_a_task_that_was_finished_meanwhile_is_left_alone() -> None:
    before, _ = step(holding(), complete(KIM), when=moment(LIVE))
    ledger, outcome = after(before, JO, item(unassigned=(KIMS,)))
    assert [type(r) for r in outcome.refused] == [PolicyRefused]
    assert picture(ledger) == picture(before)


# --- many at once -------------------------------------------------------------------------------


def test_each_item_goes_whole_or_not_at_all_and_the_others_go() -> None:
    other = parse_resource("F002")
    before = holding(
        lease(holder=KIM, scope="lexer"),
        lease(holder=KIM, scope="parser", since=LAPSED),
        lease(holder=KIM, resource="F002"),
    )
    one, two, three = leases_in(before)
    asked = (item(one, two, unassigned=(KIMS,)), item(three, resource=other))
    ledger, outcome = after(before, JO, *asked, seconds=LAPSED + 5)
    assert leases_in(ledger) == [one, two]
    assert [r.resource for r in outcome.refused] == ["F001"]
    assert (outcome.retired, outcome.unassigned) == ((other,), ())


def test_the_ring_has_one_entry_for_many() -> None:
    before = holding(*(lease(resource=f"F{n:03}", holder=KIM) for n in range(200)))
    items = [item(x, resource=x.resource) for x in leases_in(before)]
    ledger, outcome = after(before, JO, *items)
    assert (leases_in(ledger), len(outcome.leases)) == ([], 200)
    assert [e.outcome for e in ledger.header.ring] == ["retired"]
    ids = [n.id for n in ledger.notices(KIM.holder)]
    assert len(set(ids)) == len(ids)


def test_a_retirement_needs_a_reason() -> None:
    with raises(UsageError):
        after(holding(), JO, replace(item(), reason=" "))


class Damaged(StoredRecords):
    """Records of which one resource cannot be read."""

    def of(self, resource: Resource) -> Any:
        if resource == F001:
            raise Invalid("it is damaged")
        return super().of(resource)


def test_a_damaged_record_keeps_only_its_own() -> None:
    before = holding(lease(holder=KIM, resource="F002"))
    (sound,) = leases_in(before)
    damaged = replace(before, records=cast(Any, Damaged(before)))
    items = (item(lease()), item(sound, resource=sound.resource))
    applied = apply(damaged, [retire(JO, *items)], moment(LAPSED))
    (outcome,) = applied.outcomes
    assert [str(r) for r in outcome.refused] == ["it is damaged"]
    assert outcome.retired == (sound.resource,)


# --- for whoever held it ------------------------------------------------------------------------


def test_who_still_counted_on_it_learns_that_it_had_run_out() -> None:
    before = holding(lease(holder=KIM))
    (record,) = leases_in(before)
    ledger, outcome = after(before, JO, item(record))
    with pytest.raises(LeaseLost) as lost:
        still_held(ledger, item(record).grants[0], KIM.holder, moment(LAPSED))
    assert lost.value.loss == Loss.EXPIRED.value
    assert ending(outcome.events, record.token) == (Loss.EXPIRED, JO.holder)
    assert [x.state for x in outcome.leases] == [State.EXPIRED]
    assert ledger.header.sequence == before.header.sequence, "it gives nothing to anyone"
    again, twice = after(ledger, JO, item(record))
    assert (twice.changed, picture(again)) == (False, picture(ledger))
