"""The arithmetic of a remote's pace: medians, and a rate in which older changes count for less."""

from __future__ import annotations

import math

import pytest

from gitlease.kernel.rules.pace import LONGEST_SAMPLE, RemotePace, reads_first

UNKNOWN = RemotePace()


def test_nothing_is_known_at_first() -> None:
    assert (UNKNOWN.push, UNKNOWN.read, UNKNOWN.rate) == (0.0, 0.0, 0.0)


def test_the_median_of_the_last_five_counts() -> None:
    pace = UNKNOWN
    for took in (9_000, 1_200, 1_100, 8_000, 1_300, 1_250):
        pace = pace.after(push=took)
    assert pace.pushes == (1_200, 1_100, 8_000, 1_300, 1_250)
    assert (pace.push, pace.read) == (1.25, 0.0)
    assert UNKNOWN.after(read=500).read == 0.5


def test_what_took_no_time_or_very_long_is_no_measurement() -> None:
    assert UNKNOWN.after(push=0, read=0) == UNKNOWN
    # The machine was suspended meanwhile.
    assert UNKNOWN.after(read=3_600_000).reads == (LONGEST_SAMPLE,)


def test_the_rate_of_changes_is_that_of_the_time_watched() -> None:
    assert UNKNOWN.after(others=1, elapsed=0).rate == pytest.approx(0.1)
    pace = UNKNOWN
    for _ in range(12):
        pace = pace.after(others=1, elapsed=20_000)
    assert pace.rate == pytest.approx(1 / 20, rel=0.1)


def test_changes_are_forgotten_in_time() -> None:
    pace = UNKNOWN.after(others=5, elapsed=50_000)
    later = pace.after(others=0, elapsed=600_000)
    assert later.changes == pytest.approx(5 / math.e)
    assert later.watched == pytest.approx(50 / math.e + 600)
    assert UNKNOWN.after(others=-3, elapsed=-5).changes == 0.0


@pytest.mark.parametrize(
    ("push", "slowness"), [(0, 1.0), (30, 1.0), (1_200, 1.0), (2_700, 2.25), (12_000, 10.0)]
)
def test_limits_of_time_grow_with_pushes_that_are_slower_than_usual(
    push: int, slowness: float
) -> None:
    assert UNKNOWN.after(push=push).slowness == pytest.approx(slowness)


def pace_of(stale: float, read: float, age: float = 10.0) -> RemotePace:
    """A pace at which a copy of that age is stale with that probability."""
    rate = -math.log(1 - stale) / (age + read)
    return RemotePace(reads=(round(read * 1_000),), changes=rate * 10)


@pytest.mark.parametrize(
    ("stale", "read", "weight", "first"),
    [
        (0.99, 0.0, 1, False),
        (0.0, 5.0, 2, False),
        (0.50, 10.0, 1, False),
        (0.51, 10.0, 1, True),
        (0.25, 10.0, 2, False),
        (0.26, 10.0, 2, True),
        (0.59, 0.5, 1, False),
        (0.61, 0.5, 1, True),
        (0.99, 0.09, 1, False),
        (0.99, 0.12, 1, True),
    ],
)
def test_it_reads_first_where_that_saves_a_tenth_of_a_second(
    stale: float, read: float, weight: float, first: bool
) -> None:
    assert reads_first(pace_of(stale, read), 10.0, weight) is first


def test_a_clock_set_back_is_no_age() -> None:
    pace = pace_of(0.9, 1.0)
    assert reads_first(pace, -1e9) is reads_first(pace, 0.0)
