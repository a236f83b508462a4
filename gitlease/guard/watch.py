"""What hooks may know of the leases without git and without parsing: files of this clone's own.

Whatever is wrong with them, they are of no use, and no harm: the guard asks the ledger then.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass, replace
from gitlease.core.instant import MS, Instant
from gitlease.core.lease import ROW_SHAPE, Lease, LeaseRows, Sighting
from gitlease.core.ledger import Notice
from gitlease.core.policy import Policy
from gitlease.core.shape import JSON, Damaged
from gitlease.engine.ports import Clock
from gitlease.git.files import Notes, make_folders
from gitlease.guard.notes import Origin, drop_idle_marker, write_idle_marker
from gitlease.guard.rules import CachedLedger, IdleMarker, Unreachable
from gitlease.store.state import StateFolder, load_text, store_text

FILE = "watch.rows"
FORM = f"leases 3 {ROW_SHAPE}"
FAILURE = "unreachable"  # a kind of notes, by the state of a place
MAX_BYTES = 256 * 1024 * 1024
LONGEST_MESSAGE = 1_000


@dataclass(frozen=True, slots=True)
class _KeptWatch:
    """What is kept before the leases, in the first line of their file."""

    layer: str
    version: str
    received: Instant
    policy: Policy
    damage: tuple[str, ...]
    notices: tuple[Notice, ...]
    doubt: str


class WatchFolder:
    """The kept leases of each layer, beside its other state, and the idle marker in ``folder``.

    ``origin`` is what the idle markers of this process are made from.
    """

    def __init__(
        self, folder: str, state: Callable[[str], str], clock: Clock, origin: Origin
    ) -> None:
        self._folder, self._state, self._clock, self._origin = folder, state, clock, origin
        self._notes = Notes(folder)
        self._read: dict[str, tuple[tuple[int, ...], _KeptWatch, LeaseRows]] = {}

    def load(self, layer: str) -> CachedLedger | None:
        known, read = StateFolder(self._state(layer)).load(), self._load(layer)
        if read is None:
            return None
        kept, rows = read
        if (kept.layer, kept.version) != (layer, known.version if known else ""):
            return None
        now = self._clock.now()
        # A sighting of before a reboot, or a clock that was set back, counts anew.
        if not kept.received.same_boot(now) if known is None else known.at(now) is not known:
            return None

        def seen(lease: Lease) -> Sighting | None:
            file = rows.file_of(lease)
            return known.sighting(file) if known is not None and file else None

        received = kept.received if known is None else known.received
        return CachedLedger(leases=rows, seen=seen, **{**vars(kept), "received": received})

    def save(self, watched: CachedLedger) -> None:
        file = self._file(watched.layer)
        with contextlib.suppress(OSError):
            make_folders(os.path.dirname(file))
            kept = _KeptWatch(**{x: getattr(watched, x) for x in _KeptWatch.__annotations__})
            lines = (json.dumps(JSON.dump(kept)), *watched.leases.rows, "")
            store_text(file, "\n".join(lines), form=FORM)
            self._read[watched.layer] = _mark(file), kept, watched.leases

    def _load(self, layer: str) -> tuple[_KeptWatch, LeaseRows] | None:
        """What is kept, which is read once; None where it is not whole."""
        file = self._file(layer)
        with contextlib.suppress(OSError, ValueError, RecursionError, Invalid):
            mark = _mark(file)
            if self._read.get(layer, ((),))[0] != mark:
                first, *lines = (load_text(file, MAX_BYTES, form=FORM) or "").split("\n")
                rows = LeaseRows(lines[:-1])
                if not rows.are_sound():
                    return None
                self._read[layer] = mark, JSON.load(_KeptWatch, json.loads(first)), rows
            return self._read[layer][1:]
        return None

    def _file(self, layer: str) -> str:
        return os.path.join(self._state(layer), FILE)

    def set_idle_marker(self, idle: IdleMarker, versions: Mapping[str, str]) -> None:
        now = self._clock.now().wall_ms // MS
        write_idle_marker(self._folder, idle, self._origin, now=now)
        # Whoever moved a head meanwhile took the marker of before it away, and this one came after.
        for layer, version in versions.items():
            known = StateFolder(self._state(layer)).load()
            if (known.version if known else "") != version:
                drop_idle_marker(self._folder)

    def unreachable(self) -> Unreachable | None:
        with contextlib.suppress(Damaged):
            return JSON.load(Unreachable, self._notes.get(FAILURE, self._state("")))
        return None

    def set_unreachable(self, failure: Unreachable | None) -> None:
        if failure is None:
            self._notes.drop(FAILURE, self._state(""))
        else:
            short = JSON.dump(replace(failure, message=failure.message[:LONGEST_MESSAGE]))
            self._notes.put(FAILURE, self._state(""), short, at=failure.at.wall_ms / MS)


def _mark(file: str) -> tuple[int, ...]:
    there = os.lstat(file)
    return there.st_ino, there.st_mtime_ns, there.st_size
