"""What hooks may know of the leases without git and without parsing: files of this clone's own.

Whatever is wrong with them, they are of no use, and no harm: the guard asks the ledger then.
"""

from __future__ import annotations

import contextlib
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
from gitlease.git.files import load_json, load_text, make_folders, store_json, store_text
from gitlease.guard.notes import Origin, drop_idle_marker, write_idle_marker
from gitlease.guard.rules import CachedLedger, IdleMarker, Unreachable
from gitlease.store.state import StateFolder

FORMAT = 5
FILE, ROWS = "watch.json", "watch.rows"
FORM = f"leases 2 {ROW_SHAPE}"
FAILURE = "unreachable.json"
MAX_BYTES = 32 * 1024 * 1024
MAX_ROWS = 256 * 1024 * 1024
MAX_FAILURE = 16 * 1024
LONGEST_MESSAGE = 1_000


@dataclass(frozen=True, slots=True)
class _KeptWatch:
    """What is kept beside the leases, and the check sum of those."""

    layer: str
    version: str
    received: Instant
    policy: Policy
    damage: tuple[str, ...]
    notices: tuple[Notice, ...]
    rows: str
    doubt: str


class WatchFolder:
    """The kept leases of each layer, beside its other state, and the idle marker in ``folder``.

    ``origin`` is what the idle markers of this process are made from.
    """

    def __init__(
        self, folder: str, state: Callable[[str], str], clock: Clock, origin: Origin
    ) -> None:
        self._folder, self._state, self._clock, self._origin = folder, state, clock, origin
        self._rows: dict[str, tuple[str, str, LeaseRows]] = {}

    def load(self, layer: str) -> CachedLedger | None:
        data = load_json(os.path.join(self._state(layer), FILE), MAX_BYTES)
        known = StateFolder(self._state(layer)).load()
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            return None
        try:
            kept = JSON.load(_KeptWatch, data.get("watched"))
        except Damaged:
            return None
        if (kept.layer, kept.version) != (layer, known.version if known else ""):
            return None
        now = self._clock.now()
        # A sighting of before a reboot, or a clock that was set back, counts anew.
        if not kept.received.same_boot(now) if known is None else known.at(now) is not known:
            return None
        rows = self._rows_of(layer, kept.version, kept.rows)
        if rows is None:
            return None

        def seen(lease: Lease) -> Sighting | None:
            file = rows.file_of(lease)
            return known.sighting(file) if known is not None and file else None

        return CachedLedger(
            layer=layer,
            version=kept.version,
            received=kept.received if known is None else known.received,
            policy=kept.policy,
            leases=rows,
            damage=kept.damage,
            notices=kept.notices,
            seen=seen,
            doubt=kept.doubt,
        )

    def save(self, watched: CachedLedger) -> None:
        folder = self._state(watched.layer)
        with contextlib.suppress(OSError):
            make_folders(folder)
            text = "".join(f"{row}\n" for row in watched.leases.rows)
            form = f"{FORM} {watched.version}"
            check = store_text(os.path.join(folder, ROWS), text, form=form)
            self._rows[watched.layer] = watched.version, check, watched.leases
            kept = _KeptWatch(
                watched.layer,
                watched.version,
                watched.received,
                watched.policy,
                watched.damage,
                watched.notices,
                check,
                watched.doubt,
            )
            store_json(os.path.join(folder, FILE), {"format": FORMAT, "watched": JSON.dump(kept)})

    def _rows_of(self, layer: str, version: str, check: str) -> LeaseRows | None:
        """The leases of a version, which are read once; None where they are not there."""
        kept = self._rows.get(layer)
        if kept is not None and kept[:2] == (version, check):
            return kept[2]
        file, form = os.path.join(self._state(layer), ROWS), f"{FORM} {version}"
        read = load_text(file, MAX_ROWS, form=form)
        if read is None or read[1] != check:
            return None
        try:
            rows = LeaseRows(read[0].split("\n")[:-1])
        except Invalid:
            return None
        if not rows.are_sound():
            return None
        self._rows[layer] = version, check, rows
        return rows

    def set_idle_marker(self, idle: IdleMarker, versions: Mapping[str, str]) -> None:
        now = self._clock.now().wall_ms // MS
        write_idle_marker(self._folder, idle, self._origin, now=now)
        # Whoever moved a head meanwhile took the marker of before it away, and this one came after.
        for layer, version in versions.items():
            known = StateFolder(self._state(layer)).load()
            if (known.version if known else "") != version:
                drop_idle_marker(self._folder)

    def unreachable(self) -> Unreachable | None:
        data = load_json(self._failure, MAX_FAILURE)
        try:
            return JSON.load(Unreachable, data)
        except Damaged:
            return None

    def set_unreachable(self, failure: Unreachable | None) -> None:
        if failure is None:
            with contextlib.suppress(OSError):
                os.unlink(self._failure)
            return
        with contextlib.suppress(OSError):
            make_folders(self._state(""))
            short = replace(failure, message=failure.message[:LONGEST_MESSAGE])
            store_json(self._failure, JSON.dump(short))

    @property
    def _failure(self) -> str:
        return os.path.join(self._state(""), FAILURE)
