"""The findings about stale claims: who, since when, the evidence, and what to type.

A task that a label or a field exempts has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from shlex import quote

from gitlease.check.rules import (
    LAPSED_LEASE,
    LEASE_ON_DONE,
    LEASE_ON_GONE,
    LEASE_WITHOUT_EDGE,
    STALE_EDGE,
    UNKNOWN_ASSIGNEE,
)
from gitlease.check.stale.facts import Deleted, Edge, Held, Past, by_resource
from gitlease.check.stale.idle import SHORT, Idle, StaleRules, is_done
from gitlease.core.duration import humanize_duration
from gitlease.core.edge import Task, printable
from gitlease.core.finding import CheckRule, Finding
from gitlease.core.frozen import dataclass, replace
from gitlease.core.instant import MS, moment_of, rfc3339
from gitlease.core.persons import Persons
from gitlease.core.resources.resource import WHOLE

FIX = "gitlease check --stale --fix"


@dataclass(frozen=True, slots=True)
class Board:
    """The tasks of the current branch, the records, and the persons.

    ``broken`` are the keys of tasks whose files cannot be used. ``own`` says whether a holder is
    the person who runs the check.
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


# --- edges ---------------------------------------------------------------------------------------


def of_idle(idle: Idle, board: Board) -> Finding:
    """The finding about a stale edge."""
    task, name = idle.edge.task, idle.edge.name
    emails, text = board.persons.emails(name), quote(task.resource.text)
    steps = [f"gitlease claim {text}", f"gitlease release {text}"]
    if not any(map(board.own, emails)):
        steps = [f"gitlease show {text}", f"gitlease note {text} 'still on it?'"]
        steps += [FIX] * board.rules.release
    said = f"{board.persons.called(name)}, who has not worked on it for {board.ago(idle.since)}"
    facts = [f"{rfc3339(sign.at)}: {sign.what}" for sign in idle.signs]
    found = _of_edge(STALE_EDGE, idle.edge, said, facts, steps)
    return replace(found, holder=emails[0] if emails else None, since=moment_of(idle.since))


def of_unknown(edge: Edge, past: Past | None) -> Finding:
    """The finding about a name that is nobody's."""
    written = past.written(edge.name) if past else None
    facts = [] if written is None else [f"written in {written.commit[:SHORT]} by {written.by}"]
    facts.append("not in people, and not the name of any commit author or lease holder")
    said = f"{printable(edge.name)}, a name that nobody here has"
    steps = [f"gitlease show {quote(edge.task.resource.text)}"]
    found = _of_edge(UNKNOWN_ASSIGNEE, edge, said, facts, steps)
    return replace(found, since=moment_of(written.at) if written else None)


def _of_edge(
    rule: CheckRule, edge: Edge, said: str, facts: Sequence[str], steps: Sequence[str]
) -> Finding:
    text = edge.task.resource.text
    return Finding(
        rule=rule,
        level=rule.level,
        message=f"{text} is assigned to {said}",
        resource=text,
        file=edge.task.file,
        line=edge.task.line,
        evidence=tuple(facts),
        next_steps=tuple(steps),
    )


# --- leases --------------------------------------------------------------------------------------


def of_leases(
    board: Board, pasts: Mapping[str, Past], deleted: Mapping[str, Deleted]
) -> list[tuple[Held, Finding]]:
    """The findings about leases that lapsed or do not match the task files.

    A lapsed lease whose edge is still there is not one: the edge is, once it is stale.
    """
    records = by_resource(board.records)
    found = []
    for record in board.records:
        key = record.lease.resource.key
        task = board.tasks.get(key)
        if record.done or key in board.broken or (task is not None and task.exempt):
            continue
        gone = deleted.get(key) if task is None and _was_task(record, board) else None
        done = task is not None and is_done(task, records[key])
        past = pasts.get(task.file) if task is not None else None
        finding = _of_record(record, task, board, done=done, gone=gone, past=past)
        if finding is not None:
            found.append((record, finding))
    return found


def gone_names(board: Board) -> frozenset[str]:
    """The keys of leased tasks without a file here: they may have been deleted."""
    return frozenset(
        x.lease.resource.key
        for x in board.records
        if _was_task(x, board) and x.lease.resource.key not in board.tasks
    )


def unnamed(board: Board) -> list[tuple[Task, str]]:
    """The tasks whose file here does not name a holder of theirs, with that holder."""
    return [
        (task, x.lease.holder)
        for x in board.records
        if x.live and (task := board.tasks.get(x.lease.resource.key)) is not None
        if not board.assigns(task, x.lease.holder)
    ]


def _was_task(record: Held, board: Board) -> bool:
    lease = record.lease
    named = board.rules.required and not lease.resource.is_path and lease.edge
    return named and not record.done and lease.resource.key not in board.broken


def _of_record(
    record: Held,
    task: Task | None,
    board: Board,
    *,
    done: bool,
    gone: Deleted | None,
    past: Past | None,
) -> Finding | None:
    lease = record.lease
    scope = "" if lease.scope == WHOLE else f" (scope {lease.scope})"
    has = "has a lapsed lease on" if record.lapsed else "holds"
    has = f"{lease.holder} {has} {lease.resource.text}{scope}"
    if gone is not None:
        said = f"{printable(gone.file)} was deleted in {gone.commit[:SHORT]} by {gone.by}"
        return _finding(LEASE_ON_GONE, f"{has}, whose task file is gone", record, board, said=said)
    if done:
        return _finding(LEASE_ON_DONE, f"{has}, which is done", record, board, task)
    if task is not None and board.assigns(task, lease.holder):
        return None  # a lapsed one is reported with its edge, once that is stale
    if record.lapsed:
        if lease.edge and board.now - lease.expires_at <= board.rules.after * MS:
            return None  # it lapsed so lately that its edge may still be on its way here
        lapsed = f"lapsed {board.ago(lease.expires_at)}"
        message = f"the lease of {lease.holder} on {lease.resource}{scope} {lapsed}"
        said = "it still keeps the task assigned to its holder" if lease.edge_stays else ""
        return _finding(LAPSED_LEASE, message, record, board, task, said)
    grace = lease.ttl if board.rules.grace is None else board.rules.grace
    if task is None or board.now - lease.claimed_at <= grace * MS:
        return None  # its edge is not pushed yet
    if past is not None and (not past.whole or past.assigns_somewhere(board.persons, lease.holder)):
        return None  # it may be on a branch that is not here
    message = f"{has}, but {printable(task.file)} does not name them"
    said = "no branch known here has a commit that assigns it to them"
    return _finding(LEASE_WITHOUT_EDGE, message, record, board, task, said)


def _finding(
    rule: CheckRule,
    message: str,
    record: Held,
    board: Board,
    task: Task | None = None,
    said: str = "",
) -> Finding:
    lease = record.lease
    since = lease.expires_at if record.lapsed else lease.claimed_at
    where = [f"session {lease.session}"] if lease.session else []
    where += [f"on {lease.place.host}"] if lease.host else []
    where += [f"branch {lease.branch}"] if lease.branch else []
    state = "expired at" if record.lapsed else "claimed at"
    facts = [said, f"{state} {rfc3339(since)}, token {lease.token}", ", ".join(where)]
    facts += [f"reason: {lease.reason}"] if lease.reason else []
    return Finding(
        rule=rule,
        level=rule.level,
        message=message,
        resource=lease.resource.text,
        scope=lease.scope,
        layer=record.layer,
        holder=lease.holder,
        since=moment_of(since),
        file=task.file if task else None,
        line=task.line if task else None,
        evidence=tuple(filter(None, facts)),
        next_steps=_steps(rule, record, board),
    )


def _steps(rule: CheckRule, record: Held, board: Board) -> tuple[str, ...]:
    # One's own lease is ended; about another's one asks.
    name = quote(record.lease.resource.text)
    if board.own(record.lease.holder):
        verb = "done" if rule is LEASE_ON_DONE else "release"
        return (f"gitlease {'claim' if rule is LEASE_WITHOUT_EDGE else verb} {name}",)
    fix = (FIX,) if record.lapsed and board.rules.release else ()
    ask = "it is done: do you still need its lease?" if rule is LEASE_ON_DONE else "still on it?"
    return (f"gitlease show {name}", f"gitlease note {name} '{ask}'", *fix)
