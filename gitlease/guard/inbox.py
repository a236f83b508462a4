"""What a clone keeps for each run: lines that are left to be said, and leases that it carries."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence

from gitlease.git.files import (
    STAMP,
    WORD,
    drop_leftovers,
    load_json,
    make_folders,
    read_regular,
    replace_file,
    store_json,
)
from gitlease.guard.idle_marker import drop_idle_marker

FOLDER = "words"
LONGEST = 4_000
MOST = 20  # that are told at once; older ones are dropped
MOST_FILES = 1_000
A_DAY = 86_400  # seconds
CARRIED = "carried"
MOST_CARRIED = 200  # leases of one session; the newest are kept
MAX_BYTES = 64 * 1024


class InboxFolder:
    """What is to be said to one run, in a folder below the clone's private ``folder``."""

    def __init__(self, folder: str, holder: str, session: str | None) -> None:
        self._private, self._every = folder, os.path.join(folder, FOLDER)
        self._run = holder, session

    @property
    def _folder(self) -> str:
        return os.path.join(self._every, _name_of(*self._run))

    def leave(self, texts: Sequence[str]) -> None:
        """A kill leaves a whole line or none. The marker is dropped, so the next hook looks."""
        folder = self._folder
        for text in texts[:MOST]:
            name = f"{time.time_ns():020d}-{os.urandom(4).hex()}{WORD}"
            with contextlib.suppress(OSError):
                make_folders(folder)
                data = text[:LONGEST].encode("utf-8", "replace")
                replace_file(os.path.join(folder, name), data)
        if texts:
            drop_idle_marker(self._private)
            self._drop_old()

    def _drop_old(self) -> None:
        """What was left for runs that never came back."""
        with contextlib.suppress(OSError), os.scandir(self._every) as runs:
            for run in runs:
                drop_leftovers(run.path)
                if time.time() - run.stat(follow_symlinks=False).st_mtime > A_DAY:
                    with contextlib.suppress(OSError):  # there is something in it
                        os.rmdir(run.path)

    def take(self) -> tuple[str, ...]:
        """Whoever removes a file tells what is in it, and nobody else does."""
        if not os.path.isdir(self._every):
            return ()
        folder = self._folder
        try:
            names = sorted(name for name in os.listdir(folder) if not name.endswith(".tmp"))
        except OSError:
            return ()
        said = []
        for name in names[-MOST_FILES:]:
            file = os.path.join(folder, name)
            try:
                data = read_regular(file, LONGEST * 4)
                if data is not None:
                    os.unlink(file)
            except OSError:
                continue
            if data and data.strip():
                said.append(data.decode("utf-8", "replace"))
        return tuple(dict.fromkeys(said[-MOST:]))


class CarriedFolder:
    """The ids of the leases of its person that a session carries: those it used, or was told of.

    They are bound to no session, and so nobody else would know that this one works under them. A
    file for each session lies in the clone's private ``folder``.

    It only saves leases from lapsing, and never fails. Without a session nothing is noted: the
    person's own commands renew whatever is the person's.
    """

    def __init__(self, folder: str, holder: str, session: str | None) -> None:
        self._folder, self._run = os.path.join(folder, CARRIED), (holder, session)

    @property
    def _file(self) -> str:
        return os.path.join(self._folder, _name_of(*self._run) + STAMP)

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
                make_folders(self._folder)
                drop_leftovers(self._folder)
                store_json(self._file, [*known, *new][-MOST_CARRIED:])

    def _load(self) -> list[str]:
        found = load_json(self._file, MAX_BYTES) if os.path.isdir(self._folder) else None
        return [x for x in found if isinstance(x, str)] if isinstance(found, list) else []


def _name_of(holder: str, session: str | None) -> str:
    """What is called after a run of a person."""
    from hashlib import sha256

    return sha256(f"{holder}\0{session or ''}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
