"""The intents of this clone: changes of task files that a killed process may have left half made.

Each is a file of its own, and beside it a lock which its process holds until the intent is settled
or the process is no more: the kernel lets go of the lock then, and whoever takes it next owns the
intent. The number of a process says nothing, for it may be another's by now.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import weakref
from collections.abc import Sequence
from typing import Any

from gitlease.core.errors import GitleaseError, Invalid
from gitlease.core.moves.operation_json import plain, typed
from gitlease.engine.ports import Intent
from gitlease.git.files import LEFT_OVER, cannot_keep, drop_leftovers, load_json, store_json
from gitlease.store.private_store import make_folder
from gitlease.tasks.scan import printable
from gitlease.tasks.write import segments_of

FORMAT = 2
KEPT = 30 * 86_400 * 1_000_000_000  # nanoseconds for which an intent waits for its file
GOALS = ("held", "ended", "completed", "completed part", "retired")
MAX_BYTES = 4 * 1024 * 1024

_DAMAGE = (LookupError, TypeError, ValueError, AttributeError, GitleaseError)
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


class EdgeJournal:
    """The folder of the intents. What is held by this object is let go of when that goes away."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._mine: dict[str, int] = {}  # id → the open lock, of intents that were begun here
        self._taken: dict[str, int] = {}  # and of those that other processes left behind
        weakref.finalize(self, _close, self._mine, self._taken)

    def intend(self, intent: Intent) -> None:
        """Keep an intent until it is settled. Raises Invalid when that cannot be made sure."""
        written = {"format": FORMAT, **plain(intent)}
        try:
            if not _ID.fullmatch(intent.id) or _intent(written) != intent:
                raise ValueError
        except _DAMAGE:
            why = f"the intent {printable(intent.id)} cannot be saved"
            raise Invalid(why) from None
        make_folder(self._folder)
        try:
            if intent.id not in self._mine:
                lock = self._take(intent.id)
                if lock is None:
                    raise Invalid(f"another process has the intent {intent.id}")
                self._mine[intent.id] = lock
            store_json(self._file(intent.id), written)
        except OSError as error:
            self._forget(intent.id)
            raise cannot_keep(self._folder, error) from None

    def settled(self, intent: Intent) -> None:
        """Forget an intent that is made, or is not to be made any more."""
        if _ID.fullmatch(intent.id):
            self._forget(intent.id)

    def leave(self, intent: Intent) -> None:
        """Let go of an intent that cannot be made now: whoever looks next takes it."""
        self._let_go(intent.id)

    def left_behind(self) -> Sequence[Intent]:
        """The intents that no living process has, oldest first; they are this object's from now.

        Those that it took before and has not settled are among them again.
        """
        names, locks = self._names("json"), self._names("lock")
        if names or locks:
            drop_leftovers(self._folder)
        oldest = time.time_ns() - LEFT_OVER * 1_000_000_000
        for name in locks.keys() - names.keys():
            if locks[name] < oldest and self._own(name):
                self._forget(name)  # its process was killed before or after all that counts
        now, order = time.time_ns(), sorted(names, key=lambda name: (names[name], name))
        found = (self._adopt(name, now - names[name]) for name in order)
        return [intent for intent in found if intent is not None]

    def _adopt(self, name: str, age: int) -> Intent | None:
        """One intent, if this object has it or can take it; what is too old is dropped."""
        if not self._own(name):
            return None
        if age > KEPT:
            self._forget(name)
            return None
        data = load_json(self._file(name), MAX_BYTES)
        if isinstance(data, dict) and type(data.get("format")) is int and data["format"] > FORMAT:
            os.close(self._taken.pop(name))  # a newer gitlease knows what to do with it
            return None
        with contextlib.suppress(*_DAMAGE):
            if (intent := _intent(data)).id == name:
                return intent
        self._forget(name)
        return None

    def _own(self, name: str) -> bool:
        """Whether an intent was left behind, and is this object's now."""
        if name in self._mine:
            return False
        with contextlib.suppress(OSError):
            lock = self._taken.get(name)
            if lock is None and (lock := self._take(name)) is not None:
                self._taken[name] = lock
        return name in self._taken

    def _names(self, kind: str) -> dict[str, int]:
        """The files of a kind by their names, with the times of their last change."""
        found = {}
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                name, _, suffix = entry.name.rpartition(".")
                if suffix == kind and _ID.fullmatch(name):
                    with contextlib.suppress(OSError):
                        found[name] = entry.stat(follow_symlinks=False).st_mtime_ns
        return found

    def _take(self, name: str) -> int | None:
        """The open lock of an intent, None while another has it. Raises OSError."""
        import fcntl

        path, flags = self._lock(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            lock = os.open(path, flags, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(lock, path):
                    return lock
            except BlockingIOError:
                os.close(lock)
                return None
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)  # whoever had it removed it meanwhile: another file is the lock now

    def _forget(self, name: str) -> None:
        """Remove an intent: first what is to be done, so that a kill leaves only the lock."""
        for file in (self._file(name), self._lock(name)):
            with contextlib.suppress(OSError):
                os.unlink(file)
        self._let_go(name)

    def _let_go(self, name: str) -> None:
        for held in (self._mine, self._taken):
            if name in held:
                os.close(held.pop(name))

    def _file(self, name: str) -> str:
        return os.path.join(self._folder, f"{name}.json")

    def _lock(self, name: str) -> str:
        return os.path.join(self._folder, f"{name}.lock")


def _close(*held: dict[str, int]) -> None:
    for locks in held:
        for lock in locks.values():
            os.close(lock)
        locks.clear()


def _is_at(lock: int, path: str) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _intent(data: Any) -> Intent:
    """The intent that was written down. Raises one of _DAMAGE for what is none."""
    if data["format"] != FORMAT:
        raise ValueError
    intent: Intent = typed(Intent, {name: data[name] for name in data if name != "format"})
    if intent.goal not in GOALS or (intent.root and not os.path.isabs(intent.root)):
        raise ValueError
    for change in intent.changes:
        segments_of(change.file)
    return intent
