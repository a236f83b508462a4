"""The arithmetic of a remote's pace: medians, and a rate in which older changes count for less."""

from __future__ import annotations

import math

import pytest

from gitlease.kernel.rules.pace import LONGEST_SAMPLE, RemotePace

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
