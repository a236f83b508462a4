"""The moves of a ledger: what each leaves behind, what a refusal leaves alone, what only grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from kernel.rules.values import (
    F001,
    JO,
    KIM,
    NOON,
    SKEW,
    TTL,
    as_stored,
    at,
    claim,
    code,
    complete,
    empty,
    extend,
    fresh,
    holding,
    lease,
    leases_in,
    moment,
    note,
    only,
    picture,
    release,
    renew,
    set_policy,
    step,
)
from support.snapshots import check_words

from gitlease.kernel.rules.errors import (
    GitleaseError,
    Invalid,
    LeaseHeld,
    LeaseLost,
    Loss,
    NotHolder,
    PolicyRefused,
    UsageError,
)
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import Actor, Moment, Policy, Sighting, State
from gitlease.kernel.rules.ledger import (
    EPOCH_SIZE,
    NOTES_KEPT,
    NOTICES_KEPT,
    RING_SIZE,
    Fate,
    Header,
    RingEntry,
)
from gitlease.kernel.rules.loss import ending
from gitlease.kernel.rules.moves.operations import (
    Acknowledge,
    Barrier,
    DropRecord,
    Operation,
    Restore,
    RunOut,
    grant_of,
)
from gitlease.kernel.rules.moves.transitions import apply
from gitlease.kernel.rules.resources import parse_resource

LIVE, LAPSED = 10, TTL + SKEW + 1
AGENT = replace(JO, session="agent")


# --- a refusal changes nothing -------------------------------------------------------------------

BASE = holding(
    lease(),
    lease(resource="F002", holder=KIM, edge=True),
    lease(resource="F003", state=State.COMPLETED),
)
DROPPED = DropRecord(id="d", actor=JO, file="leases/x", reason="bad")
ILLEGAL: dict[str, tuple[Operation, type[GitleaseError], float]] = {
    "claim what another holds": (claim(KIM), LeaseHeld, LIVE),
    "take over without a reason": (claim(JO, "F002", takeover=True), UsageError, LAPSED),
    "claim for too long": (claim(JO, ttl=8 * 3_600 + 1), PolicyRefused, LIVE),
    "claim for too short": (claim(JO, ttl=9), PolicyRefused, LIVE),
    "claim too many paths": (claim(JO, paths=("a",) * 65), UsageError, LIVE),
    "renew what another holds": (renew(KIM), NotHolder, LIVE),
    "renew what ran out": (renew(JO), LeaseLost, TTL),
    "renew for too long": (renew(JO, ttl=8 * 3_600 + 1), PolicyRefused, LIVE),
    "extend what ran out": (extend(JO, 60), LeaseLost, TTL),
    "set an unknown policy": (set_policy(JO, colour="red"), UsageError, LIVE),
    "set a bad policy": (set_policy(JO, ttl_min="1d"), UsageError, LIVE),
    "name admins without oneself": (set_policy(JO, admins=KIM.holder), PolicyRefused, LIVE),
    "drop a record without being an admin": (DROPPED, PolicyRefused, LIVE),
}


@pytest.mark.parametrize("what", list(ILLEGAL))
def test_an_illegal_move_is_refused_and_changes_nothing(what: str) -> None:
    operation, error, seconds = ILLEGAL[what]
    before = picture(BASE)
    with pytest.raises(error):
        apply(BASE, [operation], moment(seconds))
    assert picture(BASE) == before
    alone = apply(BASE, [operation], moment(seconds), together=False)
    assert alone.ledger is BASE
    assert not alone.changed
    assert isinstance(alone.results[0], error)


def test_a_refusal_after_legal_moves_undoes_them_all() -> None:
    before = picture(BASE)
    batch = [claim(JO, "F010"), note(JO, "hello"), release(JO), claim(JO, "F002")]
    with pytest.raises(LeaseHeld):
        apply(BASE, batch, moment(LIVE))
    assert picture(BASE) == before


def test_independent_moves_succeed_or_fail_one_by_one() -> None:
    batch = [claim(JO, "F010"), claim(JO, "F002"), renew(JO), renew(KIM)]
    applied = apply(BASE, batch, moment(LIVE), together=False)
    kinds = [type(r).__name__ for r in applied.results]
    assert kinds == ["Outcome", "LeaseHeld", "Outcome", "NotHolder"]
    ring = [entry.outcome for entry in applied.ledger.header.ring]
    assert ring == ["claimed", "held", "renewed", "not_holder"]
    assert {e.revision for e in applied.ledger.header.ring} == {BASE.header.revision + 1}
    assert len(leases_in(applied.ledger)) == 4


def test_later_moves_of_a_batch_see_the_earlier_ones() -> None:
    with pytest.raises(LeaseHeld):
        apply(empty(), [claim(JO), claim(KIM)], moment())
    applied = apply(empty(), [claim(JO), release(JO), claim(KIM)], moment())
    assert only(applied.ledger).holder == KIM.holder
    assert applied.ledger.header.revision == 1


OLD_CONTACT = Sighting(at=at(-100_000), changed=False)


@pytest.mark.parametrize("who", [JO, replace(JO, session="a")])
def test_what_a_step_grants_is_live_in_that_step(who: Actor) -> None:
    """However long ago the clone's first contact was, by which it judges what it has not seen."""
    task = claim(who, "T1", paths=("src/auth/login.py",))
    batch = [claim(who, "src/auth/"), claim(who, "src/*/x.py"), task, claim(who, "src/auth/")]
    seen = moment(LIVE, seen=OLD_CONTACT)
    applied = apply(empty(), batch, seen)
    assert [outcome.status for outcome in applied.outcomes] == [*["claimed"] * 3, "renewed"]
    assert {x.resource.text for x in leases_in(applied.ledger)} == {"src/auth", "src/*/x.py", "T1"}
    for second in (claim(KIM, "src/auth/x.py"), claim(replace(JO, session="b"), "src/auth/")):
        with pytest.raises(LeaseHeld):
            apply(empty(), [claim(who if who.session else AGENT, "src/auth/"), second], seen)


# --- revisions, tokens, operation ids ------------------------------------------------------------


def test_every_step_is_one_revision() -> None:
    ledger = empty()
    steps: list[list[Operation]] = [[claim(JO), claim(JO, "F002")], [renew(JO)], [release(JO)]]
    for number, batch in enumerate(steps, start=1):
        ledger = as_stored(apply(ledger, batch, moment(LIVE)).ledger)
        assert ledger.header.revision == number


def test_scopes_share_the_paths_of_their_task_and_no_folder_that_is_claimed_itself() -> None:
    for resource, paths, free in (("F001", ("src/",), True), ("docs/", (), False)):
        first = claim(JO, resource, scope="parser", paths=paths)
        ledger = as_stored(apply(empty(), [first], moment()).ledger)
        other = claim(KIM, resource, scope="lexer", paths=paths)
        if free:
            assert apply(ledger, [other], moment()).changed
        else:
            assert code(ledger, other, moment()) == "held"


def test_a_barrier_changes_nothing_but_the_revision() -> None:
    assert not apply(BASE, [set_policy(JO, rule="wall")], moment(LIVE)).changed, "as it is"
    ledger, outcome = step(BASE, Barrier(id=fresh(), actor=KIM), when=moment(LIVE))
    assert outcome.changed
    assert ledger.header.revision == BASE.header.revision + 1
    assert leases_in(ledger) == leases_in(BASE)
    assert ledger.header.token == BASE.header.token


def test_tokens_go_on_above_those_of_another_past() -> None:
    """Not where they are above already, and no step can use up the epochs."""
    header = BASE.header
    op = Restore(id=fresh(), actor=KIM, above=header.token + 5)
    ledger, outcome = step(BASE, op, when=moment(LIVE))
    assert outcome.changed
    assert leases_in(ledger) == leases_in(BASE)
    assert ledger.header.epoch == header.epoch + 1
    ledger, outcome = step(ledger, claim(KIM, "F9"), when=moment(LIVE))
    assert outcome.leases[0].token > op.above
    assert not apply(BASE, [replace(op, above=header.token)], moment(LIVE)).changed
    assert code(BASE, replace(op, above=(header.epoch + 2) * EPOCH_SIZE), moment(LIVE)) == "invalid"


def test_every_grant_takes_a_greater_token() -> None:
    """Epoch and sequence are one number; to finish without a lease is a grant, too."""
    header = Header(ledger_id="x", revision=1, epoch=3, sequence=41, policy=Policy())
    ledger, tokens = empty().with_header(header), []
    for seconds, who in enumerate((JO, KIM) * 4):
        when = moment(seconds * LAPSED)
        ledger, outcome = step(ledger, claim(who), when=when)
        tokens.append(outcome.leases[0].token)
        ledger, outcome = step(ledger, renew(who), when=when)
        assert outcome.leases[0].token == tokens[-1]
        if seconds % 3 == 0:
            ledger, _ = step(ledger, release(who), when=when)
    assert tokens == [3 * EPOCH_SIZE + n for n in range(42, 50)]
    _, outcome = step(ledger, complete(KIM, "F9"), when=moment(7 * LAPSED))
    assert outcome.leases[0].token == 3 * EPOCH_SIZE + 50


def test_a_sequence_behind_a_token_in_use_is_refused() -> None:
    ledger = holding(lease())
    tampered = ledger.with_header(replace(ledger.header, sequence=0))
    assert code(tampered, claim(KIM), moment(LAPSED)) == "invalid"


def test_an_operation_that_the_ring_knows_is_never_applied_again() -> None:
    """Nor one twice in a batch, nor one that was refused in a batch that was applied."""
    once, refused = renew(JO), claim(KIM)
    applied = apply(holding(lease()), [once, refused], moment(LIVE), together=False)
    for again in (once, refused):
        for together in (True, False):
            with pytest.raises(Invalid):
                apply(as_stored(applied.ledger), [again], moment(LAPSED), together=together)
    with pytest.raises(Invalid):
        apply(holding(lease()), [once, once], moment(LIVE))


def test_the_ring_forgets_whole_steps() -> None:
    """It is bounded, and keeps the newest."""
    barriers = [Barrier(id=fresh(), actor=JO) for _ in range(RING_SIZE + 1)]
    ledger, _ = step(empty(), *barriers[:2], when=moment())
    for barrier in barriers[2:]:
        ledger, _ = step(ledger, barrier, when=moment())
    assert [entry.revision for entry in ledger.header.ring] == list(range(2, RING_SIZE + 1))
    assert [entry.operation for entry in ledger.header.ring] == [x.id for x in barriers[2:]]
    assert ledger.header.entry(barriers[0].id) is None


@pytest.mark.parametrize(
    ("first", "last", "base", "fate"),
    [
        (1, 5, 5, Fate.UNDECIDED),
        (1, 5, 4, Fate.LOST),
        (100, 100 + RING_SIZE - 1, 100, Fate.LOST),
        (100, 100 + RING_SIZE - 1, 99, Fate.UNKNOWN),
    ],
)
def test_the_fate_of_a_change_is_read_from_the_ring(
    first: int, last: int, base: int, fate: Fate
) -> None:
    ring = tuple(RingEntry(f"other-{n}", n, "claimed") for n in range(first, last + 1))
    header = Header(ledger_id="x", revision=last, epoch=0, sequence=0, policy=Policy(), ring=ring)
    assert header.fate(["mine"], base) is fate
    assert header.fate(["mine", f"other-{last}"], base) is fate, "another step has a part of it"
    assert header.fate([f"other-{last}"], base) is Fate.APPLIED


# --- grants --------------------------------------------------------------------------------------


def test_a_grant_says_everything_about_itself() -> None:
    asked = claim(AGENT, ttl=60, reason="rate limits", scope="parser", paths=("src/",), edge=True)
    ledger, outcome = step(empty(), asked, when=moment(5))
    granted = only(ledger)
    now = at(5).wall_ms
    assert granted == outcome.leases[0]
    assert (granted.resource, granted.scope, granted.holder) == (F001, "parser", JO.holder)
    assert (granted.session, granted.host, granted.branch) == ("agent", "laptop", "main")
    assert (granted.claimed_at, granted.renewed_at) == (now, now)
    assert (granted.expires_at, granted.ttl, granted.renewals) == (now + 60 * MS, 60, 0)
    assert (granted.lease_id, granted.operation) == (asked.lease_id, asked.id)
    assert (granted.reason, granted.paths, granted.edge) == ("rate limits", ("src/",), True)
    assert granted.margins == Policy().margins
    assert granted.state is State.ACTIVE
    assert outcome.displaced == ()


@pytest.mark.parametrize(
    ("asked", "default", "granted"),
    [(None, 900, 900), (None, 5, 10), (None, 86_400, 28_800), (10, 900, 10), (28_800, 900, 28_800)],
)
def test_a_default_ttl_is_fitted_into_the_limits(
    asked: int | None, default: int, granted: int
) -> None:
    """One that somebody set must lie within them."""
    wish = claim(JO, ttl=asked, default_ttl=default, default_fits=True)
    ledger, _ = step(empty(), wish, when=moment())
    assert only(ledger).ttl == granted
    if default != 900:
        assert code(empty(), replace(wish, default_fits=False), moment()) == "policy"


def test_the_first_claimers_spelling_stays() -> None:
    ledger, _ = step(empty(), claim(JO, "Deploy", scope="a"), when=moment())
    ledger, outcome = step(ledger, claim(KIM, "DEPLOY", scope="b"), when=moment())
    assert str(outcome.leases[0].resource) == "Deploy"
    ledger, outcome = step(ledger, claim(KIM, "deploy", scope="a"), when=moment(LAPSED))
    assert str(outcome.leases[0].resource) == "Deploy"
    assert {str(x.resource) for x in leases_in(ledger)} == {"Deploy"}


def test_a_renewal_that_gains_the_paths_of_a_lapsed_lease_displaces_it() -> None:
    ledger = holding(lease(resource="src/", ttl=60), lease(resource="F002", holder=KIM))
    ledger, _ = step(ledger, claim(KIM, "F002", paths=("src/a.py",)), when=moment(60 + SKEW + 1))
    assert [str(x.resource) for x in leases_in(ledger)] == ["F002"]
    assert [n.what for n in ledger.notices(JO.holder)] == ["taken_over"]


# --- renewing ------------------------------------------------------------------------------------


def test_renewing_counts_from_now_with_the_leases_own_ttl() -> None:
    """Which a renewal may set for the next time, and extending leaves as it is."""
    ledger, _ = step(holding(lease(ttl=60)), renew(JO), when=moment(50))
    renewed = only(ledger)
    assert renewed.renewed_at == at(50).wall_ms
    assert renewed.expires_at == at(110).wall_ms
    assert (renewed.renewals, renewed.claimed_at) == (1, NOON)
    ledger, _ = step(ledger, renew(JO, ttl=300), when=moment(51))
    ledger, _ = step(ledger, extend(JO, 600), when=moment(52))
    ledger, _ = step(ledger, renew(JO), when=moment(500))
    assert only(ledger).expires_at == at(800).wall_ms


def test_renewing_never_shortens() -> None:
    ledger, _ = step(holding(lease(ttl=60)), extend(JO, 3_600), when=moment(1))
    for again in (renew(JO), renew(JO, ttl=10), claim(JO), claim(JO, ttl=10), extend(JO, 10)):
        ledger, _ = step(ledger, again, when=moment(2))
        assert only(ledger).expires_at == at(3_601).wall_ms


@pytest.mark.parametrize("again", [renew(JO), claim(JO), extend(JO, 60)])
def test_a_clock_set_back_gives_a_lease_no_more_than_the_policy_does(again: Operation) -> None:
    """Everybody else waits for the duration: two hours of it would keep them out for two hours."""
    short = Policy(ttl_max=600)
    seen = Sighting(at=at(0), changed=True)
    set_back = Moment(now=at(-7_200, boot=30), seen=lambda _: seen)
    ledger, _ = step(holding(lease(ttl=60), policy=short), again, when=set_back)
    assert only(ledger).duration_ms == 600 * MS


@pytest.mark.parametrize("heartbeat", [renew, claim])
def test_a_policy_that_became_shorter_takes_nothing_from_what_was_granted(heartbeat: Any) -> None:
    """It binds later writes: no heartbeat exceeds it."""
    ledger, _ = step(holding(lease(ttl=3_600)), set_policy(JO, ttl_max="10m"), when=moment(1))
    ledger, _ = step(ledger, heartbeat(JO), when=moment(10))
    assert only(ledger).expires_at == at(3_600).wall_ms
    assert code(ledger, claim(KIM), moment(1_000)) == "held"
    ledger, _ = step(ledger, heartbeat(JO), when=moment(3_500))
    assert only(ledger).expires_at == at(4_100).wall_ms


def test_a_renewal_is_a_heartbeat_and_a_claim_that_says_more_is_not() -> None:
    ledger = holding(lease())
    bound = replace(JO, session="agent", session_explicit=True)
    quiet: Sequence[Operation] = (renew(JO), claim(JO), renew(JO, None))
    loud: Sequence[Operation] = (
        claim(JO, reason="more"),
        claim(JO, paths=("src/",)),
        renew(bound),
        extend(JO, 60),
        release(JO),
    )
    assert all(apply(ledger, [op], moment(LIVE)).only_renews for op in quiet)
    assert not any(apply(ledger, [op], moment(LIVE)).only_renews for op in loud)


def test_renewing_all_tells_what_was_lost_and_renews_the_rest() -> None:
    ledger = holding(lease(ttl=60), lease(resource="F002"))
    _, outcome = step(ledger, renew(JO, None), when=moment(100))
    assert [str(x.resource) for x in outcome.leases] == ["F002"]
    assert [r.resource for r in outcome.refused] == ["F001"]
    assert code(holding(lease(ttl=60)), renew(JO, None), moment(100)) == "lost"
    assert not apply(empty(), [renew(JO, None)], moment()).changed


# --- extending -----------------------------------------------------------------------------------


def test_extending_is_capped_and_says_so() -> None:
    ledger, outcome = step(holding(lease()), extend(JO, 86_400), when=moment(LIVE))
    assert outcome.capped_to_max
    assert only(ledger).expires_at == at(LIVE + 8 * 3_600).wall_ms
    _, outcome = step(ledger, extend(JO, 8 * 3_600), when=moment(LIVE + 1))
    assert not outcome.capped_to_max


# --- ending --------------------------------------------------------------------------------------


def test_releasing_twice_is_as_good_as_once() -> None:
    ledger, outcome = step(holding(lease()), release(JO), when=moment(LIVE))
    assert outcome.leases[0].state is State.RELEASED
    again = apply(ledger, [release(JO)], moment(LIVE))
    assert not again.changed
    assert again.outcomes[0].status == "released"


def test_notes_stay_over_claims_until_the_task_is_done() -> None:
    """They are bounded, and the newest stay."""
    ledger, _ = step(empty(), claim(JO), when=moment())
    ledger, _ = step(ledger, release(JO, note="tests red"), when=moment(LIVE))
    (left,) = ledger.notes(F001)
    assert (left.author, left.text, left.at) == (JO.holder, "tests red", at(LIVE).wall_ms)
    for operation in (claim(JO), renew(JO), release(JO), claim(JO)):
        ledger, _ = step(ledger, operation, when=moment())
        assert len(ledger.notes(F001)) == 1
    for number in range(NOTES_KEPT + 5):
        ledger, _ = step(ledger, note(KIM, str(number)), when=moment())
    assert [n.text for n in ledger.notes(F001)] == [str(n) for n in range(5, NOTES_KEPT + 5)]
    ledger, _ = step(ledger, complete(JO), when=moment())
    assert ledger.notes(F001) == ()


# --- notices -------------------------------------------------------------------------------------


def test_notices_are_bounded_and_the_newest_stay() -> None:
    """Only one's own can be acknowledged, and nobody is told of taking over from oneself."""
    ledger = empty()
    for number in range(NOTICES_KEPT + 5):
        when = moment(number * LAPSED)
        ledger, _ = step(ledger, claim(JO, f"F{number}"), when=when)
        ledger, _ = step(ledger, claim(KIM, f"F{number}"), when=moment((number + 1) * LAPSED))
    left = ledger.notices(JO.holder)
    assert [n.resource for n in left] == [f"F{n}" for n in range(5, NOTICES_KEPT + 5)]
    heard = Acknowledge(id=fresh(), actor=KIM, notices=(left[0].id,))
    assert not apply(ledger, [heard], when).changed
    ledger, _ = step(ledger, replace(heard, actor=JO), when=when)
    assert ledger.notices(JO.holder) == left[1:]
    ledger, outcome = step(holding(lease()), claim(AGENT), when=moment(LAPSED))
    assert (outcome.status, ledger.notices(JO.holder)) == ("claimed", ())


# --- policy --------------------------------------------------------------------------------------


def test_anyone_sets_the_policy_until_there_are_admins() -> None:
    ledger, _ = step(empty(), set_policy(JO, ttl_max="1h"), when=moment())
    ledger, _ = step(
        ledger, set_policy(KIM, admins="kim@example.com, lee@example.com"), when=moment()
    )
    assert code(ledger, set_policy(JO, ttl_max="2h"), moment()) == "policy"
    ledger, _ = step(ledger, set_policy(Actor("LEE@example.com"), ttl_max="2h"), when=moment())
    assert ledger.header.policy.ttl_max == 7_200
    assert code(ledger, set_policy(KIM, admins="lee@example.com"), moment()) == "policy"


@pytest.mark.parametrize("text", ["", "none", "none lee@example.com", " , "])
def test_admins_are_given_up_only_by_an_admin_who_confirms_it(text: str) -> None:
    ledger, _ = step(empty(), set_policy(KIM, admins="kim@example.com"), when=moment())
    with pytest.raises(PolicyRefused) as refused:
        apply(ledger, [set_policy(KIM, admins=text)], moment())
    check_words(refused.value.hints[0])
    assert code(ledger, set_policy(JO, admins="none jo@example.com"), moment()) == "policy"
    ledger, _ = step(ledger, set_policy(KIM, admins="none KIM@example.com"), when=moment())
    assert ledger.header.policy.admins == ()


# --- the audit trail -----------------------------------------------------------------------------


def test_every_move_leaves_a_line_of_the_audit_trail() -> None:
    """In the spelling that is stored; what is resumed has not lapsed."""
    ledger = holding(lease(ttl=60))
    wish = claim(KIM, "f001", reason="urgent")
    taken, displaced = apply(ledger, [wish], moment(60 + SKEW + 1)).events
    assert (taken.kind, taken.by, taken.holder) == ("taken_over", KIM.holder, KIM.holder)
    assert (displaced.kind, displaced.by, displaced.holder) == ("displaced", KIM.holder, JO.holder)
    assert (taken.resource, taken.reason, taken.token) == ("F001", "urgent", 2)
    assert displaced.token == 1
    parked = holding(replace(lease(), parked=True))
    (event,) = apply(parked, [claim(JO)], moment(LIVE)).events
    assert event.kind == "claimed"


@pytest.mark.parametrize("when", [61, 60 + SKEW + 1])
def test_ones_own_that_ran_out_leave_a_line_when_a_claim_drops_them(when: float) -> None:
    own = (
        lease(resource="src/a.py", ttl=60),
        replace(lease(resource="src/b.py", ttl=60), reason="tests", parked=True),
        lease(resource="src/c.py", ttl=60, holder=AGENT),
    )
    ledger, outcome = step(
        holding(*own, lease(resource="src/d.py")), claim(AGENT, "src/"), when=moment(when)
    )
    assert [str(x.resource) for x in leases_in(ledger)] == ["path:src", "src/d.py"]
    assert (outcome.status, outcome.displaced) == ("claimed", ())
    claimed, *lapsed = outcome.events
    assert [(e.kind, e.by, e.holder) for e in lapsed] == [("lapsed", JO.holder, JO.holder)] * 3
    assert [(e.resource, e.token, e.session, e.reason) for e in lapsed] == [
        ("src/a.py", 1, None, None),
        ("src/b.py", 2, None, "tests"),
        ("src/c.py", 3, AGENT.session, None),
    ]
    assert claimed.kind == "claimed"
    assert {ending(outcome.events, token) for token in (1, 2, 3)} == {(Loss.EXPIRED, JO.holder)}
    assert ledger.notices(JO.holder) == ()


def test_what_a_step_has_run_out_it_may_claim_as_a_part_of_the_whole() -> None:
    """What an operation reports may be gone by a later one of the same person, in one step."""
    ledger = holding(lease(scope="docs", edge=True))
    (mine,) = leases_in(ledger)
    over = RunOut(id=fresh(), actor=JO, grants=(grant_of(mine),))
    ledger, outcome = step(ledger, over, claim(JO), when=moment(1))
    assert ([x.scope for x in leases_in(ledger)], outcome.status) == (["*"], "run_out")


# --- work that was finished in parts ----------------------------------------------------------


@pytest.mark.parametrize("scope", ["*", "x", "z"])
def test_what_was_finished_part_by_part_is_finished(scope: str) -> None:
    ledger = empty()
    for verb in (claim, complete):
        for part in ("x", "y"):
            ledger, _ = step(ledger, verb(JO, scope=part), when=moment(1))
    assert code(ledger, claim(KIM, scope=scope), moment(2)) == "policy"
    again, _ = step(ledger, claim(KIM, scope=scope, reopen=True), when=moment(2))
    left = {x.scope for x in again.leases_of(parse_resource("F001")) if x.state is State.COMPLETED}
    assert left == ({"x", "y"} - {scope} if scope != "*" else set())


def test_a_part_is_not_the_whole_while_another_is_open_or_alone() -> None:
    ledger, _ = step(empty(), claim(JO, scope="x"), when=moment(0))
    ledger, _ = step(ledger, complete(JO, scope="x"), when=moment(1))
    ledger, _ = step(ledger, claim(KIM, scope="z"), when=moment(2))
    ledger, _ = step(ledger, claim(JO, scope="y"), when=moment(2))
    ledger, _ = step(ledger, complete(JO, scope="y"), when=moment(3))
    step(ledger, claim(JO, scope="w"), when=moment(4))
