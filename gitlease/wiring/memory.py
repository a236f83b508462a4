"""A workspace for tests: a ledger in memory, and a clock that is moved by hand."""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Mapping
from weakref import WeakSet

from gitlease.kernel.git.repository import ConfigEntry, GitConfig, Repository, discover
from gitlease.kernel.ledger.heartbeat import Heartbeat
from gitlease.kernel.rules.errors import UsageError
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.instant import MS, Instant
from gitlease.kernel.store.git_ledger import RefLedgerStore
from gitlease.kernel.store.memory import MemoryStorage, memory_store
from gitlease.wiring.workspace import Workspace, open_workspace

__all__ = ["MemoryStorage", "MovableClock", "memory_store", "memory_workspace"]

GLANCE = 0.02  # seconds of real time between two looks of another thread


class MovableClock:
    """A clock that stands still until it is moved.

    A wait in the thread that made it moves it, and takes no time; in any other thread a wait lasts
    until somebody moves it. It begins now, so that it can be compared with others.
    """

    def __init__(self) -> None:
        self._began, self._moved = time.time_ns() // 1_000_000, [0]  # which copies share
        self._owner = threading.current_thread()
        self._ended: threading.Event | None = None
        self._heartbeats, self._driving = WeakSet[Heartbeat](), list[bool]()

    def now(self) -> Instant:
        return Instant(self._began + self._moved[0], MS + self._moved[0], "a clock of tests")

    def advance(self, seconds: float) -> None:
        """Let time pass, with all renewals that are due. UsageError for a negative time."""
        if seconds < 0:
            raise UsageError("time does not run backwards")
        end = self._moved[0] + round(seconds * MS)
        if self._driving:  # by a renewal that pauses before it is tried again
            self._moved[0] = end
            return
        self._driving.append(True)
        try:
            while self._moved[0] < end:
                due = [x for one in self._heartbeats if (x := one.due_in()) is not None]
                step = max(MS, round(min(due) * MS)) if due else end
                self._moved[0] = min(end, self._moved[0] + step)
                for one in list(self._heartbeats):
                    one.beat()
        finally:
            self._driving.clear()

    def drive(self, heartbeat: Heartbeat) -> None:
        """Run a heartbeat whenever time passes."""
        self._heartbeats.add(heartbeat)

    def sleep(self, seconds: float) -> None:
        if threading.current_thread() is self._owner:
            self.advance(max(0.0, seconds))
        elif self._ended is None:
            time.sleep(min(seconds, GLANCE))
        else:
            self._ended.wait(min(seconds, GLANCE))
        if self._ended is not None and self._ended.is_set():
            raise InterruptedError("the wait was ended")

    def woken(self, woken: threading.Event) -> MovableClock:
        """The same clock, for a wait that ends once ``woken`` is set."""
        clock = copy.copy(self)
        clock._ended = woken
        return clock


def memory_workspace(
    store: RefLedgerStore,
    *,
    holder: str,
    private: str,
    clock: MovableClock,
    directory: str | None = None,
    session: str | None = None,
    layer: str | None = None,
    environ: Mapping[str, str],
) -> Workspace:
    """The workspace of one person without a clone, with a folder for its state.

    With a ``directory`` it is that of the repository there, with its task files and settings.
    """
    if directory is None:
        os.makedirs(private, exist_ok=True)
        found = Repository(private, private, None, "", None, "sha1", GitConfig())
    else:
        found = discover(directory)
    email = ConfigEntry("user.email", holder, "command", "")
    config = GitConfig((*found.config.entries, email), found.config.read_at)
    return open_workspace(
        repository=replace(found, config=config),
        session=session,
        layer=layer,
        environ=environ,
        clock=clock,
        store=store,
    )
