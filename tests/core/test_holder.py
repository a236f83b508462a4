"""Who is one person: emails that differ by the letter case of ASCII alone, wherever they meet."""

from __future__ import annotations

import pytest
from core.values import (
    SKEW,
    TTL,
    claim,
    code,
    empty,
    holding,
    lease,
    moment,
    release,
    revoke,
    set_policy,
    step,
)

from gitlease.core import (
    Actor,
    Addresses,
    Assignee,
    People,
    Persons,
    Policy,
    person_key,
    same_name,
    same_person,
)
from gitlease.store import notices_file

LAPSED = TTL + SKEW + 1
ADA, ELSE = Actor("straße@example.com"), Actor("strasse@example.com")
TWINS = [
    ("straße@example.com", "strasse@example.com"),
    ("straße@example.com", "STRASSE@example.com"),
    ("jörg@example.com", "JÖRG@example.com"),
    ("jo\u0308rg@example.com", "j\u00f6rg@example.com"),
    ("\u212aim@example.com", "kim@example.com"),
    ("mi\u017fs@example.com", "miss@example.com"),
    ("\uff4ao@example.com", "jo@example.com"),
    ("jo\u200d@example.com", "jo@example.com"),
]


@pytest.mark.parametrize(("one", "other"), TWINS)
def test_who_differs_by_more_than_ascii_case_is_somebody_else(one: str, other: str) -> None:
    assert not same_person(one, other)
    assert not same_person(other, one)
    assert not Assignee(one, (one,)).is_holder(other)
    assert not People({one: "@x"}).is_mine("@x", other)
    assert not People(handles=True).is_mine("@" + one.partition("@")[0], other)
    assert not same_name(one, other)
    assert not Policy(admins=(one,)).is_admin(other)
    assert notices_file(one) != notices_file(other)
    assert not Addresses().of(one) & Addresses().of(other)
    assert Persons(People(), {one: other}).usual(one) == person_key(other)
    assert person_key(other) not in Persons(People(), known=(one, other)).emails(one)


@pytest.mark.parametrize("email", ["jo@example.com", "straße@example.com", "jörg@example.com"])
def test_ascii_letter_case_makes_nobody_else_of_anyone(email: str) -> None:
    shouted = email.translate({c: c - 32 for c in range(ord("a"), ord("z") + 1)})
    assert same_person(email, shouted)
    assert person_key(shouted) == email
    assert Assignee(email, (shouted,)).is_holder(email)
    assert Policy(admins=(shouted,)).is_admin(email)
    assert notices_file(shouted) == notices_file(email)
    assert Addresses().of(email) == Addresses().of(shouted)
    assert Persons(People(), known=(email,)).emails(shouted) == (email,)


def test_an_email_that_only_folds_alike_has_no_right_to_anything() -> None:
    ledger = holding(lease(holder=ADA))
    for wish in (claim(ELSE), release(ELSE)):
        assert code(ledger, wish, moment(10)) == "held"
    _, outcome = step(ledger, claim(Actor("STRAßE@EXAMPLE.com")), when=moment(10))
    assert outcome.status == "renewed"
    ledger, outcome = step(ledger, claim(ELSE), when=moment(LAPSED))
    assert [x.by for x in ledger.notices("STRAßE@example.com")] == [ELSE.holder]
    assert (outcome.status, ledger.notices(ELSE.holder)) == ("taken_over", ())
    policy = Policy(admins=(ADA.holder,))
    theirs = holding(lease(holder=Actor("kim@example.com")), policy=policy)
    for before, governing in ((theirs, revoke(ELSE)), (empty(policy), set_policy(ELSE, skew="1s"))):
        assert code(before, governing, moment(10)) == "policy"
