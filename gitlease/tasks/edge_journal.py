"""The intents of this clone: changes of task files that a killed process may have left half made.

Each is a file, with a lock file that its process holds until the intent is settled or the process
ends: the kernel then releases the lock, and the next process to take it owns the intent. A process
id proves nothing, since it may have been reused.
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
from gitlease.core.moves.step_record import plain, typed
from gitlease.engine.ports import Intent
from gitlease.git.files import (
    LEFT_OVER,
    cannot_keep,
    drop_leftovers,
    load_json,
    open_lock,
    store_json,
    take,
)
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
    """The folder of the intents. Locks held by this object are released when it goes away."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._mine: dict[str, int] = {}  # id → the open lock, of intents that were begun here
        self._taken: dict[str, int] = {}  # and of those that other processes left behind
        weakref.finalize(self, _close, self._mine, self._taken)

    def intend(self, intent: Intent) -> None:
        """Keep an intent until it is settled. Raises Invalid if it cannot be stored."""
        written = {"format": FORMAT, **plain(intent)}
        try:
            if not _ID.fullmatch(intent.id) or _read_intent(written) != intent:
                raise ValueError
        except _DAMAGE:
            why = f"the intent {printable(intent.id)} cannot be saved"
            raise Invalid(why) from None
        make_folder(self._folder)
        try:
            if intent.id not in self._mine:
                lock = self._try_lock(intent.id)
                if lock is None:
                    raise Invalid(f"another process has the intent {intent.id}")
                self._mine[intent.id] = lock
            store_json(self._file(intent.id), written)
        except OSError as error:
            self._remove(intent.id)
            raise cannot_keep(self._folder, error) from None

    def settled(self, intent: Intent) -> None:
        """Remove an intent that was carried out or given up."""
        if _ID.fullmatch(intent.id):
            self._remove(intent.id)

    def leave(self, intent: Intent) -> None:
        """Release an intent that cannot be carried out now, for the next process to adopt."""
        self._release(intent.id)

    def left_behind(self) -> Sequence[Intent]:
        """Adopt and return the intents of dead processes, oldest first.

        Includes those that were adopted before and are not settled.
        """
        names, locks = self._mtimes_by_name("json"), self._mtimes_by_name("lock")
        if names or locks:
            drop_leftovers(self._folder)
        oldest = time.time_ns() - LEFT_OVER * 1_000_000_000
        for name in locks.keys() - names.keys():
            if locks[name] < oldest and self._is_adopted(name):
                self._remove(name)  # its process was killed before or after all that counts
        now, order = time.time_ns(), sorted(names, key=lambda name: (names[name], name))
        found = (self._adopt(name, now - names[name]) for name in order)
        return [intent for intent in found if intent is not None]

    def _adopt(self, name: str, age: int) -> Intent | None:
        if not self._is_adopted(name):
            return None
        if age > KEPT:
            self._remove(name)
            return None
        data = load_json(self._file(name), MAX_BYTES)
        if isinstance(data, dict) and type(data.get("format")) is int and data["format"] > FORMAT:
            os.close(self._taken.pop(name))  # a newer gitlease knows what to do with it
            return None
        with contextlib.suppress(*_DAMAGE):
            if (intent := _read_intent(data)).id == name:
                return intent
        self._remove(name)
        return None

    def _is_adopted(self, name: str) -> bool:
        if name in self._mine:
            return False
        with contextlib.suppress(OSError):
            lock = self._taken.get(name)
            if lock is None and (lock := self._try_lock(name)) is not None:
                self._taken[name] = lock
        return name in self._taken

    def _mtimes_by_name(self, kind: str) -> dict[str, int]:
        found = {}
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                name, _, suffix = entry.name.rpartition(".")
                if suffix == kind and _ID.fullmatch(name):
                    with contextlib.suppress(OSError):
                        found[name] = entry.stat(follow_symlinks=False).st_mtime_ns
        return found

    def _try_lock(self, name: str) -> int | None:
        path = self._lock(name)
        while True:
            lock = open_lock(path)
            held = take(lock)
            # Where there are no locks, any process may finish what another began.
            if held is False or (held and _is_still_at(lock, path)):
                return lock
            os.close(lock)  # whoever had it removed it meanwhile: another file is the lock now
            if held is None:
                return None

    def _remove(self, name: str) -> None:
        for file in (self._file(name), self._lock(name)):  # a kill in between leaves only the lock
            with contextlib.suppress(OSError):
                os.unlink(file)
        self._release(name)

    def _release(self, name: str) -> None:
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


def _is_still_at(lock: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _read_intent(data: Any) -> Intent:
    if data["format"] != FORMAT:
        raise ValueError
    intent: Intent = typed(Intent, {name: data[name] for name in data if name != "format"})
    if intent.goal not in GOALS or (intent.root and not os.path.isabs(intent.root)):
        raise ValueError
    for change in intent.changes:
        segments_of(change.file)
    return intent
