"""What a check of stale claims tells people: who, since when, what shows it, and what to type.

None of these is told of a task that a label or a field exempts, but for a file that cannot be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from shlex import quote

from gitlease.domain.duration import humanize_duration
from gitlease.domain.edge import Task, printable
from gitlease.domain.finding import Finding, Level, Rule
from gitlease.domain.frozen import dataclass
from gitlease.domain.instant import MS, rfc3339
from gitlease.domain.lease import Lease
from gitlease.domain.persons import Persons
from gitlease.domain.resource import WHOLE
from gitlease.domain.stale import Idle, StaleRules, is_done
from gitlease.domain.stale_facts import Edge, Held, Past, by_resource
from gitlease.domain.stale_signs import SHORT

STALE_EDGE = Rule(
    "stale-edge",
    Level.ERROR,
    "a task is assigned to somebody who has no lease of it and has not worked on it for longer"
    " than stale.after",
)
LAPSED_LEASE = Rule(
    "lapsed-lease", Level.WARNING, "a lease ran out, and nobody cleaned it up or took it over"
)
LEASE_ON_DONE = Rule("lease-on-done", Level.WARNING, "a task is done, and a lease of it is left")
LEASE_ON_GONE = Rule(
    "lease-on-gone", Level.WARNING, "the file of a task was deleted, and a lease of it is left"
)
LEASE_WITHOUT_EDGE = Rule(
    "lease-without-edge",
    Level.WARNING,
    "somebody holds a task whose file does not say so, on no branch that this clone knows",
)
UNKNOWN_ASSIGNEE = Rule(
    "unknown-assignee",
    Level.WARNING,
    "a task is assigned to a name that is nobody's: not in people, no author, no holder",
)
DUPLICATE_ID = Rule("duplicate-id", Level.ERROR, "several task files have one id")
BAD_TASK_FILE = Rule("bad-task-file", Level.ERROR, "a task file cannot be used")
RULES = (
    STALE_EDGE,
    LAPSED_LEASE,
    LEASE_ON_DONE,
    LEASE_ON_GONE,
    LEASE_WITHOUT_EDGE,
    UNKNOWN_ASSIGNEE,
    DUPLICATE_ID,
    BAD_TASK_FILE,
)
FIX = "gitlease check --stale --fix"


@dataclass(frozen=True, slots=True)
class Deleted:
    """The commit that deleted the file of a task: ``at`` in ms, ``by`` its author."""

    file: str
    commit: str
    at: int
    by: str


@dataclass(frozen=True, slots=True)
class Board:
    """All that leases are judged by: the tasks of the current branch, the records, the persons.

    ``broken`` are the keys of tasks whose files cannot be used. ``own`` says who asks: whether a
    holder is the very person.
    """

    tasks: Mapping[str, Task]
    records: Sequence[Held]
    persons: Persons
    rules: StaleRules
    now: int
    broken: frozenset[str] = frozenset()
    own: Callable[[str], bool] = lambda _holder: False

    def ago(self, at: int) -> str:
        """How long ago, and when: ``9d 3h, since 2026-11-12T10:00:00Z``."""
        return f"{humanize_duration((self.now - at) // MS)}, since {rfc3339(at)}"

    def assigns(self, task: Task, holder: str) -> bool:
        return any(self.persons.stands_for(name, holder) for name in task.assigned)


@dataclass(frozen=True, slots=True)
class Left:
    """A lease that somebody should look at, and whether it may be retired at all."""

    finding: Finding
    record: Held

    @property
    def retirable(self) -> bool:
        return self.record.lapsed


# --- edges ---------------------------------------------------------------------------------------


def of_idle(idle: Idle, board: Board) -> Finding:
    """A stale edge."""
    task, name = idle.edge.task, idle.edge.name
    who, text = board.persons.called(name), task.resource.text
    own = any(map(board.own, board.persons.emails(name)))
    steps = [f"gitlease claim {quote(text)}", f"gitlease release {quote(text)}"]
    if not own:
        steps = [f"gitlease show {quote(text)}", f"gitlease note {quote(text)} 'still on it?'"]
        steps += [FIX] * board.rules.release
    emails, ago = board.persons.emails(name), board.ago(idle.since)
    return Finding(
        rule=STALE_EDGE,
        level=STALE_EDGE.level,
        message=f"{text} is assigned to {who}, who has not worked on it for {ago}",
        resource=text,
        holder=emails[0] if emails else None,
        since=idle.since,
        file=task.file,
        line=task.line,
        evidence=tuple(f"{rfc3339(sign.at)}: {sign.what}" for sign in idle.signs),
        next_steps=tuple(steps),
    )


def of_unknown(edge: Edge, past: Past | None, board: Board) -> Finding:
    """A name that is nobody's."""
    task, name, text = edge.task, printable(edge.name), edge.task.resource.text
    written = past.written(edge.name) if past else None
    said = [] if written is None else [f"written in {written.commit[:SHORT]} by {written.by}"]
    said.append("no one in people, no author of a commit and no holder of a lease is called so")
    return Finding(
        rule=UNKNOWN_ASSIGNEE,
        level=UNKNOWN_ASSIGNEE.level,
        message=f"{text} is assigned to {name}, and nobody here is called so",
        resource=text,
        since=written.at if written else None,
        file=task.file,
        line=task.line,
        evidence=tuple(said),
        next_steps=(f"gitlease show {quote(text)}",),
    )


# --- leases --------------------------------------------------------------------------------------


def of_leases(
    board: Board, pasts: Mapping[str, Past], deleted: Mapping[str, Deleted]
) -> list[Left]:
    """The leases that lapsed or do not fit the task files; what an edge explains is none."""
    records = by_resource(board.records)
    found = []
    for record in board.records:
        key = record.lease.resource.key
        task = board.tasks.get(key)
        if record.done or key in board.broken or (task is not None and task.exempt):
            continue
        if task is None:
            finding = _of_name(record, deleted.get(key), board)
        else:
            finding = _of_task(record, task, is_done(task, records[key]), pasts, board)
        if finding is not None:
            found.append(Left(finding, record))
    return found


def gone_names(board: Board) -> frozenset[str]:
    """The keys of tasks that leases are of, and that no file has here: were they deleted?"""
    return frozenset(
        x.lease.resource.key
        for x in board.records
        if _was_task(x, board) and x.lease.resource.key not in board.tasks
    )


def unnamed(board: Board) -> list[tuple[Task, str]]:
    """The tasks whose file does not name a holder of them here, with that holder."""
    return [
        (task, x.lease.holder)
        for x in board.records
        if x.live and (task := board.tasks.get(x.lease.resource.key)) is not None
        if not board.assigns(task, x.lease.holder)
    ]


def _was_task(record: Held, board: Board) -> bool:
    """Whether a lease was of a task when it was claimed."""
    lease = record.lease
    named = board.rules.required and not lease.resource.is_path and lease.edge
    return named and not record.done and lease.resource.key not in board.broken


def _of_name(record: Held, deleted: Deleted | None, board: Board) -> Finding | None:
    """A lease of what is no task here."""
    lease = record.lease
    if deleted is not None and _was_task(record, board):
        text = lease.resource.text
        how = "has a lapsed lease of" if record.lapsed else "holds"
        message = f"{lease.holder} {how} {text}{_scope(lease)}, whose task file is gone"
        said = (
            f"{printable(deleted.file)} was deleted in {deleted.commit[:SHORT]} by {deleted.by}",
        )
        return _finding(LEASE_ON_GONE, message, record, board, said=said)
    if not record.lapsed or (lease.edge and _is_young(record, board)):
        return None
    return _of_lapsed(record, board)


def _of_task(
    record: Held, task: Task, done: bool, pasts: Mapping[str, Past], board: Board
) -> Finding | None:
    lease, text = record.lease, record.lease.resource.text
    if done:
        how = "has a lapsed lease of" if record.lapsed else "holds"
        message = f"{lease.holder} {how} {text}{_scope(lease)}, which is done"
        return _finding(LEASE_ON_DONE, message, record, board, task=task)
    if board.assigns(task, lease.holder):
        return None  # a lapsed one is told of with its edge, once that is stale
    if record.lapsed:
        return None if lease.edge and _is_young(record, board) else _of_lapsed(record, board, task)
    past = pasts.get(task.file)
    if past is not None and (not past.whole or past.somewhere(board.persons, lease.holder)):
        return None  # it may be on a branch that is not here
    message = f"{lease.holder} holds {text}{_scope(lease)}, but {printable(task.file)} does not"
    said = ("no branch that this clone knows has a commit that assigns it to them",)
    return _finding(LEASE_WITHOUT_EDGE, f"{message} name them", record, board, task=task, said=said)


def _of_lapsed(record: Held, board: Board, task: Task | None = None) -> Finding:
    lease = record.lease
    message = (
        f"the lease of {lease.holder} on {lease.resource}{_scope(lease)} lapsed"
        f" {board.ago(lease.expires_at)}"
    )
    said = ("it still keeps the task assigned to its holder",) if lease.edge else ()
    return _finding(LAPSED_LEASE, message, record, board, task=task, said=said)


def _is_young(record: Held, board: Board) -> bool:
    """Whether it lapsed so lately that an edge may still be on its way here."""
    return board.now - record.lease.expires_at <= board.rules.after * MS


def _finding(
    rule: Rule,
    message: str,
    record: Held,
    board: Board,
    *,
    task: Task | None = None,
    said: Iterable[str] = (),
) -> Finding:
    lease = record.lease
    since = lease.expires_at if record.lapsed else lease.claimed_at
    where = [f"session {lease.session}"] if lease.session else []
    where += [f"on {lease.host}"] if lease.host else []
    where += [f"branch {lease.branch}"] if lease.branch else []
    state = "ran out at" if record.lapsed else "claimed at"
    facts = [*said, f"{state} {rfc3339(since)}, token {lease.token}"]
    facts += [", ".join(where)] if where else []
    facts += [f"reason: {lease.reason}"] if lease.reason else []
    return Finding(
        rule=rule,
        level=rule.level,
        message=message,
        resource=lease.resource.text,
        scope=lease.scope,
        layer=record.layer,
        holder=lease.holder,
        since=since,
        file=task.file if task else None,
        line=task.line if task else None,
        evidence=tuple(facts),
        next_steps=_steps(rule, record, board),
    )


def _steps(rule: Rule, record: Held, board: Board) -> tuple[str, ...]:
    """What to type: one's own is ended, of others one asks."""
    name = quote(record.lease.resource.text)
    if board.own(record.lease.holder):
        verb = "done" if rule is LEASE_ON_DONE else "release"
        return (f"gitlease {'claim' if rule is LEASE_WITHOUT_EDGE else verb} {name}",)
    fix = (FIX,) if record.lapsed and board.rules.release else ()
    ask = "is this done?" if rule is LEASE_ON_DONE else "still on it?"
    return (f"gitlease show {name}", f"gitlease note {name} '{ask}'", *fix)


def _scope(lease: Lease) -> str:
    return "" if lease.scope == WHOLE else f" (scope {lease.scope})"
