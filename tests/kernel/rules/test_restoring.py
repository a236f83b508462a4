"""A ledger that is put back after its ref was deleted: its epoch, its wait, and what goes on."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from kernel.rules.values import (
    JO,
    KIM,
    SKEW,
    as_stored,
    at,
    claim,
    code,
    complete,
    extend,
    fresh,
    holding,
    lease,
    moment,
    picture,
    release,
    renew,
    set_policy,
    step,
)

from gitlease.kernel.rules.errors import PolicyRefused
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import DEFAULT_POLICY, Lease, Policy
from gitlease.kernel.rules.ledger import Ledger
from gitlease.kernel.rules.moves.operations import EndWait, Operation, PutBack, Restore
from gitlease.kernel.rules.moves.transitions import Illegal, Pusher, apply, decide, judge

pytestmark = pytest.mark.default

DAY = 86_400
WAIT = DAY + DAY // 100 + 5 + SKEW  # a day, the drift of that, grace and skew
SOME = Pusher(None, "somebody")


def restores(who: object = JO, above: int = 0) -> Restore:
    return Restore(id=fresh(), actor=who, above=above, waits=True)  # type: ignore[arg-type]


def restored(*leases: Lease, policy: Policy = DEFAULT_POLICY, when: float = 0) -> Ledger:
    ledger, _ = step(holding(*leases, policy=policy), restores(), when=moment(when))
    return ledger


def back(*leases: Lease, who: object = KIM) -> PutBack:
    return PutBack(id=fresh(), actor=who, leases=leases)  # type: ignore[arg-type]


def seen(token: int, **more: object) -> Lease:
    """A lease of Kim's from what the restored ledger lacks."""
    return replace(lease(**{"holder": KIM, "resource": "F002", "since": -60, **more}), token=token)  # type: ignore[arg-type]


def test_nothing_new_is_granted_before_every_lease_has_lapsed() -> None:
    """S2: whatever was granted in the past that is lost, under any policy."""
    ledger = restored(lease(resource="done-soon", ttl=10))
    for when in (0, WAIT - 1, WAIT - 0.001):
        assert code(ledger, claim(KIM, "F009"), moment(when)) == "policy"
        assert code(ledger, claim(KIM, "done-soon"), moment(when)) in ("policy", "held")
        assert code(ledger, complete(KIM, "F009"), moment(when)) == "policy"
    assert code(ledger, claim(KIM, "F009"), moment(WAIT)) == "claimed"


def test_a_longer_maximum_of_an_older_version_makes_a_longer_wait() -> None:
    """S2: such a ledger is read as it is."""
    longer = replace(DEFAULT_POLICY, ttl_max=3 * DAY)
    ledger = restored(policy=longer)
    assert code(ledger, claim(KIM), moment(3 * DAY)) == "policy"
    assert code(ledger, claim(KIM), moment(3 * WAIT)) == "claimed"


def test_whoever_holds_a_lease_goes_on() -> None:
    own = lease()
    ledger = restored(own)
    assert code(ledger, claim(JO), moment(60)) == "renewed"
    assert code(ledger, renew(JO), moment(60)) == "renewed"
    assert code(ledger, extend(JO, 3_600), moment(60)) == "extended"
    assert code(ledger, complete(JO), moment(60)) == "completed"
    assert code(ledger, release(JO), moment(60)) == "released"
    assert code(ledger, replace(claim(JO), paths=("src/**",)), moment(60)) == "policy"


def test_the_epoch_of_a_restoration_is_that_of_no_other() -> None:
    """S4: neither that of one that knew nothing of it, nor any that this clone knows."""
    tokens = [restored(when=when).header.token for when in (-DAY, -0.001, 0, 0.001, 60, DAY)]
    assert tokens == sorted(set(tokens))
    assert all(b - a >= 10_000 for a, b in pairwise(tokens))
    assert tokens[-1] < 2**53, "as exact in JSON as anywhere"
    above = tokens[-1] + 5
    ledger, _ = step(holding(), restores(above=above), when=moment())
    assert ledger.header.token > above
    again, _ = step(ledger, restores(), when=moment(-3_600))
    assert again.header.epoch > ledger.header.epoch


def test_one_number_does_not_use_up_the_epochs() -> None:
    assert code(holding(), restores(above=99_999 * 10**12), moment()) == "invalid"


def test_an_admin_alone_restores_and_ends_the_wait() -> None:
    ruled = replace(DEFAULT_POLICY, admins=(JO.holder,))
    ledger = holding(policy=ruled)
    assert code(ledger, restores(KIM), moment()) == "policy"
    ledger = restored(policy=ruled)
    assert code(ledger, EndWait(id=fresh(), actor=KIM), moment(1)) == "policy"
    ledger, ended = step(ledger, EndWait(id=fresh(), actor=JO), when=moment(1))
    assert [(x.kind, x.by) for x in ended.events] == [("wait_ended", JO.holder)]
    assert code(ledger, claim(KIM), moment(1)) == "claimed"


def test_a_clone_puts_back_what_is_left_of_its_grant() -> None:
    """S3: a holder counts on no more time than was granted before."""
    mine = seen(7)
    ledger, outcome = step(restored(), back(mine), when=moment(120))
    (put,) = outcome.leases
    assert (put.token, put.lease_id, put.claimed_at) == (7, mine.lease_id, mine.claimed_at)
    assert (put.renewed_at, put.expires_at) == (at(120).wall_ms, mine.expires_at)
    assert code(ledger, renew(KIM, "F002"), moment(130)) == "renewed"
    assert code(ledger, claim(JO, "F002"), moment(130)) == "held"


def test_a_later_renewal_of_a_lease_is_put_back() -> None:
    """L3: the state that was put back may be older than the lease's last renewal."""
    old = lease(holder=KIM, since=-3_600)
    later = replace(
        old, token=1, renewals=4, renewed_at=at(-60).wall_ms, expires_at=at(840).wall_ms
    )
    ledger = restored(old)
    assert code(ledger, renew(KIM), moment()) == "lost"
    ledger, _ = step(ledger, back(later), when=moment())
    assert code(ledger, renew(KIM), moment()) == "renewed"
    assert code(ledger, back(later), moment()) == "lost", "only once"


@pytest.mark.parametrize(
    ("lost", "refused"),
    [
        ({"holder": JO}, "held"),
        ({"resource": "F001"}, "held"),
        ({"paths": ("src/api/**",)}, "held"),
        ({"ttl": 3 * DAY}, "invalid"),
        ({"ttl": 30}, "lost"),
        ({"since": 600}, "invalid"),
    ],
)
def test_only_a_possible_lease_of_ones_own_that_conflicts_with_nothing_is_put_back(
    lost: dict[str, object], refused: str
) -> None:
    """S2 and S7."""
    ledger = restored(lease(), lease(resource="F003", paths=("src/**",)))
    assert code(ledger, back(seen(7, **lost)), moment()) == refused


def test_no_token_or_id_is_put_back_twice() -> None:
    """S4."""
    taken = lease(resource="F003", holder=KIM)
    ledger = restored(taken)
    assert code(ledger, back(seen(1)), moment()) == "invalid"
    assert code(ledger, back(replace(seen(8), lease_id=taken.lease_id)), moment()) == "invalid"
    assert code(ledger, back(seen(ledger.header.token)), moment()) == "invalid"


def test_nothing_is_put_back_without_a_wait() -> None:
    """S2: a lease that was not granted is none."""
    assert code(holding(), back(seen(7)), moment()) == "policy"
    assert code(restored(when=-WAIT), back(seen(7)), moment()) == "policy"


def test_a_ledger_takes_no_longer_maximum_than_a_day() -> None:
    """S2: the wait is as long as any lease; what an older version allowed is repeated."""
    free = holding()
    longer = set_policy(JO, ttl_max="2d")
    assert code(free, longer, moment()) == "policy_changed"
    made = decide(free, [longer], moment())
    with pytest.raises(Illegal) as refused:
        judge(free, made.record, pusher=SOME, now_ms=at().wall_ms)
    assert refused.value.rule == "policy"
    day = decide(free, [set_policy(JO, ttl_max="24h")], moment())
    judge(free, day.record, pusher=SOME, now_ms=at().wall_ms)


@pytest.mark.parametrize("forged", ["grant", "early"])
def test_no_server_takes_a_grant_during_the_wait(forged: str) -> None:
    """S2: neither as it is, nor with the time of its end written into it."""
    ledger = restored()
    asked: Operation = claim(KIM, "F009")
    made = decide(holding(), [asked], moment(WAIT + 1 if forged == "early" else 1))
    with pytest.raises(Illegal):
        judge(ledger, made.record, pusher=SOME, now_ms=at(1).wall_ms)


def test_every_move_is_repeated_by_what_its_commit_says() -> None:
    ledger = holding(policy=replace(DEFAULT_POLICY, admins=(JO.holder,)))
    for operation in (restores(), back(seen(7)), EndWait(id=fresh(), actor=JO)):
        made = decide(ledger, [operation], moment(1))
        again = judge(ledger, made.record, pusher=SOME, now_ms=at(1).wall_ms)
        assert again.ledger.header == made.applied.ledger.header
        assert picture(again.ledger) == picture(made.applied.ledger)
        ledger = as_stored(made.applied.ledger)


def test_the_refusal_says_when_the_wait_ends_and_prints_no_way_around_it() -> None:
    with pytest.raises(PolicyRefused) as refused:
        apply(restored(), [claim(KIM, "F009")], moment(1))
    assert "until 2026-11-21T12:15:29Z" in refused.value.message
    assert not any("--now" in str(hint) for hint in refused.value.hints)
    assert WAIT * MS == 87_329_000
