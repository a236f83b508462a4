"""A clock for tests, which moves only when it is told to."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gitlease.kernel.rules.instant import Instant


@dataclass
class ManualClock:
    """Wall and boot time in milliseconds; `sleep` advances both and is recorded in `naps`."""

    wall_ms: int = 1_800_000_000_000
    boot_ms: int = 1_000_000
    boot_id: str = str(uuid.UUID(int=1))
    naps: list[float] = field(default_factory=list)
    _boots: int = 1
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)

    def now(self) -> Instant:
        from gitlease.kernel.rules.instant import Instant

        with self._lock:
            return Instant(wall_ms=self.wall_ms, boot_ms=self.boot_ms, boot_id=self.boot_id)

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        if seconds < 0:
            raise ValueError("time does not run backwards; use skew() to set the wall clock")
        with self._lock:
            self.wall_ms += round(seconds * 1000)
            self.boot_ms += round(seconds * 1000)

    def skew(self, seconds: float) -> None:
        """Set the wall clock forward or back; the boot clock does not notice."""
        with self._lock:
            self.wall_ms += round(seconds * 1000)

    def reboot(self) -> None:
        """A new boot: another boot_id, and the boot clock starts at nought."""
        with self._lock:
            self._boots += 1
            self.boot_id = str(uuid.UUID(int=self._boots))
            self.boot_ms = 0

    def sleep(self, seconds: float) -> None:
        """Advance by `seconds` at once and record the nap."""
        with self._lock:
            self.naps.append(seconds)
            self.advance(max(seconds, 0.0))
