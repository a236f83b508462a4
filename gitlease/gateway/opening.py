"""Opens a gateway: a clone whose ledger many people use together."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TypeVar, cast

from gitlease.gateway.gateway import YOUNG, Gateway
from gitlease.gateway.tokens import Tokens
from gitlease.kernel.git.files import make_folders
from gitlease.kernel.git.repository import discover
from gitlease.kernel.git.run import SystemClock
from gitlease.kernel.ledger.ledger_session import Terms
from gitlease.kernel.ledger.ports import Clock, Intent, TaskChange, TaskFiles, TaskList, Written
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.instant import Instant
from gitlease.kernel.settings.identity import resolve_identity
from gitlease.kernel.store.transport import TIME_LIMIT
from gitlease.wiring.ledger import open_place
from gitlease.wiring.workspace import edge_rules

T = TypeVar("T")
ROOM = 64 * 1024  # bytes that must be free: more than a step writes


def open_gateway(directory: str = ".", *, clock: Clock | None = None) -> Gateway:
    """The gateway to the ledger of the clone around ``directory``. Asks no remote.

    Raises NotARepository, and Invalid for bad settings or a missing ``user.email``.
    """
    clock = clock or SystemClock()
    place = open_place(repository := discover(directory), os.environ)
    settings = place.settings
    identity = resolve_identity(repository, environ=os.environ, session_flag=None, no_session=True)
    made = Gateway(
        place.store(clock, time_limit=TIME_LIMIT),
        clock=clock,
        actor=identity.actor,
        layer=settings.layer,
        files=_ReadOnly(place.task_files(), clock),
        rules=replace(edge_rules(settings), commit=False),  # no files are written here
        terms=Terms(default_ttl=settings.ttl, ttl_is_default=settings.ttl_is_default),
    )
    made.lock_ttl, made.lfs_objects = settings.lfs_lock_ttl, settings.lfs_objects
    made.check_room = lambda: _check_room(os.path.join(repository.common_dir, "gitlease"))
    return made


def _check_room(folder: str) -> None:
    # A full disk shows in what is written, not in the file's creation.
    make_folders(folder)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(ROOM))
        file.flush()
        os.fsync(file.fileno())


def open_tokens(directory: str = ".") -> Tokens:
    """The tokens of the gateway to the clone around ``directory``."""
    return Tokens(os.path.join(discover(directory).common_dir, "gitlease", "serve"))


class _ReadOnly:
    """The task files of a clone in which nobody works: read once a second, and never written."""

    writes = False

    def __init__(self, files: TaskFiles, clock: Clock) -> None:
        self._files, self._clock, self._lock = files, clock, Lock()
        self.on_a_branch, self.assigned_since = files.on_a_branch, files.assigned_since
        self._known: tuple[Instant, dict[object, object]] = clock.now(), {}

    def read(self, ref: str | None = None) -> TaskList:
        return self._lately(("tasks", ref), lambda: self._files.read(ref))

    def elsewhere(self, here: TaskList) -> Sequence[tuple[str, TaskList]]:
        return self._lately("elsewhere", lambda: self._files.elsewhere(here))

    def places(self) -> Sequence[str]:
        return self._lately("places", self._files.places)

    def doubt(self) -> str:
        return self._lately("doubt", self._files.doubt)

    def _lately(self, what: object, read: Callable[[], T]) -> T:
        with self._lock:  # or all requests would read at once what one reads for all
            now = self._clock.now()
            if self._known[0].elapsed_at_most(now) >= YOUNG:
                self._known = now, {}
            if what not in (known := self._known[1]):
                known[what] = read()
            return cast(T, known[what])

    def check(self, changes: Sequence[TaskChange], *, commit: bool) -> None:
        """Nothing is going to be written."""

    def write(self, changes: Sequence[TaskChange], *, commit: bool) -> tuple[Written, ...]:
        return ()

    def intend(self, intent: Intent) -> None:
        """Nothing is going to be written, so nothing is intended."""

    settled = leave = intend

    def at(self, root: str) -> TaskFiles | None:
        return None

    def left_behind(self) -> Sequence[Intent]:
        return ()
