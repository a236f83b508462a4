"""Gives each Python process that finds it another wall clock: ``WRONG_CLOCK_MS`` off the real one.

The boot clock stays right, as it does on a machine whose wall clock is wrong. (libfaketime 0.9.10
cannot do that: with the monotonic clocks left alone, sleeping fails with EINVAL.)
"""

import os
import time

_offset_ns = int(os.environ.get("WRONG_CLOCK_MS", "0")) * 1_000_000
_time_ns = time.time_ns


def _wrong_time_ns() -> int:
    return _time_ns() + _offset_ns


def _wrong_time() -> float:
    return _wrong_time_ns() / 1e9


if _offset_ns:
    time.time_ns = _wrong_time_ns
    time.time = _wrong_time
