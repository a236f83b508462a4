"""The clocks of this machine."""

from __future__ import annotations

import threading
import time

from gitlease.core.instant import Instant


class SystemClock:
    """Wall clock and boot clock, read together.

    The boot clock keeps counting through suspend where the system has one that does
    (``CLOCK_BOOTTIME``); elsewhere the monotonic clock stands in.
    """

    def __init__(self) -> None:
        self._boot_id = _boot_id()
        self._which = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> Instant:
        boot = time.clock_gettime_ns(self._which) // 1_000_000
        return Instant(wall_ms=time.time_ns() // 1_000_000, boot_ms=boot, boot_id=self._boot_id)

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))


class WokenClock(SystemClock):
    """The same clocks, for a wait that another thread may end: ``sleep`` raises InterruptedError.

    It does so from when ``woken`` is set on.
    """

    def __init__(self, woken: threading.Event) -> None:
        super().__init__()
        self._woken = woken

    def sleep(self, seconds: float) -> None:
        if self._woken.wait(max(0.0, seconds)):
            raise InterruptedError("the wait was ended")


def _boot_id() -> str:
    """What tells one boot from another: the kernel's own id, else when it booted, by the clocks."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        started = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
        return f"booted-{int(started) // 60}"
