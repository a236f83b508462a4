"""Durations as people write them: ``90``, ``90s``, ``15m``, ``1.5h``, ``1h30m``, ``2d``, ``1w``."""

from __future__ import annotations

import re

from gitlease.core.errors import UsageError

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
    elif word and (found := re.fullmatch(_FORM, word)):
        total = sum(_millionths(n) * UNITS[unit] for unit, n in found.groupdict().items() if n)
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
