"""Whose time is up: the rules of time, for holders and contenders, under every kind of clock."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kernel.rules.values import (
    JO,
    NOON,
    TTL,
    at,
    claim,
    empty,
    lease,
    leases_in,
    moment,
    renew,
    step,
)

from gitlease.kernel.rules.instant import MS, Instant
from gitlease.kernel.rules.lease import (
    DEFAULT_POLICY,
    Lease,
    Margins,
    Moment,
    Policy,
    Rule,
    Sighting,
    Standing,
    clock_skewed,
    free_at,
    holder_has,
    standing,
)

WALL = DEFAULT_POLICY
OBSERVED = Policy(rule=Rule.OBSERVED)
SEEN_AT_ONCE = Sighting(at=at(0), changed=False)


def observed_lease() -> Lease:
    return lease(margins=OBSERVED.margins)


# --- the holder ----------------------------------------------------------------------------------


def test_a_holder_counts_by_the_larger_of_its_clocks() -> None:
    assert holder_has(lease(), moment(TTL - 0.001))
    assert not holder_has(lease(), moment(TTL))
    seen = Sighting(at=at(0), changed=True)
    for now in (at(100, boot=TTL), at(TTL, boot=100), at(-3_600, boot=TTL)):
        assert not holder_has(lease(), Moment(now=now, seen=lambda _: seen))
    assert holder_has(lease(), Moment(now=at(TTL - 1, boot=TTL - 1), seen=lambda _: seen))


def test_after_a_reboot_a_holder_has_only_its_wall_clock() -> None:
    seen = Sighting(at=at(0), changed=True)
    for seconds, has in ((TTL - 1, True), (TTL, False)):
        now = at(seconds, boot=1, boot_id="boot-2")
        assert holder_has(lease(), Moment(now=now, seen=lambda _: seen)) is has


# --- a contender, rule wall ----------------------------------------------------------------------


def stands(
    record: Lease, seconds: float, seen: Sighting | None = None, policy: Policy = WALL
) -> Standing:
    return standing(record, policy, moment(seconds, seen))


def test_a_lease_is_live_then_expired_then_lapsed() -> None:
    found = [stands(lease(), s).name for s in (0, TTL - 1, TTL, TTL + 60, TTL + 60.001)]
    assert found == ["LIVE", "LIVE", "EXPIRED", "EXPIRED", "LAPSED"]
    assert stands(lease(), TTL + 61, Sighting(at(TTL + 60), changed=False)) is Standing.LAPSED


def test_a_record_seen_to_change_is_given_its_duration_from_then() -> None:
    late = Sighting(at=at(500), changed=True)
    assert stands(lease(), TTL + 61, late) is Standing.EXPIRED
    assert stands(lease(), 500 + TTL, late) is Standing.EXPIRED
    assert stands(lease(), 500 + TTL + 0.001, late) is Standing.LAPSED


def test_a_change_is_waited_for_by_the_smaller_clock() -> None:
    seen = Sighting(at=at(0), changed=True)
    jumped = Moment(now=at(86_400, boot=TTL - 1), seen=lambda _: seen)
    assert standing(lease(), WALL, jumped) is not Standing.LAPSED
    stopped = Moment(now=at(86_400, boot=TTL), seen=lambda _: seen)
    assert standing(lease(), WALL, stopped) is Standing.LAPSED


# --- a contender, rule observed ------------------------------------------------------------------


def test_observed_counts_from_the_first_sighting() -> None:
    enough = TTL * 1.01 + 5
    first = Sighting(at=at(1_000), changed=False)
    for record in (observed_lease(), lease()):
        assert stands(record, 1_000 + enough, first, OBSERVED) is not Standing.LAPSED
        assert stands(record, 1_000 + enough + 0.001, first, OBSERVED) is Standing.LAPSED


def test_a_sighting_of_another_boot_counts_for_nothing() -> None:
    """Observed time is that of the smaller clock, and what was never seen is seen now."""
    enough = TTL * 1.01 + 4.999
    another = at(10**6, boot=10**6, boot_id="boot-2")
    for now in (at(86_400, boot=enough), at(enough, boot=86_400), another):
        there = Moment(now=now, seen=lambda _: SEEN_AT_ONCE)
        assert standing(observed_lease(), OBSERVED, there) is not Standing.LAPSED
    assert stands(observed_lease(), 10**6, None, OBSERVED) is not Standing.LAPSED


def test_a_lease_ended_at_once_lapses_without_grace() -> None:
    strict = Policy(rule=Rule.OBSERVED, grace=0)
    over = replace(lease(margins=strict.margins), expires_at=lease().renewed_at)
    assert stands(over, 1, SEEN_AT_ONCE, strict) is Standing.LAPSED
    assert free_at(over, strict, moment(1, SEEN_AT_ONCE)) == at(0).wall_ms


# --- margins -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_policy", "of_record", "skew"), [(60, 60, 60), (0, 60, 60), (600, 60, 600), (0, 0, 0)]
)
def test_a_contender_uses_the_larger_margin(of_policy: int, of_record: int, skew: int) -> None:
    policy, record = Policy(skew=of_policy), lease(margins=Margins(skew=of_record))
    assert stands(record, TTL + skew, None, policy) is not Standing.LAPSED
    assert stands(record, TTL + skew + 0.001, None, policy) is Standing.LAPSED


def test_drift_and_grace_are_the_larger_ones_too() -> None:
    record = lease(margins=Margins(drift=100_000, grace=1, rule=Rule.OBSERVED))
    policy = Policy(drift=0, grace=100, rule=Rule.OBSERVED)
    enough = TTL * 1.1 + 100
    assert stands(record, enough, SEEN_AT_ONCE, policy) is not Standing.LAPSED
    assert stands(record, enough + 0.001, SEEN_AT_ONCE, policy) is Standing.LAPSED


@pytest.mark.parametrize("policy", [WALL, OBSERVED])
def test_both_rules_must_agree_where_policy_and_record_differ(policy: Policy) -> None:
    other = OBSERVED if policy is WALL else WALL
    record = lease(margins=other.margins)
    assert stands(record, TTL + 61, Sighting(at(TTL), changed=False), policy) is not Standing.LAPSED
    assert stands(record, TTL + 30, SEEN_AT_ONCE, policy) is not Standing.LAPSED
    assert stands(record, TTL + 61, SEEN_AT_ONCE, policy) is Standing.LAPSED


def test_a_renewal_under_observed_stays_observed() -> None:
    ledger, _ = step(empty(), claim(JO), when=moment())
    ledger = ledger.with_header(replace(ledger.header, policy=OBSERVED))
    ledger, _ = step(ledger, renew(JO), when=moment(10))
    (renewed,) = leases_in(ledger)
    assert renewed.margins.rule is Rule.OBSERVED
    seen = Sighting(at(10**6 - 1), changed=False)
    assert stands(renewed, 10**6, seen, WALL) is not Standing.LAPSED


# --- wrong clocks --------------------------------------------------------------------------------


def test_a_record_from_the_future_is_judged_by_observation() -> None:
    """From beyond the allowance, that is."""
    assert not clock_skewed(lease(since=60), WALL, moment(0))
    assert clock_skewed(lease(since=60.001), WALL, moment(0))
    future = lease(since=86_400)
    assert stands(future, TTL * 1.01 + 5, SEEN_AT_ONCE) is not Standing.LAPSED
    assert stands(future, TTL * 1.01 + 5.001, SEEN_AT_ONCE) is Standing.LAPSED


def test_a_duration_from_the_future_is_clamped_to_the_maximum() -> None:
    forged = replace(lease(since=86_400), expires_at=NOON + 10**12)
    enough = WALL.ttl_max * 1.01 + 5
    assert stands(forged, enough, SEEN_AT_ONCE) is not Standing.LAPSED
    assert stands(forged, enough + 0.001, SEEN_AT_ONCE) is Standing.LAPSED


def test_a_new_policy_never_shortens_by_calling_a_record_skewed() -> None:
    granted = lease(ttl=8 * 3_600, since=30)  # by a holder whose clock is 30 s ahead
    policy = Policy(skew=0, ttl_max=600)
    for seconds in (700, 3_600, 8 * 3_600):
        assert stands(granted, seconds, SEEN_AT_ONCE, policy) is not Standing.LAPSED


# --- when it is free -----------------------------------------------------------------------------

durations = st.integers(10, 8 * 3_600)
sightings = st.builds(
    lambda seconds, changed: Sighting(at(seconds), changed=changed),
    st.integers(-3_600, 3_600),
    st.booleans(),
)


@given(
    ttl=durations,
    since=st.integers(-3_600, 3_600),
    seen=sightings,
    policy=st.sampled_from([WALL, OBSERVED, Policy(skew=0, grace=0, drift=0)]),
)
def test_free_at_is_when_it_lapses(ttl: int, since: int, seen: Sighting, policy: Policy) -> None:
    record = lease(ttl=ttl, since=since)
    when = free_at(record, policy, moment(3_600, seen)) - NOON
    if clock_skewed(record, policy, moment(3_600, seen)) or when < 3_600 * MS:
        return
    assert standing(record, policy, moment(when / MS, seen)) is not Standing.LAPSED
    assert standing(record, policy, moment((when + 1) / MS, seen)) is Standing.LAPSED


# --- S3: never both ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clocks:
    """One machine's clocks as functions of true time in milliseconds."""

    offset: int
    wall_rate: float
    boot_rate: float
    booted: int

    def at(self, true: float) -> Instant:
        return Instant(
            wall_ms=NOON + round(true * self.wall_rate) + self.offset,
            boot_ms=round((true + self.booted) * self.boot_rate),
            boot_id=str(self.booted),
        )


def clocks(offset_ms: int, rate: float) -> st.SearchStrategy[Clocks]:
    rates = st.floats(1 - rate, 1 + rate, allow_nan=False)
    return st.builds(
        Clocks,
        offset=st.integers(-offset_ms, offset_ms),
        wall_rate=rates,
        boot_rate=rates,
        booted=st.integers(1, 10**9),
    )


true_times = st.integers(0, 40_000 * MS)


def never_both(
    holder: Clocks,
    other: Clocks,
    ttl: int,
    first_seen: int,
    now: int,
    changed: bool,
    policy: Policy,
) -> None:
    """A lease written at true time 0, seen by another when it says: not held and lapsed at once."""
    start = holder.at(0)
    record = replace(
        lease(ttl=ttl, margins=policy.margins),
        claimed_at=start.wall_ms,
        renewed_at=start.wall_ms,
        expires_at=start.wall_ms + ttl * MS,
    )
    mine = Moment(now=holder.at(now), seen=lambda _: Sighting(start, changed=True))
    seen = Sighting(other.at(min(first_seen, now)), changed=changed)
    theirs = Moment(now=other.at(now), seen=lambda _: seen)
    believes = holder_has(record, mine)
    assert not (believes and standing(record, policy, theirs) is Standing.LAPSED)


# For eight hours: a skew of 60 s between the two, of which clock rates take their share.
@given(
    holder=clocks(25_000, 0.0001),
    other=clocks(25_000, 0.0001),
    ttl=durations,
    first_seen=true_times,
    now=true_times,
    changed=st.booleans(),
)
@example(
    holder=Clocks(-25_000, 1.0, 1.0, 1),
    other=Clocks(25_000, 1.0, 1.0, 1),
    ttl=60,
    first_seen=0,
    now=84_999,
    changed=False,
)
def test_holder_and_contender_never_both_have_it_by_the_wall(
    holder: Clocks, other: Clocks, ttl: int, first_seen: int, now: int, changed: bool
) -> None:
    never_both(holder, other, ttl, first_seen, now, changed, WALL)


@given(
    holder=clocks(10**9, 0.0049),
    other=clocks(10**9, 0.0049),
    ttl=durations,
    first_seen=true_times,
    now=true_times,
    changed=st.booleans(),
)
def test_holder_and_contender_never_both_have_it_by_observation(
    holder: Clocks, other: Clocks, ttl: int, first_seen: int, now: int, changed: bool
) -> None:
    never_both(holder, other, ttl, first_seen, now, changed, OBSERVED)


@given(
    holder=clocks(10**9, 0.0049),
    other=clocks(25_000, 0.0049),
    ttl=durations,
    first_seen=true_times,
    now=true_times,
)
def test_a_holder_from_the_future_is_safe_under_the_wall_rule_too(
    holder: Clocks, other: Clocks, ttl: int, first_seen: int, now: int
) -> None:
    ahead = replace(holder, offset=abs(holder.offset) + 200_000)
    never_both(ahead, other, ttl, first_seen, now, False, WALL)


@given(
    holder=clocks(10**9, 0.0049),
    other=clocks(10**9, 0.0049),
    ttl=durations,
    now=true_times,
)
def test_whoever_saw_the_change_is_safe_with_any_clock(
    holder: Clocks, other: Clocks, ttl: int, now: int
) -> None:
    policy = Policy(drift=0, grace=0)
    quick, slow = replace(holder, boot_rate=1.0, wall_rate=1.0), replace(other, boot_rate=1.0)
    never_both(quick, slow, ttl, 0, now, True, policy)
