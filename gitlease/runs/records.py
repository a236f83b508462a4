"""The records of runs in a clone's private folder, one a run.

A record is in ``alive`` until the leases are given back, so that another process can do that for a
run that was killed. Then it goes, or in the background moves to ``runs``, where the log is. Only
their owner can read them: the arguments and the output of a command may be secret.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

from gitlease.kernel.git.files import (
    alone,
    drop_leftovers,
    load_json,
    make_folders,
    open_regular,
    replace_file,
)
from gitlease.kernel.git.repository import Repository, short_host
from gitlease.kernel.git.run import numbered_in, started_at, still_runs, wait_for_end
from gitlease.kernel.ledger.answers import Answer, ClaimOptions
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.rules.errors import (
    GitleaseError,
    Invalid,
    LeaseHeld,
    NotFound,
    Unavailable,
    UnknownOutcome,
    hint,
)
from gitlease.kernel.rules.frozen import JSON, Damaged, dataclass, replace
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import Actor, same_person
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.moves.operations import Claim, Grant
from gitlease.kernel.rules.resources import WHOLE, Resource, fold, parse_resource
from gitlease.runs.dead_runs import DeadRun
from gitlease.tasks.queue import TaskQueue

OURS = "gitlease: "  # begins the lines of a log that are not the command's
ALIVE, ENDED, POOLS = "alive", "runs", "pools"
KEPT = 50  # ended runs
MOST = 2_000  # records that are ever read
LARGEST = 1_048_576
LONGEST_COMMAND, LONGEST_WORD = 200, 1_000  # words, and characters, that are kept to be shown
LONGEST_LOG = 16 * 1_048_576  # bytes that are kept of the log of an ended run: its end
CUT = b"[the beginning is gone: %d bytes]\n"
AT_ONCE, LAST_LINE = 65_536, 2_048  # bytes of a log
ENDING = 60.0  # seconds, beside its grace, for a run to end: its release may ask four times
FOLLOWED = 0.2  # seconds between two looks at a log
RECORD, LOG, BRIEF, OVER = ".json", ".log", ".md", ".over"
FORMAT = 1
RUNNING, KILLED = "running", "killed"
DONE, GIVEN_BACK, FAILED = "done", "given_back", "failed"
LOST, STOPPED, WAITING = "lost", "stopped", "waiting"
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[^\[\]])?")


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The record of a run. Times are wall-clock milliseconds.

    ``runner`` is the process that holds the leases, with its start time, ``pid`` the command's
    (0 until it begins) and ``guardian`` that of what ends it.
    Only in the background are the words of its ``command`` kept. ``outcome`` is None while it runs,
    and stays so if the runner was killed. ``finished`` counts its leases that ended completed.
    ``granted`` are those that it was granted itself, ``joined`` those that its session held before;
    the others it has bound. ``alone``: nobody else speaks in its session. ``namespace`` is that of
    the process numbers. ``result`` is the task's, ``DONE`` or another one, once it was given back.
    ``git_dir`` is that of the work tree whose other sessions are told of it; "" for none.

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
    guardian: int = 0
    guardian_started: str = ""
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
    git_dir: str = ""
    pool: str = ""
    jobs: int = 0
    counts: Mapping[str, int] | None = None
    stranded: tuple[str, ...] = ()


class RunsFolder:
    """The runs and pools in a clone's private folder; ``boot_id`` is that of this machine now."""

    def __init__(self, private: str, boot_id: str) -> None:
        self._private, self._boot_id = private, boot_id

    def log_of(self, number: str) -> str:
        """The log of a run in the background."""
        return os.path.join(self._private, ENDED, number + LOG)

    def begin(self, record: RunRecord) -> None:
        """Record a background run. Raises OSError, and LeaseHeld for a lease that one has."""
        make_folders(os.path.join(self._private, ENDED), 0o700)
        # Of two that start at once, only one may find that no run has the lease.
        with alone(os.path.join(self._private, ENDED)):
            other = self._running(lambda x: not set(record.lease_ids).isdisjoint(x.lease_ids))
            if other is not None:
                shared = next(x for x in other.lease_ids if x in record.lease_ids)
                resource = other.resources[other.lease_ids.index(shared)]
                what = f"{resource} is held by your own run of session {other.session}"
                raise LeaseHeld(what, resource=resource, holder=other.holder)
            self.save(record)

    def save(self, record: RunRecord) -> None:
        """Write a record atomically, where it belongs by now. Raises OSError."""
        is_over = record.result is not None
        folder = POOLS if record.jobs else ENDED if is_over else ALIVE
        make_folders(os.path.join(self._private, folder), 0o700)
        text = json.dumps({"format": FORMAT, **JSON.dump(record)})
        _replace(self._file(folder, record), text.encode())

    def _file(self, folder: str, record: RunRecord, ending: str = RECORD) -> str:
        return os.path.join(self._private, folder, record.id + ending)

    def alive(self) -> tuple[RunRecord, ...]:
        """The runs that have not given back their leases; some of them may be dead."""
        return self._records(ALIVE)

    def background(self) -> tuple[RunRecord, ...]:
        """The runs in the background, the newest first."""
        return tuple(x for x in self._records(ALIVE, ENDED) if x.command)

    def pools(self) -> tuple[RunRecord, ...]:
        """The pools, the newest first."""
        return self._records(POOLS)

    def _records(self, *folders: str) -> tuple[RunRecord, ...]:
        by_id: dict[str, RunRecord] = {}  # a record may be moved while they are read
        for folder in folders:
            names: list[str] = []
            with contextlib.suppress(OSError):
                listed = os.listdir(os.path.join(self._private, folder))
                # Their names begin with the time, so these are the newest.
                names = sorted(n for n in listed if n.endswith(RECORD))[-MOST:]
            records = (self._load(folder, name) for name in names)
            by_id |= {x.id: x for x in records if x is not None}
        return tuple(sorted(by_id.values(), key=lambda x: (x.began_at, x.id), reverse=True))

    def live(self, layer: str) -> frozenset[str]:
        """The ids of the leases of a layer that live runs have."""
        records = (x for x in self.alive() if x.layer == layer and self.is_alive(x))
        return frozenset(lease_id for record in records for lease_id in record.lease_ids)

    def dead(self, layer: str, actor: Actor) -> tuple[DeadRun, ...]:
        """The dead runs of this person under leases of a layer, but those of a pool that runs."""
        mine = (x for x in self.alive() if x.layer == layer and same_person(x.holder, actor.holder))
        dead = [x for x in mine if self.is_dead(x) or self.may_outlive(x)]
        # A pool counts the failure of its run itself, and then gives the lease back.
        running = {x.id for x in self.pools() if self.runs(x)} if dead else set[str]()
        return tuple(self._dead_run(x) for x in dead if x.pool not in running)

    def layers_of_dead(self, actor: Actor) -> frozenset[str]:
        """The layers in which this person has dead runs."""
        mine = (x for x in self.alive() if same_person(x.holder, actor.holder))
        return frozenset(x.layer for x in mine if self.is_dead(x))

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
            forget=lambda: self.retire(record),
            may_outlive=not self.is_dead(record),
            claims=not any(record.tokens),
            shares=any(
                x.session == session and x.id != record.id and self.is_alive(x)
                for x in self.alive()
            ),
        )

    def latest_of(self, record: RunRecord) -> RunRecord:
        """The latest record of a run; the same if that cannot be read."""
        records = (self._load(folder, record.id + RECORD) for folder in (ALIVE, ENDED))
        return next(filter(None, records), record)

    def runs(self, record: RunRecord) -> bool:
        """Tell whether its runner still runs."""
        # Since another boot all process numbers are other processes'.
        return record.boot_id == self._boot_id and still_runs(record.runner, record.runner_started)

    def is_dead(self, record: RunRecord) -> bool:
        """Tell whether it is known to be gone with all that it started: since this boot only.

        Where the guardian died with its runner, or the system lets orphans escape, nobody knows.
        """
        if record.boot_id != self._boot_id or self.runs(record):
            return False
        if record.namespace not in ("", numbered_in()):
            return False  # its processes cannot be seen from here
        return not record.pid or os.path.exists(self.mark_of(record))

    def may_outlive(self, record: RunRecord) -> bool:
        """Tell whether runner and guardian are gone, while what they ran may work on."""
        is_here = record.boot_id == self._boot_id and record.namespace in ("", numbered_in())
        is_gone = is_here and not self.runs(record) and not self.is_dead(record)
        return is_gone and not still_runs(record.guardian, record.guardian_started)

    def mark_of(self, record: RunRecord) -> str:
        """The file that says that nothing works under the leases of a run any more."""
        return self._file(ALIVE, record, OVER)

    def mark_over(self, record: RunRecord) -> None:
        """Note that a command has ended, before its leases are given back. It never fails."""
        with contextlib.suppress(OSError):
            os.close(os.open(self.mark_of(record), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def is_alive(self, record: RunRecord) -> bool:
        """Tell whether it may run now on this machine."""
        return record.boot_id == self._boot_id and not self.is_dead(record)

    def state_of(self, record: RunRecord) -> str:
        """``running`` until its leases are given back; then its outcome, or ``killed``."""
        runs_on = record.result is None and self.runs(record)
        return RUNNING if runs_on else record.outcome or KILLED

    def latest(self, resource: Resource, layer: str, *, running: bool = False) -> RunRecord:
        """The newest run of a resource, or the newest that is ``running``. Raises NotFound."""
        of_layer = (x for x in self.background() if x.layer == layer)
        records = [x for x in of_layer if resource in map(parse_resource, x.resources)]
        if not records:
            raise NotFound(f"no run of {resource} is known in this clone", resource=resource.text)
        live = (x for x in records if self.state_of(x) == RUNNING)
        return next(live, records[0]) if running else records[0]

    def in_the_way(
        self, sessions: Sequence[str | None], resource: str | None, layer: str
    ) -> RunRecord | None:
        """The running run of this clone that has a lease of these sessions, or one's own lease."""
        names = {fold(session) for session in sessions if session is not None}
        if sessions:
            return self._running(lambda x: fold(x.session) in names)
        return self._running(lambda x: x.layer == layer and resource in x.resources)

    def _running(self, matches: Callable[[RunRecord], bool]) -> RunRecord | None:
        every = (record for record in self.background() if matches(record))
        return next((record for record in every if self.state_of(record) == RUNNING), None)

    def stop(self, record: RunRecord) -> RunRecord:
        """Stop a run and wait for its end; return its record then. Unavailable if it goes on."""
        if self.runs(record):
            # A stopped runner gets TERM only once it goes on.
            for signum in (signal.SIGTERM, signal.SIGCONT):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(record.runner, signum)
            patience = record.grace_ms / MS + ENDING
            wait_for_end(record.runner, record.runner_started, seconds=patience)
        if self.runs(record):
            raise Unavailable(f"the run of session {record.session} has not ended yet")
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
            opened = open_regular(self.log_of(record.id))
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
            size = os.stat(self.log_of(record.id), follow_symlinks=False).st_size
            start = max(0, size - most)
        return b"".join(self.parts(record, start=start)), start > 0

    def retire(self, record: RunRecord) -> None:
        """Let go of a run whose leases are given back, or lost. It never fails."""
        with contextlib.suppress(OSError):
            os.unlink(self._file(ALIVE, record, BRIEF))
        with contextlib.suppress(OSError):
            if record.command:
                os.rename(self._file(ALIVE, record), self._file(ENDED, record))
            else:
                os.unlink(self._file(ALIVE, record))
        # Last: without it the record would be that of a run of which nobody knows.
        with contextlib.suppress(OSError):
            os.unlink(self.mark_of(record))

    def forget(self, record: RunRecord) -> None:
        """Forget a run and its log. It never fails."""
        for folder in (ALIVE, ENDED, POOLS):
            for ending in (BRIEF, LOG, RECORD, OVER):
                with contextlib.suppress(OSError):
                    os.unlink(self._file(folder, record, ending))

    def write_brief(self, record: RunRecord, text: str) -> str:
        """Write the brief of a run, which goes with it; return its file. Raises Invalid."""
        file = self._file(ALIVE, record, BRIEF)
        try:
            make_folders(os.path.dirname(file), 0o700)
            _replace(file, text.encode())
        except OSError as error:
            raise cannot_write("GITLEASE_BRIEF cannot be written", error) from None
        return file

    def tidy(self) -> None:
        """Forget the oldest that have ended, and shorten the logs of the others. It never fails."""
        for folder in (ALIVE, ENDED, POOLS):
            drop_leftovers(os.path.join(self._private, folder))
        # A runner may still write its last lines after its leases are back.
        ended = [x for x in self._records(ENDED) if not self.runs(x)]
        pools = [x for x in self.pools() if not self.runs(x)]
        for record in (*ended[KEPT:], *pools[KEPT:]):
            self.forget(record)
        for record in ended[:KEPT]:
            with contextlib.suppress(OSError):
                _shorten(self.log_of(record.id))

    def _load(self, folder: str, name: str) -> RunRecord | None:
        document = load_json(os.path.join(self._private, folder, name), LARGEST)
        number = name.removesuffix(RECORD)
        with contextlib.suppress(Damaged):
            if isinstance(document, dict) and document.get("format") == FORMAT:
                return JSON.load(RunRecord, document, id=number, log=self.log_of(number))
        return None


def runs_of(place: RunPlace) -> RunsFolder:
    """The runs of a clone."""
    private = os.path.join(place.repository.common_dir, "gitlease")
    return RunsFolder(private, place.ledger.clock.now().boot_id)


def lines_of(log: bytes) -> list[str]:
    """The command's lines of a log, as a terminal leaves them: no colours, and each drawn once."""
    text = _ESCAPES.sub("", log.decode("utf-8", "replace"))
    drawn = (line.rstrip().rpartition("\r")[2] for line in text.split("\n"))
    lines = ("".join(c if c.isprintable() else " " for c in line).rstrip() for line in drawn)
    return [line for line in lines if line and not line.startswith(OURS)]


def _replace(file: str, data: bytes) -> None:
    # Arguments and output may be secret, and a person's umask may let everybody read.
    before = os.umask(0o077)
    try:
        replace_file(file, data)
    finally:
        os.umask(before)


def _shorten(log: str) -> None:
    size = os.stat(log, follow_symlinks=False).st_size
    if size > LONGEST_LOG:
        with open(log, "rb") as opened:
            opened.seek(size - LONGEST_LOG)
            rest = opened.read(LONGEST_LOG).partition(b"\n")[2]
        _replace(log, CUT % (size - len(rest)) + rest)


def record_of(
    place: RunPlace, answer: Answer, command: Sequence[str] = (), *, shown: bool = True, **more: Any
) -> RunRecord:
    """The record of a run under these leases, which begins now; this process is its runner.

    ``shown``: other sessions in the work tree are told of it.
    """
    now, leases, runner = place.ledger.clock.now(), answer.leases, os.getpid()
    return RunRecord(
        id=answer.run or f"{now.wall_ms:015d}-{fresh_id()[:8]}",  # which sorts by time
        holder=place.actor.holder,
        session=place.actor.session or "",
        layer=place.layer,
        resources=tuple(view.resource for view in leases),
        scope=leases[0].scope if leases else WHOLE,
        lease_ids=tuple(view.lease_id for view in leases),
        tokens=tuple(view.token for view in leases),
        began_at=now.wall_ms,
        boot_id=now.boot_id,
        namespace=numbered_in(),
        granted=tuple(x.lease_id for x in leases if not x.renewals),
        joined=tuple(x.lease_id for x in leases if x.renewals and x.lease_id not in answer.bound),
        alone=not place.actor.session_explicit,
        git_dir=place.repository.git_dir if shown else "",
        command=tuple(word[:LONGEST_WORD] for word in command[:LONGEST_COMMAND]),
        runner=runner,
        runner_started=started_at(runner),
        **more,
    )


@contextlib.contextmanager
def claiming(place: RunPlace, options: ClaimOptions) -> Iterator[tuple[str, ClaimOptions]]:
    """Keep the record of a run from before its claim is sent; its id and the claim's options.

    If this process is killed meanwhile, the next command of the clone ends what was granted. The
    record stays if it cannot be known whether the claim landed.
    """
    record = record_of(place, Answer(status="claim"), shown=False)

    def note(claims: Sequence[Claim]) -> None:
        nonlocal record
        names, ids = [*record.resources], [*record.lease_ids]
        granted = [*record.granted]
        for claim in claims:
            names.append(claim.resource.text)
            ids.append(claim.lease_id)
            granted.append(claim.lease_id)
            # What its person holds without a session is bound by the claim, and is theirs again.
            for own in place.ledger.decisions.own_records(claim.resource) if options.bind else ():
                if own.session is None and own.lease_id not in ids:
                    names.append(own.resource.text)
                    ids.append(own.lease_id)
        record = replace(
            record,
            scope=options.scope,
            resources=tuple(names),
            lease_ids=tuple(ids),
            tokens=(0,) * len(ids),
            granted=tuple(granted),
        )
        remember(place, record)

    remember(place, record)
    try:
        yield record.id, replace(options, before_sending=note)
    except UnknownOutcome:
        raise
    except GitleaseError:
        runs_of(place).retire(record)
        raise


def cannot_write(what: str, error: OSError) -> Invalid:
    """The refusal where a run cannot have its files: often another one is in their place."""
    file = f"{os.fsdecode(error.filename)}: " if error.filename else ""
    mends = (hint("", "doctor", fix=True),) if file else ()
    return Invalid(f"{what}: {file}{error.strerror}", hints=mends)


def remember(place: RunPlace, record: RunRecord) -> None:
    """Keep the record of a run that works under its leases. It never fails."""
    with contextlib.suppress(OSError):
        runs_of(place).save(record)


def is_process_alive(view: LeaseView) -> bool | None:
    """Tell whether the process that a lease names runs; None if this machine cannot know."""
    here = view.pid is not None and view.host == short_host()
    return bool(started_at(view.pid or 0)) if here else None


class RunPlace(Protocol):
    """One person in one repository, with the session of one ledger."""

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
    def everywhere(self) -> Sequence[LedgerSession]: ...
    def main_branch(self) -> str | None: ...
    def learn_main_branch(self) -> str | None: ...
