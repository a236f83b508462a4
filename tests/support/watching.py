"""What the guard keeps between two hooks, in this process."""

from __future__ import annotations

from collections.abc import Mapping

from gitlease.guard import CachedLedger, IdleMarker, Unreachable


class MemoryWatch:
    """Like the files of a clone."""

    def __init__(self) -> None:
        self.kept: dict[str, CachedLedger] = {}
        self.idle = IdleMarker()
        self.failure: Unreachable | None = None

    def load(self, layer: str) -> CachedLedger | None:
        return self.kept.get(layer)

    def save(self, cached: CachedLedger) -> None:
        self.kept[cached.layer] = cached

    def set_idle_marker(self, idle: IdleMarker, versions: Mapping[str, str]) -> None:
        self.idle = idle

    def unreachable(self) -> Unreachable | None:
        return self.failure

    def set_unreachable(self, failure: Unreachable | None) -> None:
        self.failure = failure
