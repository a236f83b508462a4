"""Durations and instants: as people and records write them, by two clocks read together."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel.rules.values import NOON, at

from gitlease.kernel.rules.errors import UsageError
from gitlease.kernel.rules.instant import (
    LONGEST,
    format_duration,
    humanize_duration,
    moment_of,
    parse_duration,
    parse_rfc3339,
    rfc3339,
    rfc3339_ms,
)

UNDERSTOOD = {"90": 90, "15m": 900, "1.5h": 5_400, "1h30m": 5_400, "1w2d3h4m5s": 788_645}
UNDERSTOOD |= {" 15M ": 900, "1.0": 1, "0h1s": 1, "3650d": LONGEST, str(LONGEST): LONGEST}
ODD = ["", " ", "0s", "-5m", "+5m", "15 m", "m", "15x", "30m1h", "1h1h", "1.5", "0.1s", "1e3"]
ODD += ["inf", "nan", "1_000", "٣m", "3651d", str(LONGEST + 1), "9" * 12 + "w", "9" * 500]
ODD += ["1h30", "1..5h", ".5h", "5.h"]


def test_a_duration_is_understood_and_anything_else_a_usage_error() -> None:
    for text, seconds in UNDERSTOOD.items():
        assert parse_duration(text) == seconds
    for text in ODD:
        with pytest.raises(UsageError) as refused:
            parse_duration(text, what="ttl")
        assert refused.value.message.startswith("ttl")
        assert len(refused.value.message) < 100


@given(st.integers(1, LONGEST))
def test_what_is_written_reads_back(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds
    assert parse_duration(str(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "exact", "glance"),
    [
        (0, "0s", "0s"),
        (599, "9m59s", "9m"),
        (3_900, "1h5m", "1h 5m"),
        (183_600, "2d3h", "2d 3h"),
        (691_200, "8d", "8d"),
        (604_800, "1w", "7d"),
        (-90, "-1m30s", "1m"),
    ],
)
def test_a_duration_is_written_exactly_and_to_glance_at(
    seconds: int, exact: str, glance: str
) -> None:
    assert format_duration(seconds) == exact
    assert humanize_duration(seconds) == glance


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
def test_what_a_record_says_is_read_again(wall_ms: int) -> None:
    assert parse_rfc3339(rfc3339_ms(wall_ms)) == wall_ms
    assert parse_rfc3339(rfc3339(wall_ms)) == wall_ms // 1_000 * 1_000


ODD_TIMES = ["", "Z", "2026-11-20", "2026-11-20T12:00:00", "2026-11-20 12:00:00Z"]
ODD_TIMES += ["2026-11-20T12:00:00+01:00", "2026-11-20T12:00:00.1Z", "2026-11-20T12:00:00.1234Z"]
ODD_TIMES += ["2026-13-20T12:00:00Z", "2026-11-31T12:00:00Z", "2026-11-20T24:00:01Z"]
ODD_TIMES += [
    "2026-W47-5T12:00:00Z",
    "٢٠٢٦-11-20T12:00:00Z",
    "20261120T120000Z",
    "2026-11-20T12:00:00.Z",
]


def test_any_other_time_is_refused() -> None:
    for text in ODD_TIMES:
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
