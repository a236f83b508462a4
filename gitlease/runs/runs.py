"""The runs in the background of one clone: a record and a log for each, in its private folder.

Only their owner can read them: the arguments and the output of a command may be secret.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gitlease.core.as_json import DAMAGE, from_json, to_json
from gitlease.core.errors import LeaseHeld, NotFound
from gitlease.core.frozen import dataclass
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource, parse_resource
from gitlease.git.files import (
    drop_leftovers,
    exclusive,
    load_json,
    make_folders,
    open_regular,
    share,
    store_json,
)
from gitlease.git.run import group_is_left, numbered_in, started_at, still_runs

if TYPE_CHECKING:
    from gitlease.runs.place import RunPlace

FOLDER = "runs"
KEPT = 50  # ended runs
MOST = 2_000  # records that are ever read
LARGEST = 1_048_576
LONGEST_LOG = 16 * 1_048_576  # bytes that are kept of the log of an ended run: its end
CUT = b"[the beginning is gone: %d bytes]\n"
AT_ONCE = 65_536  # bytes of a log
PATIENCE = 10.0
STEP = 0.05
RECORD, LOG, BRIEF = ".json", ".log", ".md"
FORMAT = 1
ADDED: Mapping[str, object] = {
    "finished": None,
    "pid_started": "",
    "namespace": "",
    "granted": [],
    "joined": [],
}
"""Fields that older records do not have."""
RUNNING, KILLED = "running", "killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The record of a run. Times are wall-clock milliseconds.

    ``runner`` is the process that holds the leases, with its start time, ``pid`` the command's.
    ``outcome`` is None while it runs, and stays so if the runner was killed; ``message`` says more.
    ``finished`` counts its leases that ended completed. ``log`` is the file of its output.
    ``granted`` are those of its leases that it was granted itself, ``joined`` those that its
    session held before; the others it has bound. ``alone``: nobody else speaks in its session.
    ``namespace`` is that of the process numbers.
    """

    id: str
    holder: str
    session: str
    layer: str
    resources: tuple[str, ...]
    scope: str
    lease_ids: tuple[str, ...]
    tokens: tuple[int, ...]
    command: tuple[str, ...]
    log: str
    began_at: int
    boot_id: str
    grace_ms: int = 0
    runner: int = 0
    runner_started: str = ""
    pid: int = 0
    pid_started: str = ""
    namespace: str = ""
    granted: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    alone: bool = False
    ended_at: int | None = None
    outcome: str | None = None
    exit: int | None = None
    message: str | None = None
    finished: int | None = None


class RunsFolder:
    """The runs in a clone's private folder; ``boot_id`` is that of this machine now."""

    def __init__(self, private: str, boot_id: str, folder: str = FOLDER) -> None:
        self._folder, self._boot_id = os.path.join(private, folder), boot_id

    def log_of(self, number: str) -> str:
        """The file of a run's log."""
        return os.path.join(self._folder, number + LOG)

    def write_brief(self, number: str, text: str) -> str:
        """Write the brief of a run's command; return its file. Raises OSError."""
        file = os.path.join(self._folder, number + BRIEF)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(file, flags, 0o600), "w", encoding="utf-8") as opened:
            share(file, opened.fileno())
            opened.write(text)
        return file

    def make(self) -> None:
        """Make the folder. Raises OSError."""
        make_folders(self._folder, 0o700)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other commands of this clone from starting a run in this block."""
        with exclusive(os.path.join(self._folder, "lock"), timeout=PATIENCE):
            yield

    def save(self, record: RunRecord) -> None:
        """Write a record atomically. Raises OSError."""
        file = os.path.join(self._folder, record.id + RECORD)
        before = os.umask(0o077)
        try:
            store_json(file, {"format": FORMAT, **to_json(record)})
        finally:
            os.umask(before)

    def every(self) -> tuple[RunRecord, ...]:
        """All recorded runs, the newest first."""
        found = [record for name in self._names() if (record := self._load(name)) is not None]
        return tuple(sorted(found, key=lambda x: (x.began_at, x.id), reverse=True))

    def latest_of(self, record: RunRecord) -> RunRecord:
        """The latest record of a run; the same if that cannot be read."""
        return self._load(record.id + RECORD) or record

    def runs(self, record: RunRecord) -> bool:
        """Whether its runner still runs."""
        same_boot = record.boot_id == self._boot_id
        return same_boot and still_runs(record.runner, record.runner_started)

    def is_dead(self, record: RunRecord) -> bool:
        """Whether its runner is known to be gone, and its command with it: since this boot only."""
        if record.boot_id != self._boot_id or self.runs(record):
            return False
        if record.namespace not in ("", numbered_in()):
            return False  # its processes cannot be seen from here
        leader = started_at(record.pid) if record.pid_started else ""
        if leader and leader != record.pid_started:
            return True  # a number is given out again only once its whole group has ended
        return not (record.pid and group_is_left(record.pid))

    def is_alive(self, record: RunRecord) -> bool:
        """Whether it may run now on this machine."""
        return record.boot_id == self._boot_id and not self.is_dead(record)

    def state_of(self, record: RunRecord) -> str:
        """The state of a run: ``running``, its outcome, or ``killed`` if its runner is gone."""
        if record.outcome is not None:
            return record.outcome
        return RUNNING if self.runs(record) else KILLED

    def latest(self, resource: Resource, layer: str, *, running: bool = False) -> RunRecord:
        """The newest run of a resource; ``running``: preferably one that still runs.

        Raises NotFound if none is recorded.
        """
        found = [
            x
            for x in self.every()
            if x.layer == layer and resource in map(parse_resource, x.resources)
        ]
        if not found:
            raise NotFound(f"no run of {resource} is known in this clone", resource=resource.text)
        live = (x for x in found if self.state_of(x) == RUNNING)
        return next(live, found[0]) if running else found[0]

    def refuse_second(self, lease_ids: Sequence[str]) -> None:
        """Raise LeaseHeld for a lease that a run has already: the claim only renewed it."""
        record = self._running(lambda x: not set(lease_ids).isdisjoint(x.lease_ids))
        if record is not None:
            shared = next(x for x in record.lease_ids if x in lease_ids)
            resource = record.resources[record.lease_ids.index(shared)]
            raise LeaseHeld(
                f"{resource} is held by your own run of session {record.session}",
                resource=resource,
                holder=record.holder,
            )

    def in_the_way(
        self, sessions: Sequence[str | None], resource: str | None, layer: str
    ) -> RunRecord | None:
        """The running run of this clone that a refusal is about.

        ``sessions`` are those of the conflicting leases. Without any it is one's own lease, refused
        by the run that has it and not by the ledger.
        """
        names = {fold(session) for session in sessions if session is not None}
        if sessions:
            return self._running(lambda x: fold(x.session) in names)
        return self._running(lambda x: x.layer == layer and resource in x.resources)

    def _running(self, matches: Callable[[RunRecord], bool]) -> RunRecord | None:
        every = (record for record in self.every() if matches(record))
        return next((record for record in every if self.state_of(record) == RUNNING), None)

    def end(self, record: RunRecord, patience: float) -> bool:
        """Ask a run to end, and wait so many seconds; whether it has ended."""
        over = time.monotonic() + patience
        if self.runs(record):
            for signum in (signal.SIGTERM, signal.SIGCONT):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(record.runner, signum)
        while self.runs(record):
            if time.monotonic() >= over:
                return False
            time.sleep(STEP)
        return True

    def read(self, record: RunRecord, *, start: int = 0) -> bytes:
        """A part of the log of a run, from an offset on; ``b""`` at its end."""
        try:
            opened = open_regular(self.log_of(record.id))
            if opened is None:
                return b""
            with opened:
                opened.seek(start)
                return opened.read(AT_ONCE)
        except OSError:
            return b""

    def parts(self, record: RunRecord, *, start: int = 0) -> Iterator[bytes]:
        """The log of a run from an offset on, in parts."""
        while part := self.read(record, start=start):
            yield part
            start += len(part)

    def end_of(self, record: RunRecord) -> bytes:
        """The end of the log of a run."""
        return self.read(record, start=max(0, self.size(record) - AT_ONCE))

    def size(self, record: RunRecord) -> int:
        """The size of a run's log in bytes."""
        try:
            return os.stat(self.log_of(record.id), follow_symlinks=False).st_size
        except OSError:
            return 0

    def forget(self, number: str) -> None:
        """Forget a run. It never fails."""
        for ending in (LOG, BRIEF, RECORD):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._folder, number + ending))

    def prune(self) -> int:
        """Forget every run that has ended; return their number."""
        ended = [record for record in self.every() if not self.runs(record)]
        for record in ended:
            self.forget(record.id)
        return len(ended)

    def tidy(self) -> None:
        """Forget the oldest ended runs, and shorten the logs of the others. It never fails."""
        drop_leftovers(self._folder)
        ended = [record for record in self.every() if not self.runs(record)]
        for record in ended[KEPT:]:
            self.forget(record.id)
        for record in ended[:KEPT]:
            with contextlib.suppress(OSError):
                _shorten(self.log_of(record.id))

    def _names(self) -> list[str]:
        try:
            names = sorted(n for n in os.listdir(self._folder) if n.endswith(RECORD))
        except OSError:
            return []
        return names[-MOST:]

    def _load(self, name: str) -> RunRecord | None:
        found = load_json(os.path.join(self._folder, name), LARGEST)
        number = name.removesuffix(RECORD)
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            return None
        given = {**ADDED, **found}
        with contextlib.suppress(*DAMAGE):
            return from_json(RunRecord, {**given, "id": number, "log": self.log_of(number)})
        return None


def runs_of(place: RunPlace, folder: str = FOLDER) -> RunsFolder:
    """The runs in the background of a clone."""
    private = os.path.join(place.repository.common_dir, "gitlease")
    return RunsFolder(private, place.ledger.clock.now().boot_id, folder)


def _shorten(log: str) -> None:
    size = os.stat(log, follow_symlinks=False).st_size
    if size <= LONGEST_LOG:
        return
    temporary = f"{log}.{os.getpid()}.tmp"
    with open(log, "rb") as opened:
        opened.seek(size - LONGEST_LOG)
        rest = opened.read(LONGEST_LOG).partition(b"\n")[2]
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(handle, "wb") as opened_anew:
        share(temporary, handle)
        opened_anew.write(CUT % (size - len(rest)) + rest)
    os.replace(temporary, log)
