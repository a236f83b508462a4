"""Issue numbers: where the policy says whose they are, every spelling of one is one resource."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel.rules.values import (
    F001,
    JO,
    KIM,
    claim,
    complete,
    empty,
    fresh,
    holding,
    lease,
    leases_in,
    moment,
    note,
    release,
    retire,
    retirement,
    set_policy,
    step,
    take_ticket,
)
from support.snapshots import raises

from gitlease.kernel.rules.errors import LeaseHeld, PolicyRefused, UsageError
from gitlease.kernel.rules.lease import DEFAULT_POLICY, Policy
from gitlease.kernel.rules.ledger import Ledger
from gitlease.kernel.rules.moves.operations import Bind, Operation, Outcome, Pick
from gitlease.kernel.rules.moves.transitions import decide
from gitlease.kernel.rules.resources import Issues, issue_resource, parse_resource

GITHUB = replace(DEFAULT_POLICY, issues=Issues.GITHUB)
SPELLINGS = ("12", "#12", "GH-12", "gh-12")


def decided(ledger: Ledger, operation: Operation, at: float = 0) -> tuple[Ledger, Outcome]:
    made = decide(ledger, [operation], moment(at))
    (outcome,) = made.applied.outcomes
    assert (made.record.operations[0].id, outcome.operation) == (operation.id, operation.id)
    return made.applied.ledger, outcome


@pytest.mark.parametrize("host", list(Issues))
@pytest.mark.parametrize("name", [*SPELLINGS, "GL-12", "012", "#0", "12345678901", "T-12", "12a"])
def test_a_host_spells_its_own_issues_alone(host: Issues, name: str) -> None:
    own = {Issues.GITHUB: SPELLINGS, Issues.GITLAB: ("12", "#12", "GL-12"), Issues.NONE: ()}
    expected = "#12" if name in own[host] else name
    assert issue_resource(parse_resource(name), host).text == expected


@pytest.mark.parametrize("other", SPELLINGS[1:3])
@pytest.mark.parametrize("first", SPELLINGS)
def test_one_issue_has_one_holder_however_it_is_spelt(first: str, other: str) -> None:
    ledger, outcome = decided(empty(GITHUB), claim(JO, first))
    assert [x.resource.text for x in outcome.leases] == ["#12"]
    with pytest.raises(LeaseHeld):
        decided(ledger, claim(KIM, other), 1)
    ledger, _ = decided(ledger, release(JO, other), 2)
    assert leases_in(ledger) == []


@pytest.mark.parametrize(
    "operation",
    [
        claim(JO, "gh-12"),
        complete(JO, "12"),
        note(JO, "half done", "GH-12"),
        retire(JO, retirement(what="12")),
        take_ticket(JO, "t", "12"),
        Bind(id=fresh(), actor=JO, resources=(F001, parse_resource("12"))),
        Pick(id=fresh(), actor=JO, claims=(claim(JO, "F001"), claim(JO, "12"))),
    ],
    ids=lambda x: type(x).__name__,
)
def test_the_table_takes_no_other_spelling(operation: Operation) -> None:
    with raises(UsageError):
        step(empty(GITHUB), operation, when=moment())
    step(empty(), claim(JO, "12"), when=moment())


def test_a_search_for_work_spells_what_it_finds() -> None:
    search = Pick(id=fresh(), actor=JO, claims=(claim(JO, "GH-7"),))
    _, outcome = decided(empty(GITHUB), search)
    assert [x.resource.text for x in outcome.leases] == ["#7"]


def test_a_policy_is_not_set_while_records_have_another_spelling() -> None:
    ledger = holding(lease(resource="GH-12"), lease(resource="12", scope="ui"), lease())
    with raises(PolicyRefused):
        step(ledger, set_policy(JO, issues="github"), when=moment())
    for what, scope in (("GH-12", "*"), ("12", "ui")):
        ledger, _ = step(ledger, release(JO, what, scope=scope), when=moment(2))
    ledger, _ = step(ledger, set_policy(JO, issues="github"), when=moment(3))
    assert ledger.header.policy.issues is Issues.GITHUB


def test_a_step_that_sets_the_policy_holds_what_follows_to_it() -> None:
    made = decide(
        empty(), [set_policy(JO, issues="github"), claim(JO, "12")], moment(), together=False
    )
    assert [type(x) for x in made.applied.results] == [Outcome, UsageError]
    assert made.applied.ledger.header.policy == replace(Policy(), issues=Issues.GITHUB)
