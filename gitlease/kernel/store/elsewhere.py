"""What one clone knows of the same ledgers at other places: at other URLs, or under other prefixes.

Each place has a state of its own. A place that shows less of a ledger than this clone has seen at
another is a restored backup or a stale mirror: nothing there counts, and nothing changes at the
other.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from gitlease.kernel.rules.frozen import dataclass, field
from gitlease.kernel.rules.resources import LOCAL_LAYER
from gitlease.kernel.store.state import Known, StateFolder

CHANGES = ("pending", "edges")  # folders of changes that are on their way


@dataclass(frozen=True)
class OtherPlaces:
    """The other places of a clone.

    ``folder`` has the state of each in a folder, and ``key`` is that of this place. ``last`` is the
    one that the settings named before, if that was another, and ``names`` has the URLs.
    """

    folder: str = ""
    key: str = ""
    last: str = ""
    names: Mapping[str, str] = field(default_factory=dict)

    def known(self, layer: str) -> Iterator[tuple[str, Known]]:
        """What is known at each of them, with its name for people."""
        names = list[str]()
        with contextlib.suppress(OSError):
            names = sorted(os.listdir(self.folder)) if self.folder else []
        for name in names:
            if name not in (self.key, LOCAL_LAYER):
                known = StateFolder(os.path.join(self.folder, name, layer)).load()
                if known is not None:
                    yield self.names.get(name, name).partition(" ")[0], known

    def former(self, layer: str) -> Known | None:
        """What is known at the place that was used before this one."""
        if not self.last or self.last == self.key:
            return None
        return StateFolder(os.path.join(self.folder, self.last, layer)).load()

    def carry(self, layer: str) -> None:
        """Bring along the changes that are on their way, now that the same ledger is here."""
        if self.last in ("", self.key):
            return
        for kind in CHANGES:
            old, new = (os.path.join(self.folder, x, layer, kind) for x in (self.last, self.key))
            with contextlib.suppress(OSError):
                names = os.listdir(old)
                os.makedirs(new, exist_ok=True)
                for name in names:
                    os.rename(os.path.join(old, name), os.path.join(new, name))
