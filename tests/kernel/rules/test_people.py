"""Who is one person, whom a name in a task file means, and what that protects from."""

from __future__ import annotations

import pytest
from kernel.rules.values import (
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
    release,
    revoke,
    set_policy,
    step,
)
from support.snapshots import raises

from gitlease.kernel.rules.edge import Addresses, Assignee, People, Persons, same_name
from gitlease.kernel.rules.errors import Invalid, LeaseHeld, NothingLeft
from gitlease.kernel.rules.lease import Actor, Policy, person_key, same_person
from gitlease.kernel.rules.moves.operations import Pick
from gitlease.kernel.store.records import notices_file

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


BY_KIM = Assignee("kim@example.com", ("kim@example.com",))
BY_CODEX = Assignee("@codex")


# --- people -----------------------------------------------------------------------------------


def test_a_holder_is_called_as_the_map_says_else_by_email() -> None:
    """In Backlog.md by the handle; a name of the map is nobody else's."""
    people = People({"jo@corp.example": "@jo", "jo@home.example": "@jo"})
    assert people.name_of("JO@home.example") == "@jo"
    assert people.is_mine("@jo", "jo@corp.example")
    assert people.name_of("kim@example.com") == "kim@example.com"
    handles = People({"jo@corp.example": "@joanna", "al@x": "@jo"}, handles=True)
    assert handles.name_of("kim@example.com") == "@kim"
    assert all(handles.is_mine(x, "kim@example.com") for x in ("@Kim", "kim", "kim@example.com"))
    assert not handles.is_mine("@jo", "jo@corp.example")  # the map says how Jo is called
    assert not handles.is_mine("@jo", "jo@home.example")
    with raises(Invalid):
        handles.name_of("jo@home.example")


def test_who_else_is_assigned_is_nobody_for_an_assignee() -> None:
    people = People({"jo@example.com": "@jo"})
    assert people.others(["@codex", "@JO"], "jo@example.com") == ()
    assert people.others(["@codex", "kim@example.com"], "jo@example.com") == (BY_CODEX, BY_KIM)


def test_an_email_that_no_ledger_could_keep_is_just_a_name() -> None:
    for odd in ("a b@c", "x" * 300 + "@y", "\x07@y", "@", "a@", "@b"):
        assert People().others([odd], "jo@example.com")[0].holders == ()
    assert Assignee("a\nb").known == "'a\\nb'"


@pytest.mark.parametrize(("one", "other"), [("@Jo", "jo"), (" @jo ", "@jo"), ("JO", "jo")])
def test_names_do_not_differ_by_case_or_sign(one: str, other: str) -> None:
    assert same_name(one, other)


# --- what an edge in the file protects from -----------------------------------------------------


@pytest.mark.parametrize("assignee", [BY_KIM, BY_CODEX])
def test_a_task_assigned_to_another_is_held_without_any_lease(assignee: Assignee) -> None:
    with raises(LeaseHeld) as refused:
        step(empty(), claim(JO, assigned=(assignee,)), when=moment())
    assert refused.value.holder == assignee.known
    assert refused.value.free_at_ms is None
    for verb in (release, complete):
        with raises(LeaseHeld):
            step(empty(), verb(JO, assigned=(assignee,)), when=moment())


def test_a_takeover_replaces_the_edge_and_the_assignee_is_told() -> None:
    op = claim(JO, assigned=(BY_KIM, BY_CODEX), takeover=True, reason="left the team", edge=True)
    ledger, done = step(empty(), op, when=moment())
    assert (done.status, done.unassigned) == ("taken_over", ("kim@example.com", "@codex"))
    (notice,) = ledger.notices("kim@example.com")
    assert (notice.what, notice.by, notice.reason) == ("taken_over", JO.holder, "left the team")
    assert [(e.kind, e.holder) for e in done.events] == [
        ("taken_over", JO.holder),
        ("displaced", "kim@example.com"),
        ("displaced", "@codex"),
    ]


def test_a_live_lease_yields_to_no_takeover_of_the_edge() -> None:
    ledger = holding(lease(holder=KIM))
    with raises(LeaseHeld):
        step(ledger, claim(JO, assigned=(BY_KIM,), takeover=True, reason="now"), when=moment(10))


def test_an_assignee_at_work_on_another_scope_does_not_block() -> None:
    ledger = holding(lease(holder=KIM, scope="docs", edge=True))
    op = claim(JO, scope="parser", assigned=(BY_KIM,), edge=True)
    _, done = step(ledger, op, when=moment(10))
    assert (done.status, done.unassigned, done.assigned) == ("claimed", (), ())
    assert code(ledger, claim(JO, scope="parser", assigned=(BY_KIM,)), moment(LAPSED)) == "held"


def test_a_takeover_leaves_the_edges_of_those_at_work_on_another_scope() -> None:
    ledger = holding(lease(holder=KIM, scope="docs", edge=True))
    op = claim(
        JO, scope="parser", assigned=(BY_KIM, BY_CODEX), takeover=True, reason="codex is gone"
    )
    _, done = step(ledger, op, when=moment(10))
    assert done.unassigned == ("@codex",)


def test_a_handle_is_the_holder_of_a_lease_whose_email_begins_like_it() -> None:
    ledger = holding(lease(holder=KIM, scope="docs", edge=True))
    kim = Assignee("@kim", handle=True)
    _, done = step(ledger, claim(JO, scope="parser", assigned=(kim,)), when=moment(10))
    assert done.status == "claimed"


def test_ones_own_live_claim_is_renewed_whatever_this_clones_file_says() -> None:
    ledger = holding(lease(edge=True))
    _, done = step(ledger, claim(JO, assigned=(BY_KIM,), edge=True), when=moment(10))
    assert (done.status, done.assigned) == ("renewed", ("kim@example.com",))
    again = claim(JO, assigned=(BY_KIM,), edge=True, takeover=True, reason="mine now")
    _, done = step(ledger, again, when=moment(10))
    assert (done.status, done.unassigned, done.is_renewal) == (
        "taken_over",
        ("kim@example.com",),
        False,
    )


# --- the pick -----------------------------------------------------------------------------------


def pick(*names: str, who: Actor = JO) -> Pick:
    claims = tuple(claim(who, name) for name in names)
    return Pick(id=fresh(), actor=who, claims=claims)


def test_the_first_free_one_is_picked() -> None:
    ledger = holding(lease(holder=KIM), lease(holder=KIM, resource="F002", since=-2 * LAPSED))
    ledger, done = step(ledger, pick("F001", "F002", "F003"), when=moment(10))
    assert done.leases[0].resource.text == "F002"
    assert done.leases[0].operation == done.operation


def test_two_runs_of_one_person_without_sessions_get_different_work() -> None:
    ledger, first = step(empty(), pick("F001", "F002"), when=moment())
    ledger, second = step(ledger, pick("F001", "F002"), when=moment())
    assert {x.leases[0].resource.text for x in (first, second)} == {"F001", "F002"}
    with pytest.raises(NothingLeft):
        step(ledger, pick("F001", "F002"), when=moment())
    assert len(leases_in(ledger)) == 2


def test_completed_and_assigned_work_is_passed_over() -> None:
    ledger, _ = step(empty(), complete(JO), when=moment())
    assigned = claim(JO, "F002", assigned=(BY_KIM,))
    op = Pick(id=fresh(), actor=JO, claims=(claim(JO), assigned))
    with pytest.raises(NothingLeft):
        step(ledger, op, when=moment())
