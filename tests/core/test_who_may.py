"""Who may do what: the table of the contract, row by row and verb by verb.

A row is quoted as it stands in the contract; each has the situations that it speaks of, and what
every verb comes to in them: what was done, or the code of the refusal.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest
from core.values import (
    JO,
    KIM,
    SKEW,
    TTL,
    VERBS,
    at,
    claim,
    complete,
    empty,
    extend,
    holding,
    lease,
    leases_in,
    moment,
    picture,
    release,
    renew,
    revoke,
    set_policy,
    step,
)
from support.snapshots import check_words, raises

from gitlease.core import (
    DEFAULT_POLICY,
    EDGES,
    Actor,
    Assignee,
    Lease,
    LeaseHeld,
    Ledger,
    NotHolder,
    Outcome,
    PolicyRefused,
    Sighting,
    State,
    UsageError,
    apply,
)

LIVE, EXPIRED, LAPSED = 10, TTL + 1, TTL + SKEW + 1  # seconds after the grant
GONE = LAPSED + 7 * 86_400

JO_CI = replace(JO, session="build-7")
JO_AGENT = replace(JO, session="claude:1234", session_explicit=True)


@dataclass(frozen=True)
class Case:
    """One situation: the records, who asks, when, and what each verb comes to."""

    row: str
    about: str
    records: tuple[Lease, ...]
    caller: Actor
    seconds: float
    claim: str
    renew: str
    end: str

    def outcome_of(self, verb: str) -> str:
        return {"claim": self.claim, "renew": self.renew, "extend": self.renew}.get(verb, self.end)


NOBODY = "none, or lapsed without an edge | anyone | yes | `lost` | yes, cleans own edge"
ASSIGNED = (
    "none or lapsed, task assigned to another (in the record or the task file) | not the assignee"
    " | `held`, needs `--takeover --reason` | `lost` | `held`"
)
ABANDONED = (
    "the same, abandoned | not the assignee | needs a look for signs of life | `lost` | `held`"
)
OWN = "live, same person, unbound or same session | holder | renews | yes | yes"
OTHER_SESSION = (
    "live, same person, bound to another session | with another session | `held`, names the"
    " session | `not_holder` | `held`"
)
NO_SESSION = (
    "the same | without a session | `held`, names the session | `not_holder` | yes: the person"
    " cleans up after a run"
)
THEIRS = "live, another person | other | `held` | `not_holder`, names the holder | `held`"
COMPLETED = "completed | anyone | `policy`, needs `--reopen` | `lost` | yes"

DONE = lease(state=State.COMPLETED, ttl=10)

CASES = [
    Case(NOBODY, "none", (), KIM, LIVE, "claimed", "lost", "ok"),
    Case(NOBODY, "another's, lapsed", (lease(),), KIM, LAPSED, "taken_over", "lost", "ok"),
    Case(NOBODY, "own, lapsed", (lease(),), JO, LAPSED, "claimed", "lost", "ok"),
    Case(NOBODY, "own, expired", (lease(),), JO, EXPIRED, "claimed", "lost", "ok"),
    Case(
        NOBODY,
        "own, lapsed, with an edge",
        (lease(edge=True),),
        JO,
        LAPSED,
        "claimed",
        "lost",
        "ok",
    ),
    Case(
        NOBODY,
        "of another session of one's own, lapsed",
        (lease(holder=JO_CI),),
        JO_AGENT,
        LAPSED,
        "claimed",
        "lost",
        "ok",
    ),
    Case(ASSIGNED, "lapsed", (lease(edge=True),), KIM, LAPSED, "held", "lost", "held"),
    Case(
        ASSIGNED,
        "lapsed, of a session",
        (lease(holder=JO_CI, edge=True),),
        KIM,
        LAPSED,
        "held",
        "lost",
        "held",
    ),
    Case(ASSIGNED, "almost", (lease(edge=True),), KIM, GONE - 1, "held", "lost", "held"),
    Case(ABANDONED, "yes", (lease(edge=True),), KIM, GONE, "held", "lost", "held"),
    Case(ABANDONED, "own", (lease(edge=True),), JO, GONE, "claimed", "lost", "ok"),
    Case(OWN, "unbound", (lease(),), JO, LIVE, "renewed", "ok", "ok"),
    Case(OWN, "unbound, from a session", (lease(),), JO_AGENT, LIVE, "renewed", "ok", "ok"),
    Case(OWN, "same session", (lease(holder=JO_CI),), JO_CI, LIVE, "renewed", "ok", "ok"),
    Case(
        OWN,
        "an address in other letters",
        (lease(),),
        replace(JO, holder="Jo@Example.COM"),
        LIVE,
        "renewed",
        "ok",
        "ok",
    ),
    Case(
        OTHER_SESSION,
        "live",
        (lease(holder=JO_CI),),
        JO_AGENT,
        LIVE,
        "held",
        "not_holder",
        "held",
    ),
    Case(
        OTHER_SESSION,
        "expired, not lapsed",
        (lease(holder=JO_CI),),
        JO_AGENT,
        EXPIRED,
        "held",
        "not_holder",
        "held",
    ),
    Case(NO_SESSION, "live", (lease(holder=JO_CI),), JO, LIVE, "held", "not_holder", "ok"),
    Case(THEIRS, "live", (lease(),), KIM, LIVE, "held", "not_holder", "held"),
    Case(THEIRS, "of a session", (lease(holder=JO_CI),), KIM, LIVE, "held", "not_holder", "held"),
    Case(THEIRS, "expired, not lapsed", (lease(),), KIM, EXPIRED, "held", "not_holder", "held"),
    Case(THEIRS, "with an edge", (lease(edge=True),), KIM, LIVE, "held", "not_holder", "held"),
    Case(COMPLETED, "by another", (DONE,), KIM, LIVE, "policy", "lost", "ok"),
    Case(COMPLETED, "by oneself", (DONE,), JO, LIVE, "policy", "lost", "ok"),
    Case(COMPLETED, "long after", (DONE,), KIM, 86_400, "policy", "lost", "ok"),
]

DID = {"renew": "renewed", "extend": "extended", "release": "released", "done": "completed"}


@pytest.mark.parametrize("verb", list(VERBS))
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.row.split('|')[0].strip()}: {c.about}")
def test_the_table(case: Case, verb: str) -> None:
    ledger, when = holding(*case.records), moment(case.seconds)
    before, expected = picture(ledger), case.outcome_of(verb)
    (result,) = apply(ledger, [VERBS[verb](case.caller)], when, together=False).results
    if isinstance(result, Outcome):
        assert result.status == (DID[verb] if expected == "ok" else expected), case.row
    else:
        assert (result.code, result.resource) == (expected, "F001"), case.row
        assert picture(ledger) == before


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.claim == "held"], ids=lambda c: f"{c.row[:20]}: {c.about}"
)
def test_a_refusal_names_who_has_it(case: Case) -> None:
    with pytest.raises(LeaseHeld) as refused:
        apply(holding(*case.records), [claim(case.caller)], moment(case.seconds))
    in_the_way = refused.value.conflicts[0]
    assert in_the_way.holder == case.records[0].holder
    assert in_the_way.session == case.records[0].session
    assert case.records[0].holder in refused.value.message


@pytest.mark.parametrize("verb", ["renew", "extend"])
def test_not_holder_names_the_holder(verb: str) -> None:
    with pytest.raises(NotHolder) as refused:
        apply(holding(lease()), [VERBS[verb](KIM)], moment(LIVE))
    assert refused.value.conflicts
    assert refused.value.conflicts[0].holder == JO.holder


# --- sessions ------------------------------------------------------------------------------------


def owner_session(ledger: Ledger) -> str | None:
    (record,) = leases_in(ledger)
    return record.session


@pytest.mark.parametrize("verb", ["claim", "renew", "extend"])
def test_a_session_from_a_flag_binds_an_unbound_lease(verb: str) -> None:
    ledger, _ = step(holding(lease()), VERBS[verb](JO_AGENT), when=moment(LIVE))
    assert owner_session(ledger) == "claude:1234"
    with pytest.raises(NotHolder):
        apply(ledger, [renew(JO)], moment(LIVE))


@pytest.mark.parametrize("verb", ["claim", "renew", "extend"])
def test_a_session_from_elsewhere_binds_nothing(verb: str) -> None:
    ledger, _ = step(holding(lease()), VERBS[verb](JO_CI), when=moment(LIVE))
    assert owner_session(ledger) is None


def test_renewing_everything_binds_nothing() -> None:
    ledger, _ = step(holding(lease()), renew(JO_AGENT, None), when=moment(LIVE))
    assert owner_session(ledger) is None


def test_a_lease_claimed_with_a_session_is_bound_to_it() -> None:
    ledger, _ = step(empty(), claim(JO_CI), when=moment())
    assert owner_session(ledger) == "build-7"


def test_a_bound_lease_never_changes_sessions() -> None:
    ledger, _ = step(holding(lease(holder=JO_CI)), renew(JO_CI), when=moment(LIVE))
    for other in (JO, JO_AGENT):
        with pytest.raises(NotHolder):
            apply(ledger, [renew(other)], moment(LIVE))
    assert owner_session(ledger) == "build-7"


def test_renewing_everything_is_everything_of_this_session() -> None:
    ledger = holding(
        lease(resource="A", holder=JO_CI),
        lease(resource="B", holder=JO_AGENT),
        lease(resource="C", holder=KIM),
    )
    _, outcome = step(ledger, renew(JO_CI, None), when=moment(LIVE))
    assert [str(x.resource) for x in outcome.leases] == ["A"]


@pytest.mark.parametrize("verb", ["claim", "renew", "extend"])
def test_binding_never_makes_two_sessions_conflict(verb: str) -> None:
    unbound = lease(paths=("src/auth/login.py",))
    ledger = holding(unbound, lease(resource="src/auth/**", holder=JO_CI))
    applied = apply(ledger, [VERBS[verb](JO_AGENT)], moment(LIVE), together=False)
    bound = {x.session for x in leases_in(applied.ledger) if x.session is not None}
    assert bound == {"build-7"}


# --- scopes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("has", "wants", "conflict"),
    [
        ("*", "*", True),
        ("*", "parser", True),
        ("parser", "*", True),
        ("parser", "parser", True),
        ("Parser", "pARSER", True),
        ("parser", "lexer", False),
    ],
)
def test_overlapping_scopes_conflict(has: str, wants: str, conflict: bool) -> None:
    ledger = holding(lease(scope=has))
    if conflict:
        with pytest.raises(LeaseHeld):
            apply(ledger, [claim(KIM, scope=wants)], moment(LIVE))
    else:
        ledger, _ = step(ledger, claim(KIM, scope=wants), when=moment(LIVE))
        assert len(leases_in(ledger)) == 2


def test_ones_own_scopes_do_not_conflict() -> None:
    ledger, outcome = step(holding(lease(scope="parser")), claim(JO), when=moment(LIVE))
    assert outcome.status == "claimed"
    assert {x.scope for x in leases_in(ledger)} == {"*", "parser"}


@pytest.mark.parametrize("verb", ["renew", "extend", "release", "done"])
def test_verbs_without_a_scope_mean_all_own_scopes(verb: str) -> None:
    ledger = holding(lease(scope="a"), lease(scope="b"), lease(scope="c", holder=KIM))
    _, outcome = step(ledger, VERBS[verb](JO), when=moment(LIVE))
    assert [x.scope for x in outcome.leases] == ["a", "b"]


def test_a_verb_with_a_scope_means_that_one() -> None:
    ledger = holding(lease(scope="a"), lease(scope="b"))
    ledger, outcome = step(ledger, release(JO, scope="A"), when=moment(LIVE))
    assert [x.scope for x in outcome.leases] == ["a"]
    assert [x.scope for x in leases_in(ledger)] == ["b"]


def test_anothers_scope_is_not_ones_own() -> None:
    ledger = holding(lease(scope="a"), lease(scope="b", holder=KIM))
    with pytest.raises(LeaseHeld):
        apply(ledger, [release(JO, scope="b")], moment(LIVE))
    with pytest.raises(NotHolder):
        apply(ledger, [renew(JO, scope="b")], moment(LIVE))
    with pytest.raises(LeaseHeld):
        apply(ledger, [complete(JO, scope="b")], moment(LIVE))


# --- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("has", "wants", "conflict"),
    [
        ("src/auth/**", "src/*/login.py", True),
        ("path:src", "src/a/b.py", True),
        ("*.py", "docs/conf.py", True),
        ("src/", "docs/", False),
        ("src/*.py", "src/*.md", False),
        ("SRC/A.py", "src/a.py", True),
        ("path:Makefile", "/makefile", True),
        ("path:Makefile", "Makefile", False),
    ],
)
def test_paths_conflict_when_they_can_match_a_common_file(
    has: str, wants: str, conflict: bool
) -> None:
    ledger = holding(lease(resource=has))
    if conflict:
        with pytest.raises(LeaseHeld) as refused:
            apply(ledger, [claim(KIM, wants)], moment(LIVE))
        assert refused.value.conflicts
        assert refused.value.conflicts[0].resource == lease(resource=has).resource
    else:
        step(ledger, claim(KIM, wants), when=moment(LIVE))


def test_a_name_that_covers_paths_conflicts_like_a_path() -> None:
    ledger = holding(lease(paths=("src/auth/**",)))
    with pytest.raises(LeaseHeld):
        apply(ledger, [claim(KIM, "src/auth/a.py")], moment(LIVE))
    with pytest.raises(LeaseHeld):
        apply(ledger, [claim(KIM, "F002", paths=("src/*/a.py",))], moment(LIVE))
    step(ledger, claim(KIM, "F002", paths=("docs/",)), when=moment(LIVE))


def test_scopes_do_not_divide_a_path() -> None:
    ledger = holding(lease(scope="a", paths=("src/",)))
    with pytest.raises(LeaseHeld):
        apply(ledger, [claim(KIM, scope="b", paths=("src/x.py",))], moment(LIVE))


def test_a_renewal_that_adds_a_path_of_another_is_refused() -> None:
    ledger = holding(lease(), lease(resource="src/", holder=KIM))
    with pytest.raises(LeaseHeld):
        apply(ledger, [claim(JO, paths=("src/a.py",))], moment(LIVE))


def test_a_lapsed_path_lease_gives_way() -> None:
    ledger = holding(lease(resource="src/**"))
    ledger, outcome = step(ledger, claim(KIM, "src/a.py"), when=moment(LAPSED))
    assert outcome.status == "taken_over"
    assert [x.holder for x in leases_in(ledger)] == [KIM.holder]


def test_completed_work_guards_its_name_and_not_its_paths() -> None:
    ledger = holding(lease(state=State.COMPLETED, paths=("src/",)))
    step(ledger, claim(KIM, "src/a.py"), when=moment(LIVE))
    with pytest.raises(PolicyRefused):
        apply(ledger, [claim(KIM)], moment(LIVE))


# --- edges ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [KIM, JO])
def test_an_edge_protects_its_name_and_never_its_paths(who: Actor) -> None:
    """S2: the record stays its holder's, and a takeover of other work does not end it."""
    ledger = holding(lease(resource="T-14", edge=True, paths=("src/",)))
    over = {"paths": ("src/a.py",), "takeover": True, "reason": "urgent"}
    for wanted in (claim(who, "src/a.py"), claim(who, "T-9", **over)):
        with pytest.raises(LeaseHeld) if who is KIM else nullcontext():
            apply(ledger, [wanted], moment(LIVE))
        after, outcome = step(ledger, wanted, when=moment(LAPSED))
        assert (outcome.status, outcome.displaced) == ("claimed", ())
        assert {str(x.resource) for x in leases_in(after)} == {"T-14", str(wanted.resource)}
        assert not after.notices(JO.holder)


def test_a_live_lease_on_an_assigned_task_frees_its_paths() -> None:
    ledger = holding(lease(resource="T-14", edge=True, paths=("src/",)))
    for wanted, free in ((claim(KIM, "src/a.py"), True), (claim(KIM, "T-14"), False)):
        with pytest.raises(LeaseHeld) as refused:
            apply(ledger, [wanted], moment(LIVE))
        assert (refused.value.free_at_ms is not None, refused.value.by_edge) == (free, False)


def test_paths_of_lapsed_assigned_work_are_held_by_who_came_after() -> None:
    ledger = holding(lease(resource="T-14", edge=True, paths=("src/",)))
    ledger, _ = step(ledger, claim(KIM, "src/a.py"), when=moment(LAPSED))
    with pytest.raises(LeaseHeld):
        apply(ledger, [claim(JO, "T-14", paths=("src/",))], moment(LAPSED + 1))


def test_an_edge_protects_until_it_is_taken_over_with_a_reason() -> None:
    ledger = holding(lease(edge=True))
    with pytest.raises(LeaseHeld) as refused:
        apply(ledger, [claim(KIM)], moment(LAPSED))
    assert refused.value.free_at_ms is None
    assert "assigned" in refused.value.message
    with pytest.raises(UsageError):
        apply(ledger, [claim(KIM, takeover=True)], moment(LAPSED))
    with pytest.raises(UsageError):
        apply(ledger, [claim(KIM, takeover=True, reason=" ")], moment(LAPSED))
    taken = claim(KIM, takeover=True, reason="on holiday")
    ledger, outcome = step(ledger, taken, when=moment(LAPSED))
    assert outcome.status == "taken_over"
    (record,) = leases_in(ledger)
    assert (record.holder, record.reason) == (KIM.holder, "on holiday")
    (notice,) = ledger.notices(JO.holder)
    assert (notice.what, notice.by, notice.reason) == ("taken_over", KIM.holder, "on holiday")


def test_what_is_abandoned_is_taken_over_and_its_assignee_is_told() -> None:
    ledger = holding(lease(edge=True))
    with pytest.raises(LeaseHeld) as refused:
        apply(ledger, [claim(KIM, abandoned=True)], moment(GONE - 1))
    check_words(refused.value.hints[0])
    taken = claim(KIM, abandoned=True, edge=True, assigned=(Assignee("jo", (JO.holder,)),))
    ledger, outcome = step(ledger, taken, when=moment(GONE))
    assert (outcome.status, outcome.unassigned) == ("taken_over", ("jo",))
    assert [x.holder for x in leases_in(ledger)] == [KIM.holder]
    (notice,) = ledger.notices(JO.holder)
    assert (notice.what, notice.by) == ("taken_over", KIM.holder)
    check_words(notice.reason)


def test_whoever_else_is_assigned_keeps_what_another_abandoned() -> None:
    """Somebody in the file without a record, or with one on another scope that is younger."""
    stranger = Assignee("@codex")
    with raises(LeaseHeld):
        apply(
            holding(lease(edge=True)),
            [claim(KIM, abandoned=True, assigned=(Assignee("jo", (JO.holder,)), stranger))],
            moment(GONE),
        )
    younger = lease(edge=True, scope="docs", since=GONE - 2 * LAPSED)
    with pytest.raises(LeaseHeld):
        apply(
            holding(lease(edge=True, scope="code"), younger),
            [claim(KIM, scope="code", abandoned=True)],
            moment(GONE),
        )


@pytest.mark.parametrize(("setting", "seconds"), [("1d", 86_400), ("30d", 30 * 86_400)])
def test_the_ledger_says_when_an_edge_is_abandoned(setting: str, seconds: int) -> None:
    ledger, _ = step(
        holding(lease(edge=True)), set_policy(KIM, **{EDGES: setting}), when=moment(LIVE)
    )
    wanted = claim(KIM, abandoned=True)
    with pytest.raises(LeaseHeld):
        apply(ledger, [wanted], moment(LAPSED + seconds - 1))
    assert step(ledger, wanted, when=moment(LAPSED + seconds))[1].status == "taken_over"


def test_where_nothing_is_ever_abandoned_an_edge_protects_for_good() -> None:
    ledger = holding(lease(edge=True), policy=replace(DEFAULT_POLICY, abandoned_after=0))
    with pytest.raises(LeaseHeld) as refused:
        apply(ledger, [claim(KIM, abandoned=True)], moment(3_000 * 86_400))
    check_words(refused.value.hints[0])


def test_a_takeover_takes_only_from_whom_it_expects() -> None:
    ledger = holding(lease(edge=True))
    known = (Assignee("jo", (JO.holder,)),)
    taking: dict[str, Any] = {"takeover": True, "reason": "on holiday", "assigned": known}
    for other in (
        claim(KIM, **taking, expect_holder="lee@example.com"),
        claim(KIM, "F002", **taking, expect_holder="lee@example.com"),
    ):
        with raises(LeaseHeld):
            apply(ledger, [other], moment(LAPSED))
    wrong = claim(KIM, **taking, expect_holder="lee@example.com")
    with raises(LeaseHeld):
        apply(ledger, [wrong], moment(LIVE))
    with pytest.raises(UsageError):
        apply(ledger, [claim(KIM, expect_holder=JO.holder)], moment(LAPSED))
    taken = claim(KIM, **taking, expect_holder="JO@example.com")
    after, outcome = step(ledger, taken, when=moment(LAPSED))
    assert outcome.status == "taken_over"
    taking["assigned"] = ()
    repeated = claim(KIM, **taking, expect_holder=JO.holder)
    again, outcome = step(after, repeated, when=moment(LAPSED + 1))
    assert outcome.status == "renewed"
    free = claim(KIM, "F003", **taking, expect_holder=JO.holder)
    with pytest.raises(LeaseHeld) as refused:
        apply(again, [free], moment(LAPSED))
    check_words(refused.value.message)


def test_a_takeover_never_takes_a_live_lease() -> None:
    for seconds in (LIVE, EXPIRED):
        with pytest.raises(LeaseHeld):
            apply(
                holding(lease(edge=True)),
                [claim(KIM, takeover=True, reason="mine")],
                moment(seconds),
            )


def test_a_lapsed_scope_with_an_edge_protects_the_whole_task() -> None:
    ledger = holding(lease(scope="lexer", edge=True))
    with pytest.raises(LeaseHeld):
        apply(ledger, [claim(KIM, scope="parser")], moment(LAPSED))
    taken = claim(KIM, scope="parser", takeover=True, reason="on holiday")
    _, outcome = step(ledger, taken, when=moment(LAPSED))
    assert outcome.status == "taken_over"


def test_an_assignee_with_a_live_lease_on_another_scope_does_not_block() -> None:
    ledger = holding(lease(scope="lexer", edge=True))
    _, outcome = step(ledger, claim(KIM, scope="parser"), when=moment(LIVE))
    assert outcome.status == "claimed"


def test_every_holder_of_a_scope_is_an_assignee() -> None:
    kims = lease(scope="parser", edge=True, holder=KIM, since=LAPSED)
    ledger = holding(lease(scope="lexer", edge=True), kims)
    _, outcome = step(ledger, claim(KIM, scope="docs"), when=moment(LAPSED + 1))
    assert outcome.status == "claimed"


def test_a_claim_with_an_edge_says_so_in_the_record() -> None:
    ledger, _ = step(empty(), claim(JO, edge=True), when=moment())
    ledger, _ = step(ledger, claim(JO), when=moment(LIVE))
    assert [x.edge for x in leases_in(ledger)] == [True]


# --- completed work ------------------------------------------------------------------------------


def test_completed_work_is_claimed_again_only_by_reopening_it() -> None:
    ledger, _ = step(empty(), claim(JO), when=moment())
    ledger, done = step(ledger, complete(JO), when=moment(LIVE))
    assert done.leases[0].state is State.COMPLETED
    with pytest.raises(PolicyRefused):
        apply(ledger, [claim(KIM)], moment(LIVE))
    with pytest.raises(PolicyRefused):
        apply(ledger, [claim(KIM, takeover=True, reason="mine")], moment(LIVE))
    ledger, again = step(ledger, claim(KIM, reopen=True), when=moment(LIVE))
    assert again.status == "claimed"
    assert again.leases[0].token > done.leases[0].token
    assert ledger.notices(JO.holder) == ()


def test_reopening_takes_no_live_lease() -> None:
    with pytest.raises(LeaseHeld):
        apply(holding(lease()), [claim(KIM, reopen=True)], moment(LIVE))


def test_completed_work_is_forgotten_after_its_time() -> None:
    ledger, _ = step(empty(), complete(JO), when=moment())
    days = ledger.header.policy.keep_completed
    with pytest.raises(PolicyRefused):
        apply(ledger, [claim(KIM)], moment(days - 1))
    _, outcome = step(ledger, claim(KIM), when=moment(days))
    assert outcome.status == "claimed"


def test_completing_twice_is_once() -> None:
    ledger, first = step(empty(), complete(JO), when=moment())
    applied = apply(ledger, [complete(KIM)], moment(LIVE))
    assert not applied.changed
    assert applied.outcomes[0].leases == first.leases


# --- governance ----------------------------------------------------------------------------------


def test_revoking_needs_an_admin() -> None:
    ledger = holding(lease())
    with pytest.raises(PolicyRefused):
        apply(ledger, [revoke(KIM)], moment(LIVE))
    ledger, _ = step(ledger, set_policy(KIM, admins="kim@example.com"), when=moment(LIVE))
    for other in (JO, Actor("lee@example.com")):
        with pytest.raises(PolicyRefused):
            apply(ledger, [revoke(other)], moment(LIVE))
    ledger, outcome = step(ledger, revoke(replace(KIM, holder="KIM@example.com")), when=moment(20))
    assert outcome.status == "revoked"
    assert leases_in(ledger) == []
    (notice,) = ledger.notices(JO.holder)
    assert (notice.what, notice.reason) == ("revoked", "stuck")


def test_revoking_needs_a_reason_and_the_expected_holder() -> None:
    ledger, _ = step(holding(lease()), set_policy(KIM, admins=KIM.holder), when=moment())
    with pytest.raises(UsageError):
        apply(ledger, [revoke(KIM, reason=" ")], moment(LIVE))
    with raises(LeaseHeld):
        apply(ledger, [revoke(KIM, expect_holder="lee@example.com")], moment(LIVE))
    _, outcome = step(ledger, revoke(KIM, expect_holder="JO@example.com"), when=moment(LIVE))
    assert [x.holder for x in outcome.leases] == [JO.holder]


def test_after_a_revocation_the_resource_is_free_and_the_old_holder_is_not_it() -> None:
    ledger, _ = step(holding(lease()), set_policy(KIM, admins=KIM.holder), when=moment())
    ledger, _ = step(ledger, revoke(KIM), when=moment(LIVE))
    ledger, outcome = step(ledger, claim(KIM), when=moment(LIVE))
    assert outcome.status == "claimed"
    with pytest.raises(NotHolder):
        apply(ledger, [extend(JO, TTL)], moment(LIVE))


# --- what each verb makes of time ----------------------------------------------------------------


def outcome_at(seconds: float, seen: Sighting | None) -> Outcome:
    return step(holding(lease()), claim(KIM), when=moment(seconds, seen))[1]


def test_a_contender_waits_for_the_skew_allowance_and_no_longer() -> None:
    with pytest.raises(LeaseHeld):
        outcome_at(TTL + SKEW, None)
    assert outcome_at(TTL + SKEW + 0.001, None).status == "taken_over"


def test_whoever_saw_the_record_change_waits_its_duration_from_then() -> None:
    with pytest.raises(LeaseHeld):
        outcome_at(LAPSED, Sighting(at=at(LAPSED - TTL + 1), changed=True))
    seen = Sighting(at=at(LAPSED - TTL), changed=True)
    with pytest.raises(LeaseHeld):
        outcome_at(LAPSED, seen)
    assert outcome_at(LAPSED + 0.001, seen).status == "taken_over"
