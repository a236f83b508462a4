"""Instants by a machine's two clocks, and durations as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from gitlease.kernel.rules.errors import UsageError
from gitlease.kernel.rules.frozen import dataclass

MS = 1_000
Time = Annotated[int, "time"]  # wall-clock milliseconds
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STAMP = r"(?a)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z"
LATEST = 253_402_300_799_000  # the last second of the year 9999: what a time can be written as


@dataclass(frozen=True)
class Instant:
    """Both clocks, read together. Boot readings compare only within one ``boot_id``."""

    wall_ms: int
    boot_ms: int
    boot_id: str

    def elapsed_at_most(self, later: Instant) -> int:
        """Milliseconds until ``later`` by the larger clock: how long a holder must reckon with."""
        wall = later.wall_ms - self.wall_ms
        return max(wall, later.boot_ms - self.boot_ms) if self.same_boot(later) else wall

    def elapsed_at_least(self, later: Instant) -> int:
        """Milliseconds until ``later`` by the smaller clock: what a contender may count on."""
        # Another boot counts for nothing: one clock begins anew with it, and the other may be set.
        if not self.same_boot(later):
            return 0
        return max(0, min(later.wall_ms - self.wall_ms, later.boot_ms - self.boot_ms))

    def same_boot(self, other: Instant) -> bool:
        return self.boot_id == other.boot_id


def moment_of(wall_ms: int) -> datetime:
    """A wall-clock reading as an aware datetime, exact to the millisecond."""
    # Counted: what the system makes of one is off by the leap seconds under ``TZ=right/UTC``.
    return EPOCH + timedelta(milliseconds=min(wall_ms, LATEST))


def rfc3339(wall_ms: int, *, round_up: bool = False) -> str:
    """UTC to the second with ``Z``, rounded down by default: what people and JSON see."""
    wall_ms = min(wall_ms, LATEST)
    seconds = -(-wall_ms // MS) if round_up else wall_ms // MS
    return utc_text(moment_of(seconds * MS))


def utc_text(at: datetime) -> str:
    """The same of an aware UTC datetime, rounded down."""
    # A list of many leases has seven times each; strftime takes ten times as long.
    return f"{at.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def rfc3339_ms(wall_ms: int) -> str:
    """UTC to the millisecond with ``Z``: what records hold, since a TTL may be two seconds."""
    return f"{rfc3339(wall_ms)[:-1]}.{wall_ms % MS:03d}Z"


def parse_rfc3339(text: str) -> int:
    """Milliseconds since 1970 of ``YYYY-MM-DDTHH:MM:SS[.mmm]Z``; ValueError for anything else."""
    if not re.fullmatch(_STAMP, text):
        raise ValueError(f"not a UTC time: {text[:40]!r}")
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(milliseconds=1)


UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
LONGEST = 3_650 * UNITS["d"]

# Units come once each, largest first: `30m1h` is more likely a slip than a wish.
# Compiled where they are used: most commands are given no duration.
_FORM = "".join(rf"(?:(?P<{unit}>[0-9]{{1,12}}(?:\.[0-9]{{1,6}})?){unit})?" for unit in UNITS)
_SECONDS = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"


def parse_duration(text: str, *, what: str = "duration") -> int:
    """Seconds in ``text``: a number (of seconds) or numbers with units, largest unit first.

    Raises UsageError unless it is positive, a whole number of seconds and at most ten years.
    """
    word = text.strip().lower()
    if re.fullmatch(_SECONDS, word):
        total = _millionths(word)
    elif word and (match := re.fullmatch(_FORM, word)):
        total = sum(_millionths(n) * UNITS[unit] for unit, n in match.groupdict().items() if n)
    else:
        raise _bad(what, text)
    if total <= 0:
        raise _bad(what, text, "is not positive")
    if total > LONGEST * 1_000_000:
        raise _bad(what, text, "is longer than ten years")
    if total % 1_000_000:
        raise _bad(what, text, "is not a whole number of seconds")
    return total // 1_000_000


def _millionths(number: str) -> int:
    whole, _, part = number.partition(".")
    return int(whole) * 1_000_000 + int(part.ljust(6, "0") or 0)


def _bad(what: str, text: str, why: str = "") -> UsageError:
    shown = repr(text if len(text) <= 40 else text[:40] + "…")
    invalid = f"invalid duration {shown}"
    if what != "duration":
        invalid = f"{what.removesuffix(':')}: {invalid}"
    return UsageError(
        f"{what} {shown} {why}" if why else invalid,
        hints=("write it like 90s, 15m, 1h30m, 2d or 1w",),
    )


def format_duration(seconds: int) -> str:
    """The shortest exact form: ``900`` is ``15m``, ``5400`` is ``1h30m``, ``0`` is ``0s``."""
    sign, rest, parts = ("-" if seconds < 0 else ""), abs(seconds), []
    for unit, size in UNITS.items():
        if unit == "w":  # weeks only when exact: "8d" reads better than "1w1d"
            if rest and rest % size == 0:
                parts.append(f"{rest // size}w")
                rest = 0
            continue
        if rest >= size:
            parts.append(f"{rest // size}{unit}")
            rest %= size
    return sign + ("".join(parts) or "0s")


def humanize_duration(seconds: int) -> str:
    """A duration to glance at, the two largest units: ``28s``, ``9m``, ``1h 5m``, ``2d 3h``."""
    rest = abs(seconds)
    if rest < 60:
        return f"{rest}s"
    days, hours, minutes = rest // 86_400, rest % 86_400 // 3_600, rest % 3_600 // 60
    if days:
        return f"{days}d {hours}h" if hours else f"{days}d"
    if hours:
        return f"{hours}h {minutes}m" if minutes else f"{hours}h"
    return f"{minutes}m"
