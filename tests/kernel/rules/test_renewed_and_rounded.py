"""What a renewal keeps, parts in other letters, and which way the end of a lease is rounded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel.rules.values import (
    JO,
    KIM,
    NOON,
    SKEW,
    TTL,
    claim,
    code,
    complete,
    empty,
    holding,
    lease,
    leases_in,
    moment,
    only,
    renew,
    revoke,
    set_policy,
    step,
)

from gitlease.kernel.rules.errors import LeaseHeld
from gitlease.kernel.rules.instant import rfc3339
from gitlease.kernel.rules.lease import Margins, Moment, Policy, Rule, abandoned_at
from gitlease.kernel.rules.lease_view import view_lease
from gitlease.kernel.rules.moves.transitions import apply

WIDE = Margins(skew=601, drift=100_001, grace=51, rule=Rule.OBSERVED)
NARROW = Margins(skew=0, drift=0, grace=0)


@pytest.mark.parametrize("name", ["skew", "drift", "grace", "rule"])
@pytest.mark.parametrize("of_record", [True, False])
def test_a_renewal_keeps_the_larger_of_each_margin(name: str, *, of_record: bool) -> None:
    """Whoever saw the record before waits by what it said then."""
    wide = replace(NARROW, **{name: getattr(WIDE, name)})
    record, policy = (wide, NARROW) if of_record else (NARROW, wide)
    held = holding(
        lease(margins=record),
        policy=Policy(skew=policy.skew, drift=policy.drift, grace=policy.grace, rule=policy.rule),
    )
    ledger, _ = step(held, renew(JO), when=moment(10))
    assert only(ledger).margins == wide


@pytest.mark.parametrize("other", ["FRONT", "front", "FrOnT"])
def test_a_finished_part_is_finished_in_any_letters(other: str) -> None:
    ledger, _ = step(empty(), claim(JO, scope="Front"), when=moment())
    ledger, first = step(ledger, complete(JO, scope=other), when=moment(10))
    assert code(ledger, claim(KIM, scope=other), moment(20)) == "policy"
    again = apply(ledger, [complete(KIM, scope=other)], moment(20))
    assert not again.changed
    assert again.outcomes[0].leases == first.leases
    assert code(ledger, claim(KIM, scope="back"), moment(20)) == "claimed"
    assert len(leases_in(ledger)) == 1


def test_a_part_is_revoked_in_any_letters() -> None:
    ledger, _ = step(empty(), set_policy(JO, admins=JO.holder), when=moment())
    ledger, _ = step(ledger, claim(KIM, scope="Front"), when=moment())
    ledger, revoked = step(ledger, revoke(JO, scope="fronT"), when=moment(10))
    assert [x.scope for x in revoked.leases] == ["Front"]
    assert leases_in(ledger) == []


def test_nobody_is_told_to_come_back_too_early() -> None:
    """Rounded down, it would be a time at which the task is not abandoned yet."""
    record = lease(edge=True, since=0.001)
    with pytest.raises(LeaseHeld) as refused:
        apply(holding(record), [claim(KIM)], moment(TTL + SKEW + 1))
    [told] = [str(x) for x in refused.value.hints]
    ends = abandoned_at(record, Policy())
    assert ends is not None
    assert ends % 1_000 == 1
    assert told == f"after {rfc3339(ends + 999)} anyone may claim it"


@pytest.mark.parametrize(("ms", "left"), [(0, 60), (1, 59), (999, 59), (60_001, -1)])
def test_what_is_left_of_a_lease_is_rounded_down(ms: int, left: int) -> None:
    """Nobody relies on a second that is not whole."""
    now = replace(moment().now, wall_ms=NOON + ms)
    when = Moment(now=now, seen=lambda _: None)
    view = view_lease(lease(ttl=60), layer="global", actor=JO, policy=Policy(), moment=when)
    assert view.expires_in == left
