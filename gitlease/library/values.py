"""The values that the library's verbs return."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from gitlease.kernel.ledger import answers
from gitlease.kernel.ledger.answers import Taken
from gitlease.kernel.rules.edge import Progress, Task
from gitlease.kernel.rules.frozen import Codec, Spelling, dataclass, replace
from gitlease.kernel.rules.instant import MS, moment_of
from gitlease.kernel.rules.lease_view import LeaseState, LeaseView
from gitlease.kernel.rules.ledger import Note, Setback
from gitlease.kernel.rules.resources import parse_resource, word_anywhere
from gitlease.runs.leased_command import Ran
from gitlease.runs.verbs import OUTCOMES
from gitlease.runs.verbs import WorkEvent as WorkEvent
from gitlease.runs.verbs import WorkOutcome as WorkOutcome
from gitlease.tasks import queue
from gitlease.tasks.queue import Carried, Carry, Entry, WhyNot
from gitlease.verbs import wire
from gitlease.verbs.table import Result
from gitlease.wiring.workspace import Setting

Lease = LeaseView  # as programs know it


@dataclass(frozen=True, kw_only=True)
class LeftNote:
    """A note for the next holder of a resource."""

    resource: str
    author: str
    at: datetime
    text: str


@dataclass(frozen=True, kw_only=True)
class Briefing:
    """A briefing. ``entries`` are all tasks in the order of the queue.

    ``next_up`` are the offered tasks, best first; ``others`` the leases of others in every layer in
    use; ``notes`` those of the carried and next tasks. ``left_alone`` failed lately, or wait for a
    person, and are not offered.
    """

    entries: tuple[Entry, ...]
    next_up: tuple[Entry, ...]
    carried: tuple[Carry, ...]
    taken: tuple[Taken, ...]
    notes: tuple[LeftNote, ...]
    others: tuple[Lease, ...]
    left_alone: tuple[Entry, ...]
    warnings: tuple[str, ...]


# The kernel has a class of this name; programs see it, in help and reprs too.
QueueReading = Briefing
QueueReading.__name__ = QueueReading.__qualname__ = "QueueReading"


@dataclass(frozen=True, kw_only=True)
class LogEntry:
    """An entry of the audit trail: the operation (``kind``), by whom, and when by their clock.

    ``holder`` and ``session`` are those of the lease.
    """

    kind: str
    at: datetime
    by: str
    resource: str | None
    scope: str | None
    holder: str | None
    session: str | None
    token: int | None
    reason: str | None
    detail: str | None


@dataclass(frozen=True, kw_only=True)
class LedgerStatus:
    """The ledger at a glance. ``leases`` are those that may block others.

    ``place`` is its remote, without secrets; ``id`` is None before the first claim.
    """

    place: str
    layer: str
    id: str | None
    revision: int
    leases: tuple[Lease, ...]


@dataclass(frozen=True, kw_only=True)
class WhoAmI:
    """Your identity in the ledger, and where holder and session come from."""

    holder: str
    session: str | None
    holder_source: str
    session_source: str


@dataclass(frozen=True, kw_only=True)
class InitResult:
    """The result of setting a repository up. ``settings_file`` is the written file, if any.

    ``id`` is None if the remote could not be reached: then the first claim makes the ledger.
    """

    settings_file: str | None
    place: str
    layer: str
    id: str | None
    revision: int | None


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The result of a command that ran under leases.

    ``status`` is its exit status, 128 + n if signal n ended it; ``leases`` are as they were
    granted. ``done``: all of them ended completed, by the command itself or after its success.
    ``stopped``: `gitlease dispatch --stop` or a signal stopped it.
    """

    status: int
    leases: tuple[Lease, ...]
    done: bool = False
    stopped: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WorkResult:
    """The number of tasks by outcome, and the ended runs in order.

    ``stopped_by`` is the number of the signal that stopped the runs, if any. ``left`` counts the
    tasks that others have, ``stranded`` names those that nobody works on and that could not be
    taken, and ``waiting`` counts those that their commands kept for a
    person.
    """

    done: int
    given_back: int
    failed: int
    lost: int
    stopped: int
    ended: tuple[WorkEvent, ...]
    stopped_by: int | None = None
    left: int = 0
    stranded: tuple[str, ...] = ()
    waiting: int = 0


@dataclass(frozen=True, kw_only=True)
class BoardEntry:
    """A lease on the board, or a task without one.

    ``section`` is ``held``, ``blocked`` (by another lease of its paths, by who waits for it, or
    after failures), ``waiting``, ``expired``, ``abandoned`` or ``free``. ``ends_at`` is in the past
    for an expired lease. ``waiting`` are those who wait for it, ``waits_for`` its open
    dependencies. ``pool`` is the pool whose worker has it, and the machine where it runs.
    """

    section: str
    resource: str
    scope: str
    title: str | None
    holder: str | None
    session: str | None
    host: str | None
    branch: str | None
    reason: str | None
    ends_at: datetime | None
    free_at: datetime | None
    mine: bool
    waiting: tuple[str, ...]
    waits_for: tuple[str, ...]
    pool: str | None = None


@dataclass(frozen=True, kw_only=True)
class BoardNews:
    """A recent event on the board, in words."""

    at: datetime
    what: str
    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Board:
    """Tasks and leases at a glance, by section, and recent events, newest first."""

    rows: tuple[BoardEntry, ...]
    news: tuple[BoardNews, ...]


# What a gateway answers, in JSON.
ANSWERS = Codec(
    ValueError,
    {
        datetime: Spelling(lambda _key, data: datetime.fromisoformat(data)),
        LeaseState: Spelling(lambda _key, data: data),
    },
    lenient=True,
)


# If ended, or planned.
_LACKING = {"lease_id": "", "token": 0, "ttl_seconds": 0, "renewals": 0, "paths": []}


def lease_of(data: Mapping[str, Any]) -> Lease:
    """A lease as the library has it; unknown fields of a newer gateway are ignored."""
    known = {x: y for x, y in data.items() if y is not None}
    # Released or revoked: known from the audit trail alone.
    if ended := known.get("ended_at"):
        known = dict.fromkeys(("claimed_at", "renewed_at", "expires_at"), ended) | known
        # By two clocks, of which the gateway's may be ahead.
        since = datetime.fromisoformat(ended) - datetime.now(UTC)
        known["expires_in"] = min(0, int(since.total_seconds()))
    return ANSWERS.load(Lease, _LACKING | known)


def ended_of(one: answers.EndedLease) -> Lease:
    """A lease that was released or revoked, as the library has it."""
    return lease_of(wire.ended_lease(one))


EVERYWHERE = frozenset(wire.success("", body={}))


def body_of(result: Result) -> Mapping[str, Any]:
    """The answer of a verb as JSON has it, without what every answer has."""
    return {x: y for x, y in result.body.items() if x not in EVERYWHERE}


def task_of(data: Mapping[str, Any]) -> Task:
    """A task, which a gateway's answer has as JSON."""
    texts: dict[str, Any] = {
        x: data[x] or "" for x in ("file", "title", "status", "priority", "created")
    }
    return Task(
        **texts,
        resource=parse_resource(word_anywhere(data["resource"])),
        progress=Progress(data["progress"]),
        assigned=tuple(x for x, y in data["assigned_in"].items() if y != "record"),
        records=tuple(x for x, y in data["assigned_in"].items() if y != "file"),
        depends_on=tuple(data["depends_on"]),
        paths=tuple(data["paths"]),
    )


def entry_of(data: Mapping[str, Any]) -> Entry:
    """A task of the queue."""
    task, lease, failed = task_of(data), data["lease"] and lease_of(data["lease"]), data["setback"]
    if failed is not None:
        at = round(datetime.fromisoformat(failed["last_at"]).timestamp() * MS)
        last = Note("", task.resource, failed["by"], at, failed["note"])
        failed = Setback(failed["failures"], last, failed["waits"])
    return Entry(
        task,
        data["why_not"] and WhyNot(data["why_not"]),
        data["who"],
        lease,
        waits_for=tuple(data["waits_for"]),
        setback=failed,
    )


def queued(result: Result) -> tuple[Entry, ...]:
    """The tasks of the queue."""
    if result.value is not None:
        return cast(tuple[Entry, ...], result.value.entries)
    return tuple(map(entry_of, result.body["tasks"]))


def run_result(result: Result) -> RunResult:
    """The end of a command under leases."""
    ran: Ran = result.value
    return RunResult(
        status=ran.ended.exit,
        leases=ran.answer.leases,
        done=ran.finished == len(ran.answer.leases),
        stopped=ran.ended.stopped,
        warnings=tuple(dict.fromkeys(result.warnings)),
    )


def work_result(result: Result) -> WorkResult:
    """The outcome of a pool's tasks."""
    ran, ended = result.value
    return WorkResult(
        **{outcome: ran.counts[outcome] for outcome in OUTCOMES},
        ended=ended,
        stopped_by=ran.stopped_by,
        left=ran.left,
        stranded=tuple(sorted(ran.stranded)),
    )


def log_entries(result: Result) -> tuple[LogEntry, ...]:
    """The events of an audit trail, which a gateway's answer has as JSON."""
    if result.value is None:
        return tuple(ANSWERS.load(LogEntry, x) for x in result.body["events"])
    events = [x._asdict() | {"at": moment_of(x.at)} for x in result.value]
    return tuple(LogEntry(**{k: x[k] for k in LogEntry.__annotations__}) for x in events)


def next_task(result: Result) -> Task:
    """The task of an answer, which a gateway's has as JSON."""
    if result.value is not None:
        return cast(Task, result.value)
    return task_of(result.body["task"])


def board(result: Result) -> Board:
    """The board of an answer in JSON."""
    return ANSWERS.load(Board, result.body)


def ledger_status(result: Result) -> LedgerStatus:
    """The ledger, and its leases that may block others."""
    ledger = {x: result.body["ledger"][x] for x in ("place", "layer", "id", "revision")}
    return LedgerStatus(**ledger, leases=tuple(result.leases))


def who_am_i(result: Result) -> WhoAmI:
    """The caller's identity, and its sources as Python has them."""
    sources = {f"{x}_source": in_python(y) for x, y in result.body["sources"].items()}
    return WhoAmI(holder=result.body["holder"], session=result.body["session"], **sources)


def init_result(result: Result) -> InitResult:
    """The result of a set-up."""
    ledger = {x: result.body["ledger"][x] for x in ("place", "layer", "id", "revision")}
    return InitResult(settings_file=result.body["settings_file"], **ledger)


def settings(result: Result) -> tuple[Setting, ...]:
    """The settings with their sources."""
    return tuple(replace(x, source=in_python(x.source)) for x in result.value)


def in_python(source: str) -> str:
    """The source of a setting: a flag is an argument here."""
    return source.removeprefix("flag --")


def briefing(result: Result) -> QueueReading:
    """All that a briefing read; a gateway tells of no other tasks."""
    if result.value is not None:
        reading: queue.QueueReading = result.value
        notes = tuple(
            LeftNote(resource=x.resource.text, author=x.author, at=moment_of(x.at), text=x.text)
            for x in reading.notes
        )
        return QueueReading(**vars(reading) | {"notes": notes})
    body = result.body
    offered, failed = (tuple(map(entry_of, body[x])) for x in ("next_tasks", "left_alone"))
    carried = [
        Carry(
            x["resource"],
            Carried(x["state"]),
            task_of(x) if x["file"] else None,
            x["lease"] and lease_of(x["lease"]),
            x["taken_over_by"],
        )
        for x in body["carrying"]
    ]
    return QueueReading(
        entries=(*offered, *failed),
        next_up=offered,
        carried=tuple(carried),
        taken=tuple(ANSWERS.load(Taken, x) for x in body["taken"]),
        notes=tuple(ANSWERS.load(LeftNote, x) for x in body["notes"]),
        others=tuple(map(lease_of, body["others"])),
        left_alone=failed,
        warnings=tuple(body["warnings"]),
    )
