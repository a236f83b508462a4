"""The records of runs in a clone's private folder: those in the background, and all that are alive.

Only their owner can read them: the arguments and the output of a command may be secret.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol, Self

from gitlease.core.errors import Invalid, LeaseHeld, NotFound, Unavailable
from gitlease.core.frozen import dataclass
from gitlease.core.instant import MS
from gitlease.core.lease import Actor, same_person
from gitlease.core.moves.operations import Grant
from gitlease.core.resources import WHOLE, Resource, fold, parse_resource
from gitlease.core.shape import JSON, Damaged
from gitlease.engine.answers import Answer
from gitlease.engine.ports import DeadRun
from gitlease.git.files import (
    alone,
    drop_leftovers,
    load_json,
    make_folders,
    open_regular,
    share,
    store_json,
)
from gitlease.git.repository import short_host
from gitlease.git.run import group_is_left, numbered_in, started_at, still_runs

if TYPE_CHECKING:
    from gitlease.core.view import LeaseView
    from gitlease.engine.ledger_session import LedgerSession
    from gitlease.engine.queue import TaskQueue
    from gitlease.git.repository import Repository

OURS = "gitlease: "  # begins the lines of a log that are not the command's
FOLDER, LIVE, POOLS = "runs", "alive", "pools"
KEPT = 50  # ended runs
MOST = 2_000  # records that are ever read
LARGEST = 1_048_576
LONGEST_LOG = 16 * 1_048_576  # bytes that are kept of the log of an ended run: its end
CUT = b"[the beginning is gone: %d bytes]\n"
AT_ONCE, LAST_LINE = 65_536, 2_048  # bytes of a log
ENDING = 60.0  # seconds, beside its grace, for a run to end: its release may ask four times
STEP, FOLLOWED = 0.05, 0.2
RECORD, LOG, BRIEF = ".json", ".log", ".md"
FORMAT = 1
RUNNING, KILLED = "running", "killed"
DONE, GIVEN_BACK, FAILED = "done", "given_back", "failed"
LOST, STOPPED, WAITING = "lost", "stopped", "waiting"
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[^\[\]])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The record of a run. Times are wall-clock milliseconds.

    ``runner`` is the process that holds the leases, with its start time, ``pid`` the command's.
    ``outcome`` is None while it runs, and stays so if the runner was killed. ``finished`` counts
    its leases that ended completed. ``granted`` are those that it was granted itself, ``joined``
    those that its session held before; the others it has bound. ``alone``: nobody else speaks in
    its session. ``namespace`` is that of the process numbers. ``result`` is the task's, ``DONE`` or
    another one, once it was given back.

    ``pool`` is the number of the pool that started it. A pool has a record without leases, with the
    number of its tasks by their results and the names of those that are ``stranded``.
    """

    id: str
    holder: str
    session: str
    layer: str
    resources: tuple[str, ...]
    scope: str
    lease_ids: tuple[str, ...]
    tokens: tuple[int, ...]
    began_at: int
    boot_id: str
    command: tuple[str, ...] = ()
    log: str = ""
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
    result: str | None = None
    pool: str = ""
    jobs: int = 0
    counts: Mapping[str, int] | None = None
    stranded: tuple[str, ...] = ()


class RunsFolder:
    """The runs in a clone's private folder; ``boot_id`` is that of this machine now."""

    def __init__(self, private: str, boot_id: str, folder: str = FOLDER) -> None:
        self._folder, self._boot_id = os.path.join(private, folder), boot_id

    def file_of(self, number: str, ending: str = LOG) -> str:
        """A file of a run: its log, unless another one is named."""
        return os.path.join(self._folder, number + ending)

    def make(self) -> None:
        """Make the folder. Raises OSError."""
        make_folders(self._folder, 0o700)

    def begin(self, record: RunRecord) -> None:
        """Record a run that begins. Raises OSError, and LeaseHeld for a lease that a run has."""
        self.make()
        with alone(self._folder):
            other = self._running(lambda x: not set(record.lease_ids).isdisjoint(x.lease_ids))
            if other is not None:
                shared = next(x for x in other.lease_ids if x in record.lease_ids)
                resource = other.resources[other.lease_ids.index(shared)]
                raise LeaseHeld(
                    f"{resource} is held by your own run of session {other.session}",
                    resource=resource,
                    holder=other.holder,
                )
            self.save(record)

    def save(self, record: RunRecord) -> None:
        """Write a record atomically. Raises OSError."""
        before = os.umask(0o077)
        try:
            store_json(self.file_of(record.id, RECORD), {"format": FORMAT, **JSON.dump(record)})
        finally:
            os.umask(before)

    def every(self) -> tuple[RunRecord, ...]:
        """All recorded runs, the newest first."""
        names: list[str] = []
        with contextlib.suppress(OSError):
            names = sorted(n for n in os.listdir(self._folder) if n.endswith(RECORD))[-MOST:]
        found = [record for name in names if (record := self._load(name)) is not None]
        return tuple(sorted(found, key=lambda x: (x.began_at, x.id), reverse=True))

    def live(self, layer: str) -> frozenset[str]:
        """The ids of the leases of a layer that live runs have."""
        records = (x for x in self.every() if x.layer == layer and self.is_alive(x))
        return frozenset(lease_id for record in records for lease_id in record.lease_ids)

    def dead(self, layer: str, actor: Actor) -> tuple[DeadRun, ...]:
        """The dead runs of this person under leases of a layer, but those of a pool that runs."""
        own = (x for x in self.every() if x.layer == layer and same_person(x.holder, actor.holder))
        dead = [x for x in own if self.is_dead(x)]
        pools = RunsFolder(os.path.dirname(self._folder), self._boot_id, POOLS)
        running = {x.id for x in pools.every() if pools.runs(x)} if dead else set[str]()
        return tuple(self._dead_run(x) for x in dead if x.pool not in running)

    def _dead_run(self, record: RunRecord) -> DeadRun:
        words = zip(record.resources, record.lease_ids, record.tokens, strict=False)
        scope, session = record.scope, record.session
        grants = [Grant(parse_resource(x), scope, session, lease, n) for x, lease, n in words]
        kept = {*record.granted, *record.joined}
        return DeadRun(
            session=session,
            granted=tuple(x for x in grants if x.lease_id in record.granted),
            bound=tuple(x for x in grants if x.lease_id not in kept),
            alone=record.alone,
            forget=lambda: self.forget(record.id),
        )

    def latest_of(self, record: RunRecord) -> RunRecord:
        """The latest record of a run; the same if that cannot be read."""
        return self._load(record.id + RECORD) or record

    def runs(self, record: RunRecord) -> bool:
        """Whether its runner still runs."""
        return record.boot_id == self._boot_id and still_runs(record.runner, record.runner_started)

    def is_dead(self, record: RunRecord) -> bool:
        """Whether its runner is known to be gone, and its command with it: since this boot only."""
        if record.boot_id != self._boot_id or self.runs(record):
            return False
        if record.namespace not in ("", numbered_in()):
            return False  # its processes cannot be seen from here
        leader = started_at(record.pid) if record.pid_started else ""
        if leader and leader != record.pid_started:
            return True  # a number is given out again only once its whole group has ended
        return not (record.pid and (leader or group_is_left(record.pid)))

    def is_alive(self, record: RunRecord) -> bool:
        """Whether it may run now on this machine."""
        return record.boot_id == self._boot_id and not self.is_dead(record)

    def state_of(self, record: RunRecord) -> str:
        """``running`` until its leases are given back; then its outcome, or ``killed``."""
        runs_on = record.result is None and self.runs(record)
        return RUNNING if runs_on else record.outcome or KILLED

    def latest(self, resource: Resource, layer: str, *, running: bool = False) -> RunRecord:
        """The newest run of a resource, or the newest that is ``running``. Raises NotFound."""
        of_layer = (x for x in self.every() if x.layer == layer)
        found = [x for x in of_layer if resource in map(parse_resource, x.resources)]
        if not found:
            raise NotFound(f"no run of {resource} is known in this clone", resource=resource.text)
        live = (x for x in found if self.state_of(x) == RUNNING)
        return next(live, found[0]) if running else found[0]

    def in_the_way(
        self, sessions: Sequence[str | None], resource: str | None, layer: str
    ) -> RunRecord | None:
        """The running run of this clone that has a lease of these sessions, or one's own lease."""
        names = {fold(session) for session in sessions if session is not None}
        if sessions:
            return self._running(lambda x: fold(x.session) in names)
        return self._running(lambda x: x.layer == layer and resource in x.resources)

    def _running(self, matches: Callable[[RunRecord], bool]) -> RunRecord | None:
        every = (record for record in self.every() if matches(record))
        return next((record for record in every if self.state_of(record) == RUNNING), None)

    def stop(self, record: RunRecord) -> RunRecord:
        """Stop a run and wait for its end; return its record then. Unavailable if it goes on."""
        over = time.monotonic() + record.grace_ms / MS + ENDING
        if self.runs(record):
            for signum in (signal.SIGTERM, signal.SIGCONT):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(record.runner, signum)
        while self.runs(record):
            if time.monotonic() >= over:
                raise Unavailable(f"the run of session {record.session} has not ended yet")
            time.sleep(STEP)
        return self.latest_of(record)

    def follow(self, record: RunRecord, write: Callable[[bytes], None]) -> None:
        """Write out a log as it grows, until its run has ended."""
        offset, runs_on = 0, True
        while runs_on:
            runs_on = self.runs(record)  # asked first: what it printed last is read after that
            for part in self.parts(record, start=offset):
                write(part)
                offset += len(part)
            if runs_on:
                time.sleep(FOLLOWED)

    def parts(self, record: RunRecord, *, start: int = 0) -> Iterator[bytes]:
        """The log of a run from an offset on, in parts."""
        with contextlib.suppress(OSError):
            opened = open_regular(self.file_of(record.id))
            if opened is None:
                return
            with opened:
                opened.seek(start)
                while part := opened.read(AT_ONCE):
                    yield part

    def last_line(self, record: RunRecord) -> str:
        """The last line of the log of a run."""
        return (lines_of(self.end_of(record, LAST_LINE)[0]) or [""])[-1]

    def end_of(self, record: RunRecord, most: int = AT_ONCE) -> tuple[bytes, bool]:
        """The end of the log of a run, and whether it is cut."""
        start = 0
        with contextlib.suppress(OSError):
            size = os.stat(self.file_of(record.id), follow_symlinks=False).st_size
            start = max(0, size - most)
        return b"".join(self.parts(record, start=start)), start > 0

    def forget(self, number: str) -> None:
        """Forget a run. It never fails."""
        for ending in (LOG, BRIEF, RECORD):
            with contextlib.suppress(OSError):
                os.unlink(self.file_of(number, ending))

    def tidy(self) -> None:
        """Forget the oldest ended runs, and shorten the logs of the others. It never fails."""
        drop_leftovers(self._folder)
        ended = [record for record in self.every() if not self.runs(record)]
        for record in ended[KEPT:]:
            self.forget(record.id)
        for record in ended[:KEPT]:
            with contextlib.suppress(OSError):
                _shorten(self.file_of(record.id))

    def _load(self, name: str) -> RunRecord | None:
        found = load_json(os.path.join(self._folder, name), LARGEST)
        number = name.removesuffix(RECORD)
        with contextlib.suppress(Damaged):
            if isinstance(found, dict) and found.get("format") == FORMAT:
                return JSON.load(RunRecord, found, id=number, log=self.file_of(number))
        return None


def runs_of(place: RunPlace, folder: str = FOLDER) -> RunsFolder:
    """The runs in the background of a clone."""
    private = os.path.join(place.repository.common_dir, "gitlease")
    return RunsFolder(private, place.ledger.clock.now().boot_id, folder)


def lines_of(log: bytes) -> list[str]:
    """The command's lines of a log, as a terminal leaves them: no colours, and each drawn once."""
    text = _ESCAPES.sub("", log.decode("utf-8", "replace"))
    drawn = (line.rstrip().rpartition("\r")[2] for line in text.split("\n"))
    lines = ("".join(c if c.isprintable() else " " for c in line).rstrip() for line in drawn)
    return [line for line in lines if line and not line.startswith(OURS)]


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


def record_of(place: RunPlace, answer: Answer, *, number: str, **more: Any) -> RunRecord:
    """A record of a run under these leases, which begins now; this process is its runner."""
    now, leases, runner = place.ledger.clock.now(), answer.leases, more.pop("runner", os.getpid())
    return RunRecord(
        id=number,
        holder=place.actor.holder,
        session=place.actor.session or "",
        layer=place.layer,
        resources=tuple(view.resource for view in leases),
        scope=leases[0].scope if leases else WHOLE,
        lease_ids=tuple(view.lease_id for view in leases),
        tokens=tuple(view.token for view in leases),
        began_at=now.wall_ms,
        boot_id=now.boot_id,
        runner=runner,
        runner_started=started_at(runner),
        **more,
    )


def alive_in(place: RunPlace) -> RunsFolder:
    """A record of each run of this clone that has not given back its leases."""
    return runs_of(place, LIVE)


def remember(
    place: RunPlace, answer: Answer, *, runner: int = 0, present: bool = True, pool: str = ""
) -> None:
    """Record that this process, of a ``runner``, works under these leases. It never fails."""
    leases, own = answer.leases, os.getpid()
    record = record_of(
        place,
        answer,
        number=_run_id(answer),
        runner=runner or own,
        pid=own if runner else 0,
        pid_started=started_at(own) if runner else "",
        namespace=numbered_in(),
        granted=tuple(x.lease_id for x in leases if not x.renewals),
        joined=tuple(x.lease_id for x in leases if x.renewals and x.lease_id not in answer.bound),
        alone=not place.actor.session_explicit,
        pool=pool,
    )
    runs = alive_in(place)
    with contextlib.suppress(OSError):
        runs.make()
        runs.save(record)
    if present:
        place.note_run(record.id)


def forget(place: RunPlace, answer: Answer) -> None:
    """Forget a run that has given back its leases, or lost them. It never fails."""
    alive_in(place).forget(_run_id(answer))
    place.forget_run(_run_id(answer))


def is_process_alive(view: LeaseView) -> bool | None:
    """Whether the process that a lease names runs; None if that is not known on this machine."""
    here = view.pid is not None and view.host == short_host()
    return bool(started_at(view.pid or 0)) if here else None


def write_brief(place: RunPlace, answer: Answer, text: str) -> str:
    """Write the brief of a run; it is forgotten with the run. Raises Invalid."""
    runs = alive_in(place)
    file = runs.file_of(_run_id(answer), BRIEF)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        runs.make()
        with open(os.open(file, flags, 0o600), "w", encoding="utf-8") as opened:
            share(file, opened.fileno())
            opened.write(text)
    except OSError as error:
        raise Invalid(f"GITLEASE_BRIEF cannot be written: {error.strerror}") from None
    return file


def _run_id(answer: Answer) -> str:
    # Lease ids are untrusted, and this names a file.
    return sha256(answer.leases[0].lease_id.encode()).hexdigest()[:24]


class RunPlace(Protocol):
    """One person in one repository, with the session of one ledger.

    ``note_run`` and ``forget_run`` show other sessions of a work tree what runs in it.
    """

    @property
    def repository(self) -> Repository: ...
    @property
    def actor(self) -> Actor: ...
    @property
    def layer(self) -> str: ...
    @property
    def ledger(self) -> LedgerSession: ...
    @property
    def queue(self) -> TaskQueue: ...
    @property
    def again(self) -> Callable[..., Self]: ...
    def main_branch(self) -> str | None: ...
    def learn_main_branch(self) -> str | None: ...
    def note_run(self, run_id: str) -> None: ...
    def forget_run(self, run_id: str) -> None: ...
