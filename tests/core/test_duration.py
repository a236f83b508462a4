"""Durations as people write and read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitlease.core import LONGEST, UsageError, format_duration, humanize_duration, parse_duration

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
