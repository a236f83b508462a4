"""Instants: a reading of both clocks of one machine, in integer milliseconds.

The wall clock (UTC since 1970) is what people and records speak; the boot clock
(``CLOCK_BOOTTIME``) keeps counting through suspend and never jumps, so elapsed times come from it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gitlease.core.frozen import dataclass

MS = 1_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = 253_402_300_799_000  # the last second of the year 9999: what a time can be written as


@dataclass(frozen=True, slots=True)
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
        if not self.same_boot(later):
            return 0
        return max(0, min(later.wall_ms - self.wall_ms, later.boot_ms - self.boot_ms))

    def same_boot(self, other: Instant) -> bool:
        return self.boot_id == other.boot_id


def moment_of(wall_ms: int) -> datetime:
    """A wall-clock reading as an aware datetime, exact to the millisecond.

    By counting: what the system makes of one is off by the leap seconds under ``TZ=right/UTC``.
    """
    return EPOCH + timedelta(milliseconds=min(wall_ms, LATEST))


def rfc3339(wall_ms: int, *, round_up: bool = False) -> str:
    """UTC to the second with ``Z``, rounded down by default: what people and JSON see."""
    wall_ms = min(wall_ms, LATEST)
    seconds = -(-wall_ms // MS) if round_up else wall_ms // MS
    return utc_text(moment_of(seconds * MS))


def utc_text(at: datetime) -> str:
    """The same of an aware UTC datetime, rounded down."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_ms(wall_ms: int) -> str:
    """UTC to the millisecond with ``Z``: what records hold, since a TTL may be two seconds."""
    return f"{rfc3339(wall_ms)[:-1]}.{wall_ms % MS:03d}Z"


def parse_rfc3339(text: str) -> int:
    """Milliseconds since 1970 of ``YYYY-MM-DDTHH:MM:SS[.mmm]Z``; ValueError for anything else."""
    body, z = text[:-1], text[-1:]
    stamp, dot, fraction = body.partition(".")
    marks = [stamp[at : at + 1] for at in (4, 7, 10, 13, 16)]
    digits = stamp[:4] + stamp[5:7] + stamp[8:10] + stamp[11:13] + stamp[14:16] + stamp[17:]
    whole = z == "Z" and marks == ["-", "-", "T", ":", ":"] and len(digits) == 14
    part = not dot or (len(fraction) == 3 and fraction.isdigit())
    if not (whole and part and digits.isdigit() and text.isascii()):
        raise ValueError(f"not a UTC time: {text[:40]!r}")
    moment = datetime.fromisoformat(stamp).replace(tzinfo=UTC)
    return int(moment.timestamp()) * MS + int(fraction or 0)
