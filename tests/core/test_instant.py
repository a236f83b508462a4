"""Instants: two clocks read together, and times as records and people write them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from core.values import NOON, at
from hypothesis import given
from hypothesis import strategies as st

from gitlease.core import moment_of, parse_rfc3339, rfc3339, rfc3339_ms


def test_elapsed_time_is_bounded_by_both_clocks() -> None:
    """After a reboot only the wall clock tells, and no time has run backwards."""
    start, later = at(0), at(100, boot=1, boot_id="boot-2")
    for now, least, most in (
        (at(10, boot=12), 10_000, 12_000),
        (at(12, boot=10), 10_000, 12_000),
        (at(-3_600, boot=5), 0, 5_000),
        (later, 0, 100_000),
    ):
        assert (start.elapsed_at_least(now), start.elapsed_at_most(now)) == (least, most)
    assert not start.same_boot(later)


def test_times_are_utc_with_a_z() -> None:
    assert rfc3339(NOON) == "2026-11-20T12:00:00Z"
    assert rfc3339(NOON + 999) == "2026-11-20T12:00:00Z"
    assert rfc3339(NOON + 1, round_up=True) == "2026-11-20T12:00:01Z"
    assert rfc3339(NOON, round_up=True) == "2026-11-20T12:00:00Z"
    assert rfc3339_ms(NOON + 7) == "2026-11-20T12:00:00.007Z"


@given(st.integers(0, 4_000_000_000_000))
def test_what_a_record_says_reads_back(wall_ms: int) -> None:
    assert parse_rfc3339(rfc3339_ms(wall_ms)) == wall_ms
    assert parse_rfc3339(rfc3339(wall_ms)) == wall_ms // 1_000 * 1_000


ODD = ["", "Z", "2026-11-20", "2026-11-20T12:00:00", "2026-11-20 12:00:00Z"]
ODD += ["2026-11-20T12:00:00+01:00", "2026-11-20T12:00:00.1Z", "2026-11-20T12:00:00.1234Z"]
ODD += ["2026-13-20T12:00:00Z", "2026-11-31T12:00:00Z", "2026-11-20T24:00:01Z"]
ODD += ["2026-W47-5T12:00:00Z", "٢٠٢٦-11-20T12:00:00Z", "20261120T120000Z", "2026-11-20T12:00:00.Z"]


def test_any_other_time_is_refused() -> None:
    for text in ODD:
        with pytest.raises(ValueError):
            parse_rfc3339(text)


@pytest.mark.parametrize("zone", ["right/UTC", "right/Europe/Berlin", "Pacific/Apia", "UTC+12"])
def test_no_zone_of_the_system_has_a_say_in_it(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under right/UTC the system takes a count of seconds for one that has the leap seconds."""
    if "/" in zone and not Path("/usr/share/zoneinfo", zone).exists():
        pytest.skip(f"there is no {zone} here")
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert moment_of(NOON + 7) == datetime(2026, 11, 20, 12, 0, 0, 7_000, tzinfo=UTC)
        assert rfc3339(NOON) == "2026-11-20T12:00:00Z"
        assert parse_rfc3339(rfc3339_ms(NOON + 7)) == NOON + 7
    finally:
        monkeypatch.undo()
        time.tzset()
