"""Who may do what: the table of the contract, row by row and verb by verb."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from kernel.rules.values import (
    JO,
    KIM,
    SKEW,
    TTL,
    VERBS,
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
    picture,
    release,
    renew,
    revoke,
    set_policy,
    step,
)
from support.snapshots import check_words, raises

from gitlease.kernel.rules.edge import Assignee
from gitlease.kernel.rules.errors import LeaseHeld, NotHolder
from gitlease.kernel.rules.lease import Actor, Lease, State
from gitlease.kernel.rules.ledger import Ledger
from gitlease.kernel.rules.moves.operations import Outcome, Park, grant_of
from gitlease.kernel.rules.moves.transitions import apply
from gitlease.kernel.rules.policy import EDGES

LIVE, EXPIRED, LAPSED = 10, TTL + 1, TTL + SKEW + 1  # seconds after the grant
GONE = LAPSED + 7 * 86_400

JO_CI = replace(JO, session="build-7")
JO_AGENT = replace(JO, session="claude:1234", session_explicit=True)


# The rows of the contract, each with its situations: the record that is there, who asks, how many
# seconds after the grant, and what a claim, renew and extend, release and done come to.
NOBODY = "none, or lapsed without an edge"
ASSIGNED = "none or lapsed, task assigned to another and not abandoned"
ABANDONED = "the same, abandoned"  # a claim needs a look for signs of life
OWN = "live, same person, unbound or same session"
OTHER_SESSION = "live, same person, bound to another session, with another session"
NO_SESSION = "the same, without a session"
THEIRS = "live, another person"
COMPLETED = "completed"

FREE, EDGE, RUN = lease(), lease(edge=True), lease(holder=JO_CI)
RUN_EDGE, DONE = lease(holder=JO_CI, edge=True), lease(state=State.COMPLETED, ttl=10)
JO_LOUD = replace(JO, holder="Jo@Example.COM")

CASES: list[tuple[str, Lease | None, Actor, float, str]] = [
    (NOBODY, None, KIM, LIVE, "claimed lost ok"),
    (NOBODY, FREE, KIM, LAPSED, "taken_over lost ok"),
    (NOBODY, FREE, JO, LAPSED, "claimed lost ok"),
    (NOBODY, FREE, JO, EXPIRED, "claimed lost ok"),
    (NOBODY, EDGE, JO, LAPSED, "claimed lost ok"),
    (NOBODY, RUN, JO_AGENT, LAPSED, "claimed lost ok"),
    (ASSIGNED, EDGE, KIM, LAPSED, "held lost held"),
    (ASSIGNED, RUN_EDGE, KIM, LAPSED, "held lost held"),
    (ASSIGNED, EDGE, KIM, GONE - 1, "held lost held"),
    (ABANDONED, EDGE, KIM, GONE, "held lost held"),
    (ABANDONED, EDGE, JO, GONE, "claimed lost ok"),
    (OWN, FREE, JO, LIVE, "renewed ok ok"),
    (OWN, FREE, JO_AGENT, LIVE, "renewed ok ok"),
    (OWN, RUN, JO_CI, LIVE, "renewed ok ok"),
    (OWN, FREE, JO_LOUD, LIVE, "renewed ok ok"),
    (OTHER_SESSION, RUN, JO_AGENT, LIVE, "held not_holder held"),
    (OTHER_SESSION, RUN, JO_AGENT, EXPIRED, "held not_holder held"),
    (NO_SESSION, RUN, JO, LIVE, "held not_holder ok"),
    (THEIRS, FREE, KIM, LIVE, "held not_holder held"),
    (THEIRS, RUN, KIM, LIVE, "held not_holder held"),
    (THEIRS, FREE, KIM, EXPIRED, "held not_holder held"),
    (THEIRS, EDGE, KIM, LIVE, "held not_holder held"),
    (COMPLETED, DONE, KIM, LIVE, "policy lost ok"),
    (COMPLETED, DONE, JO, LIVE, "policy lost ok"),
    (COMPLETED, DONE, KIM, 86_400, "policy lost ok"),
]
DID = {"renew": "renewed", "extend": "extended", "release": "released", "done": "completed"}
CELLS = {"claim": 0, "renew": 1, "extend": 1, "release": 2, "done": 2}


@pytest.mark.parametrize("verb", list(VERBS))
@pytest.mark.parametrize(("row", "record", "caller", "seconds", "outcomes"), CASES)
def test_the_table(
    row: str, record: Lease | None, caller: Actor, seconds: float, outcomes: str, verb: str
) -> None:
    """A refusal changes nothing, and names whose lease it is."""
    ledger, when = holding(*([record] if record else [])), moment(seconds)
    before, expected = picture(ledger), outcomes.split()[CELLS[verb]]
    (result,) = apply(ledger, [VERBS[verb](caller)], when, together=False).results
    if isinstance(result, Outcome):
        assert result.status == (DID[verb] if expected == "ok" else expected), row
        return
    assert (result.code, result.resource) == (expected, "F001"), row
    assert picture(ledger) == before
    if record is not None and result.code in ("held", "not_holder"):
        assert result.conflicts
        named = result.conflicts[0]
        assert (named.holder, named.session) == (record.holder, record.session)
        assert record.holder in result.message


# --- sessions ------------------------------------------------------------------------------------


def owner_session(ledger: Ledger) -> str | None:
    (record,) = leases_in(ledger)
    return record.session


@pytest.mark.parametrize("verb", ["claim", "renew", "extend"])
def test_a_session_from_a_flag_binds_an_unbound_lease(verb: str) -> None:
    ledger, _ = step(holding(lease()), VERBS[verb](JO_AGENT), when=moment(LIVE))
    assert owner_session(ledger) == "claude:1234"
    ledger, _ = step(ledger, renew(JO_AGENT), when=moment(LIVE))
    assert owner_session(ledger) == "claude:1234"


@pytest.mark.parametrize("verb", ["claim", "renew", "extend"])
def test_a_session_from_elsewhere_binds_nothing(verb: str) -> None:
    ledger, _ = step(holding(lease()), VERBS[verb](JO_CI), when=moment(LIVE))
    assert owner_session(ledger) is None
    ledger, _ = step(empty(), claim(JO_CI), when=moment())
    assert owner_session(ledger) == "build-7", "it is bound to the one that claimed it"


def test_renewing_everything_is_everything_of_this_session_and_binds_nothing() -> None:
    agents = lease(resource="B", holder=JO_AGENT)
    ledger = holding(lease(resource="A", holder=JO_CI), agents, lease(resource="C", holder=KIM))
    _, outcome = step(ledger, renew(JO_CI, None), when=moment(LIVE))
    assert [str(x.resource) for x in outcome.leases] == ["A"]
    ledger, _ = step(holding(lease()), renew(JO_AGENT, None), when=moment(LIVE))
    assert owner_session(ledger) is None


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
        ("Parser", "pARSER", True),
        ("parser", "lexer", False),
    ],
)
def test_overlapping_scopes_conflict(has: str, wants: str, conflict: bool) -> None:
    """Those of others: one's own do not."""
    wish = [claim(KIM, scope=wants)]
    (result,) = apply(holding(lease(scope=has)), wish, moment(LIVE), together=False).results
    assert isinstance(result, LeaseHeld) is conflict
    ledger, _ = step(holding(lease(scope="parser")), claim(JO), when=moment(LIVE))
    assert {x.scope for x in leases_in(ledger)} == {"*", "parser"}


@pytest.mark.parametrize("verb", ["renew", "extend", "release", "done"])
def test_verbs_without_a_scope_mean_all_own_scopes(verb: str) -> None:
    ledger = holding(lease(scope="a"), lease(scope="b"), lease(scope="c", holder=KIM))
    _, outcome = step(ledger, VERBS[verb](JO), when=moment(LIVE))
    assert [x.scope for x in outcome.leases] == ["a", "b"]


def test_a_verb_with_a_scope_means_that_one() -> None:
    ledger = holding(lease(scope="a"), lease(scope="b"), lease(scope="c", holder=KIM))
    after, outcome = step(ledger, release(JO, scope="A"), when=moment(LIVE))
    assert [x.scope for x in outcome.leases] == ["a"]
    assert [x.scope for x in leases_in(after)] == ["b", "c"]
    for another, error in (
        (release(JO, scope="c"), LeaseHeld),
        (complete(JO, scope="c"), LeaseHeld),
        (renew(JO, scope="c"), NotHolder),
    ):
        with pytest.raises(error):
            apply(ledger, [another], moment(LIVE))


# --- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("has", "wants", "conflict"),
    [
        ("src/auth/**", "src/*/login.py", True),
        ("path:src", "src/a/b.py", True),
        ("*.py", "docs/conf.py", True),
        ("src/", "docs/", False),
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
    """A renewal that adds one too, and scopes do not divide them."""
    ledger = holding(lease(paths=("src/auth/**",)), lease(resource="F003", holder=KIM))
    for wish in (
        claim(KIM, "src/auth/a.py"),
        claim(KIM, "F002", paths=("src/*/a.py",)),
        claim(KIM, "F003", paths=("src/*/a.py",)),
        claim(KIM, scope="b", paths=("src/auth/x.py",)),
    ):
        assert code(ledger, wish, moment(LIVE)) == "held"
    step(ledger, claim(KIM, "F002", paths=("docs/",)), when=moment(LIVE))


def test_a_lapsed_path_lease_gives_way() -> None:
    ledger = holding(lease(resource="src/**"))
    ledger, outcome = step(ledger, claim(KIM, "src/a.py"), when=moment(LAPSED))
    assert outcome.status == "taken_over"
    assert [x.holder for x in leases_in(ledger)] == [KIM.holder]


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


def test_a_live_lease_on_an_assigned_task_frees_its_paths_at_its_end() -> None:
    ledger = holding(lease(resource="T-14", edge=True, paths=("src/",)))
    for wanted, free in ((claim(KIM, "src/a.py"), True), (claim(KIM, "T-14"), False)):
        with pytest.raises(LeaseHeld) as refused:
            apply(ledger, [wanted], moment(LIVE))
        assert (refused.value.free_at_ms is not None, refused.value.by_edge) == (free, False)
    ledger, _ = step(ledger, claim(KIM, "src/a.py"), when=moment(LAPSED))
    assert code(ledger, claim(JO, "T-14", paths=("src/",)), moment(LAPSED + 1)) == "held"


@pytest.mark.parametrize("who", [KIM, JO_CI])
def test_a_task_whose_paths_were_granted_after_its_lapse_goes_on_nowhere(who: Actor) -> None:
    """S2, S3: not by a slower clock of its holder's either; its name stays theirs."""
    own = lease(resource="T-14", holder=JO_AGENT, edge=True, paths=("src/",))
    ledger, _ = step(holding(own), claim(who, "src/a.py"), when=moment(LAPSED))
    going_on = (
        renew(JO_AGENT, None),
        renew(JO_AGENT, "T-14"),
        extend(JO_AGENT, 60, "T-14"),
        Park(id=fresh(), actor=JO_AGENT, resource=own.resource),
        claim(JO_AGENT, "T-14", paths=("src/",)),
    )
    now = moment(LIVE)
    assert [code(ledger, x, now) for x in going_on] == ["lost"] * 4 + ["held"]
    beat = step(ledger, renew(JO_AGENT, None, grants=(grant_of(own),)), when=now)[1]
    assert (beat.leases, [x.code for x in beat.refused]) == ((), ["lost"])
    assert not step(ledger, end(JO_AGENT, own, park=True), when=now)[1].changed
    ledger, _ = step(ledger, release(who, "src/a.py"), when=now)
    assert code(ledger, renew(JO_AGENT, "T-14"), now) == "renewed"


def test_an_edge_protects_until_it_is_taken_over_with_a_reason() -> None:
    ledger = holding(lease(edge=True))
    with pytest.raises(LeaseHeld) as refused:
        apply(ledger, [claim(KIM)], moment(LAPSED))
    assert refused.value.free_at_ms is None
    assert "assigned" in refused.value.message
    assert code(ledger, claim(KIM, takeover=True), moment(LAPSED)) == "usage"
    assert code(ledger, claim(KIM, takeover=True, reason=" "), moment(LAPSED)) == "usage"
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
    assigned = (Assignee("jo", (JO.holder,)), Assignee("@codex"))
    wish = claim(KIM, abandoned=True, assigned=assigned)
    with raises(LeaseHeld):
        apply(holding(lease(edge=True)), [wish], moment(GONE))
    younger = lease(edge=True, scope="docs", since=GONE - 2 * LAPSED)
    ledger = holding(lease(edge=True, scope="code"), younger)
    assert code(ledger, claim(KIM, scope="code", abandoned=True), moment(GONE)) == "held"


@pytest.mark.parametrize("days", [1, 30, 0])
def test_the_ledger_says_when_an_edge_is_abandoned(days: int) -> None:
    setting = {EDGES: f"{days}d" if days else "never"}
    ledger, _ = step(holding(lease(edge=True)), set_policy(KIM, **setting), when=moment(LIVE))
    wanted, end = claim(KIM, abandoned=True), LAPSED + (days or 3_000) * 86_400
    with pytest.raises(LeaseHeld) as refused:
        apply(ledger, [wanted], moment(end - 1))
    if days:
        assert step(ledger, wanted, when=moment(end))[1].status == "taken_over"
    else:
        check_words(refused.value.hints[0])


def test_a_takeover_takes_only_from_whom_it_expects() -> None:
    ledger, known = holding(lease(edge=True)), (Assignee("jo", (JO.holder,)),)
    taking: dict[str, Any] = {"takeover": True, "reason": "on holiday", "assigned": known}
    wrong: dict[str, Any] = {**taking, "expect_holder": "lee@example.com"}
    for name, seconds in (("F001", LAPSED), ("F002", LAPSED), ("F001", LIVE)):
        with raises(LeaseHeld):
            apply(ledger, [claim(KIM, name, **wrong)], moment(seconds))
    assert code(ledger, claim(KIM, expect_holder=JO.holder), moment(LAPSED)) == "usage"
    taken = claim(KIM, **taking, expect_holder="JO@example.com")
    after, outcome = step(ledger, taken, when=moment(LAPSED))
    assert outcome.status == "taken_over"
    expecting: dict[str, Any] = {**taking, "assigned": (), "expect_holder": JO.holder}
    assert code(after, claim(KIM, **expecting), moment(LAPSED + 1)) == "renewed", "repeated"
    assert code(after, claim(KIM, "F003", **expecting), moment(LAPSED)) == "held", "it is free"


def test_a_takeover_never_takes_a_live_lease() -> None:
    wish = [claim(KIM, takeover=True, reason="mine")]
    for seconds in (LIVE, EXPIRED):
        with pytest.raises(LeaseHeld):
            apply(holding(lease(edge=True)), wish, moment(seconds))


def test_a_lapsed_scope_with_an_edge_protects_the_whole_task() -> None:
    """While it is live on another scope it does not: every holder of a scope is an assignee."""
    ledger = holding(lease(scope="lexer", edge=True))
    assert code(ledger, claim(KIM, scope="parser"), moment(LAPSED)) == "held"
    taken = claim(KIM, scope="parser", takeover=True, reason="on holiday")
    _, outcome = step(ledger, taken, when=moment(LAPSED))
    assert outcome.status == "taken_over"
    _, outcome = step(ledger, claim(KIM, scope="parser"), when=moment(LIVE))
    assert outcome.status == "claimed"
    kims = holding(*leases_in(ledger), lease(scope="a", edge=True, holder=KIM, since=LAPSED))
    _, outcome = step(kims, claim(KIM, scope="docs"), when=moment(LAPSED + 1))
    assert outcome.status == "claimed"


def test_a_claim_with_an_edge_says_so_in_the_record() -> None:
    ledger, _ = step(empty(), claim(JO, edge=True), when=moment())
    ledger, _ = step(ledger, claim(JO), when=moment(LIVE))
    assert [x.edge for x in leases_in(ledger)] == [True]


# --- completed work ------------------------------------------------------------------------------


def test_completed_work_is_claimed_again_only_by_reopening_it() -> None:
    """Its paths are anyone's, and it is forgotten after its time."""
    ledger, _ = step(empty(), claim(JO, paths=("src/",)), when=moment())
    ledger, done = step(ledger, complete(JO), when=moment(LIVE))
    assert done.leases[0].state is State.COMPLETED
    for refused in (claim(KIM), claim(KIM, takeover=True, reason="mine")):
        assert code(ledger, refused, moment(LIVE)) == "policy"
    step(ledger, claim(KIM, "src/a.py"), when=moment(LIVE))
    after, again = step(ledger, claim(KIM, reopen=True), when=moment(LIVE))
    assert again.status == "claimed"
    assert again.leases[0].token > done.leases[0].token
    assert after.notices(JO.holder) == ()
    assert code(after, claim(JO, reopen=True), moment(LIVE)) == "held"
    days = ledger.header.policy.keep_completed
    assert code(ledger, claim(KIM), moment(LIVE + days - 1)) == "policy"
    assert step(ledger, claim(KIM), when=moment(LIVE + days))[1].status == "claimed"


def test_completing_twice_is_once() -> None:
    ledger, first = step(empty(), complete(JO), when=moment())
    applied = apply(ledger, [complete(KIM)], moment(LIVE))
    assert not applied.changed
    assert applied.outcomes[0].leases == first.leases


# --- governance ----------------------------------------------------------------------------------


def test_revoking_needs_an_admin() -> None:
    ledger = holding(lease())
    assert code(ledger, revoke(KIM), moment(LIVE)) == "policy"
    ledger, _ = step(ledger, set_policy(KIM, admins="kim@example.com"), when=moment(LIVE))
    for other in (JO, Actor("lee@example.com")):
        assert code(ledger, revoke(other), moment(LIVE)) == "policy"
    ledger, outcome = step(ledger, revoke(replace(KIM, holder="KIM@example.com")), when=moment(20))
    assert outcome.status == "revoked"
    assert leases_in(ledger) == []
    (notice,) = ledger.notices(JO.holder)
    assert (notice.what, notice.reason) == ("revoked", "stuck")
    assert step(ledger, claim(KIM), when=moment(20))[1].status == "claimed"


def test_revoking_needs_a_reason_and_the_expected_holder() -> None:
    ledger, _ = step(holding(lease()), set_policy(KIM, admins=KIM.holder), when=moment())
    assert code(ledger, revoke(KIM, reason=" "), moment(LIVE)) == "usage"
    with raises(LeaseHeld):
        apply(ledger, [revoke(KIM, expect_holder="lee@example.com")], moment(LIVE))
    _, outcome = step(ledger, revoke(KIM, expect_holder="JO@example.com"), when=moment(LIVE))
    assert [x.holder for x in outcome.leases] == [JO.holder]
