"""Lines that work in the background left for those it was done for: a file for each, taken once."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

from gitlease.git.files import WORD, drop_leftovers, read_regular, replace_file
from gitlease.guard.idle_marker import drop_idle_marker

FOLDER = "words"
LONGEST = 4_000
MOST = 20  # that are told at once; older ones are dropped
MOST_FILES = 1_000
A_DAY = 86_400  # seconds


class InboxFolder:
    """What is to be said to one run, in a folder below the clone's private ``folder``."""

    def __init__(self, folder: str, holder: str, session: str | None) -> None:
        self._private, self._run = folder, f"{holder}\0{session or ''}"
        self._every = os.path.join(folder, FOLDER)

    @property
    def _folder(self) -> str:
        from hashlib import sha256

        run = sha256(self._run.encode("utf-8", "surrogatepass")).hexdigest()
        return os.path.join(self._every, run[:24])

    def leave(self, texts: Sequence[str]) -> None:
        """A kill leaves a whole line or none. The marker is dropped, so the next hook looks."""
        folder = self._folder
        for text in texts[:MOST]:
            name = f"{time.time_ns():020d}-{os.urandom(4).hex()}{WORD}"
            with contextlib.suppress(OSError):
                os.makedirs(folder, exist_ok=True)
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
