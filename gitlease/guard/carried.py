"""Which leases of its person a session carries: those it used, or was told of as its own to keep.

They are bound to no session, and so nobody else would know that this one works under them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from gitlease.git.files import STAMP, drop_leftovers, load_json, store_json

FOLDER = "carried"
MOST = 200  # leases of one session; the newest are kept
MAX_BYTES = 64 * 1024


class CarriedFolder:
    """The ids of such leases, a file for each session in the clone's private ``folder``.

    It only saves leases from lapsing, and never fails. Without a session nothing is noted: the
    person's own commands renew whatever is the person's.
    """

    def __init__(self, folder: str, holder: str, session: str | None) -> None:
        self._folder, self._run = os.path.join(folder, FOLDER), (holder, session)

    def ids(self) -> frozenset[str]:
        return frozenset(self._load())

    def add(self, lease_ids: Iterable[str]) -> None:
        """Note what the session uses, or is told that it carries."""
        if self._run[1] is None:
            return
        known = self._load()
        new = [x for x in dict.fromkeys(lease_ids) if x not in known]
        if new:
            with contextlib.suppress(OSError):
                os.makedirs(self._folder, exist_ok=True)
                drop_leftovers(self._folder)
                store_json(self._file, [*known, *new][-MOST:])

    @property
    def _file(self) -> str:
        from hashlib import sha256

        run = "\0".join(word or "" for word in self._run)
        name = sha256(run.encode("utf-8", "surrogatepass")).hexdigest()[:24]
        return os.path.join(self._folder, name + STAMP)

    def _load(self) -> list[str]:
        found = load_json(self._file, MAX_BYTES) if os.path.isdir(self._folder) else None
        return [x for x in found if isinstance(x, str)] if isinstance(found, list) else []
