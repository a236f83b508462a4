"""What hooks may know of the leases without git and without parsing: files of this clone's own.

Whatever is wrong with them, they are of no use, and no harm: the guard asks the ledger then.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping

from gitlease.core.as_json import DAMAGE, from_json, to_json
from gitlease.core.frozen import replace
from gitlease.core.instant import MS
from gitlease.engine.ports import Clock
from gitlease.git.files import load_json, store_json
from gitlease.guard.idle_marker import Origin, drop_idle_marker, write_idle_marker
from gitlease.guard.ports import IdleMarker, Unreachable, Watched
from gitlease.store.state import StateFolder

FORMAT = 3
FILE = "watch.json"
FAILURE = "unreachable.json"
MAX_BYTES = 32 * 1024 * 1024
MAX_FAILURE = 16 * 1024
LONGEST_MESSAGE = 1_000


class WatchFolder:
    """The kept leases of each layer, beside its other state, and the idle marker in ``folder``.

    ``origin`` is what the idle markers of this process are made from.
    """

    def __init__(
        self, folder: str, state: Callable[[str], str], clock: Clock, origin: Origin
    ) -> None:
        self._folder, self._state, self._clock, self._origin = folder, state, clock, origin

    def load(self, layer: str) -> Watched | None:
        data = load_json(os.path.join(self._state(layer), FILE), MAX_BYTES)
        known = StateFolder(self._state(layer)).load()
        try:
            kept = from_json(Watched, data["watched"]) if data["format"] == FORMAT else None
        except DAMAGE:
            return None
        if kept is None or (kept.layer, kept.version) != (layer, known.version if known else ""):
            return None
        now = self._clock.now()
        if known is None:
            return kept if kept.received.same_boot(now) else None
        # A sighting of before a reboot, or a clock that was set back, counts anew.
        if known.at(now) is not known:
            return None
        return replace(kept, received=known.received)

    def save(self, watched: Watched) -> None:
        folder = self._state(watched.layer)
        with contextlib.suppress(OSError):
            os.makedirs(folder, exist_ok=True)
            value = {"format": FORMAT, "watched": to_json(watched)}
            store_json(os.path.join(folder, FILE), value)

    def set_idle_marker(self, idle: IdleMarker, versions: Mapping[str, str]) -> None:
        now = self._clock.now().wall_ms // MS
        write_idle_marker(self._folder, idle, self._origin, now=now)
        # Whoever moved a head meanwhile took the marker of before it away, and this one came after.
        if any(self._version(layer) != version for layer, version in versions.items()):
            drop_idle_marker(self._folder)

    def unreachable(self) -> Unreachable | None:
        data = load_json(self._failure, MAX_FAILURE)
        try:
            return from_json(Unreachable, data)
        except DAMAGE:
            return None

    def set_unreachable(self, failure: Unreachable | None) -> None:
        if failure is None:
            with contextlib.suppress(OSError):
                os.unlink(self._failure)
            return
        with contextlib.suppress(OSError):
            os.makedirs(self._state(""), exist_ok=True)
            short = replace(failure, message=failure.message[:LONGEST_MESSAGE])
            store_json(self._failure, to_json(short))

    @property
    def _failure(self) -> str:
        return os.path.join(self._state(""), FAILURE)

    def _version(self, layer: str) -> str:
        known = StateFolder(self._state(layer)).load()
        return known.version if known else ""
