"""The JSON documents of the public contract, with its order of fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from gitlease.kernel.rules.edge import Task
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.instant import rfc3339, utc_text
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.ledger import Note, Setback, Ticket
from gitlease.kernel.rules.loss import Lost
from gitlease.kernel.rules.moves.operations import Event
from gitlease.kernel.rules.resources import Resource
from gitlease.verbs import sentences
from gitlease.verbs.table import exit_of

if TYPE_CHECKING:
    from gitlease.board.verbs import BoardRow, BoardView
    from gitlease.kernel.ledger.answers import Answer, EndedLease, Taken
    from gitlease.kernel.ledger.watch import WatchEvent
    from gitlease.kernel.rules.work import WorkRef
    from gitlease.landing.fenced_push import PushAnswer
    from gitlease.landing.landing import Landed
    from gitlease.runs.records import RunRecord
    from gitlease.runs.supervisor import Ended
    from gitlease.tasks.queue import Carry, Entry, QueueReading
    from gitlease.tools.doctor import Diagnosis
    from gitlease.verbs.findings import Finding
    from gitlease.wiring.workspace import Setting


SCHEMA = 1
Document = dict[str, Any]
_LEASE = (
    "resource scope layer holder session? lease_id? token:int? state:state ttl_seconds:int "
    "claimed_at:time renewed_at:time expires_at:time expires_in:int free_at:time? renewals:int "
    "paths:texts reason? host? branch? worktree? mine:bool assigned:bool lapses_at:time? "
    "process_ended:bool?"
)
_TASK = (
    "resource title? status? progress:progress? assigned:texts assigned_in:places priority? "
    "depends_on:texts waits_for:texts paths:texts created? file?"
)
_RUN = (
    "resources:texts scope layer holder session tokens:ints state pid:int command_pid:int? "
    "command:texts began_at:time ended_at:time? exit:int? message? log?"
)
# The fields of each document in their order: text, unless a kind is named; ``?`` may be null, and
# ``~`` absent. The published schema is made from this.
SHAPES: Mapping[str, str] = {
    "lease": _LEASE,
    "ended_lease": "resource scope layer holder session? lease_id:null token:int state:ended "
    "claimed_at:time? ended_at:time ended_by ttl_seconds:null renewed_at:null expires_at:null "
    "expires_in:null free_at:null renewals:null paths:null host:null branch:null worktree:null "
    "reason? mine:bool assigned:bool lapses_at:null process_ended:null",
    "error": "code:code exit:int message resource? scope? holder? session? expires_at:time? "
    "expires_in:int? free_at:time? lease:lease? conflicts:leases hints:texts next:texts",
    "edge": "resource file changed:bool committed?",
    "task": _TASK,
    "entry": f"{_TASK} claimable:bool why_not? who? lease:lease? setback:setback?",
    "setback": "failures:int last_at:time by note waits:bool free_at:time?",
    "carry": f"{_TASK} state taken_over_by? lease:lease?",
    "note": "resource author at:time text",
    "taken": "resource scope what by at:time reason?",
    "ticket": "place:int resource scope holder session? since:time until:time",
    "event": "kind operation at:time by resource? scope? holder? session? token:int? reason? "
    "detail?",
    "violation": "rule level:level message resource? scope? layer? holder? since:time? commit? "
    "file? line:int? evidence:texts next:texts",
    "ref": "ref source? from? to? status reason?",
    "run": _RUN,
    "pool": "pid:int state began_at:time ended_at:time? jobs:int command:texts totals:totals "
    "stranded:texts runs:pool_runs",
    "pool_run": f"{_RUN} result? last_line",
    "loss": "resource scope lease_id token:int loss by? message",
    "board_row": "section:section resource scope title? holder? session? host? branch? reason? "
    "ends_at:time? free_at:time? mine:bool waiting:texts waits_for:texts pool? "
    "setback:setback?",
    "news": "at:time what name text",
    "watched": "schema:schema event resource? scope? layer holder? session? token:int? at:time "
    "lease:lease~",
    "setting": "key value:any source",
    "diagnosis": "check state:health what fix?",
    "proof": "name:law result:proven detail",
    "access": "id name email scopes:rights created_at:time expires_at:time? expired:bool",
}


def _shaped(shape: str, found: object = None, **own: Any) -> Document:
    """Return a document of this shape: its ``own`` values, and attributes for all others."""
    words = [x for x in SHAPES[shape].split() if x[-1] != "~" or x.partition(":")[0] in own]
    names = (word.partition(":")[0].rstrip("?") for word in words)
    return {x: own[x] if x in own else _value(getattr(found, x)) for x in names}


def success(
    command: str,
    *,
    body: Mapping[str, Any],
    warnings: Sequence[str] = (),
    next_steps: Sequence[str] = (),
) -> Document:
    """Return the document of a success."""
    head: Document = {"schema": SCHEMA, "ok": True, "command": command}
    return head | dict(body) | {"warnings": list(warnings), "next": list(next_steps)}


def changed(answer: Answer) -> Document:
    """Return the body of a lease verb; ``lease`` is present if there is exactly one."""
    return {"status": answer.status, "edge": answer.edge} | _leases(answer.leases)


def ended(answer: Answer) -> Document:
    """Return the body of a verb that may change task files, listed in ``edges``.

    ``edge_in`` is where the caller's assignment stands now: in the ledger's record, a file, both.
    """
    edges = [
        _shaped("edge", w.change, changed=w.changed, committed=w.commit) for w in answer.written
    ]
    head: Document = {"status": answer.status, "edge": answer.edge}
    return head | {"edge_in": list(answer.edge_in), "edges": edges} | _leases(answer.leases)


def claimed(answer: Answer) -> Document:
    """Return the body of a claim, with the notes for the holder."""
    return ended(answer) | {"notes": [note(n) for n in answer.notes]}


def ran(answer: Answer, ended: Ended) -> Document:
    """Return the body of a run: ``exit`` is its own exit status, ``command_exit`` the command's
    (None if it could not be stopped).
    """
    failed = ended.exit != ended.status
    body: Document = {
        "status": "lost" if ended.lost else "failed" if failed else "ended",
        "exit": ended.exit,
        "command_exit": ended.status,
        "lost": [loss(one) for one in ended.lost],
    }
    return body | _leases(answer.leases)


def loss(one: Lost) -> Document:
    """Return a lost lease: ``loss`` is the reason, ``by`` the person responsible, if known."""
    grant, message = one.hold.grant, one.error.message
    return _shaped("loss", grant, loss=one.loss.value, by=one.by, message=message)


def background(record: RunRecord, state: str, *, shape: str = "run", **more: Any) -> Document:
    """Return a background run; ``pid`` is its runner, which holds the leases."""
    return _shaped(
        shape,
        record,
        state=state,
        pid=record.runner,
        command_pid=record.pid,
        began_at=rfc3339(record.began_at),
        ended_at=None if record.ended_at is None else rfc3339(record.ended_at),
        **more,
    )


def _leases(views: Sequence[LeaseView]) -> Document:
    leases = [lease(view) for view in views]
    body: Document = {"leases": leases}
    return body | ({"lease": leases[0]} if len(leases) == 1 else {})


def failure(
    command: str | None,
    error: GitleaseError,
    *,
    now: datetime,
    next_steps: Sequence[str] = (),
    body: Mapping[str, Any] | None = None,
) -> Document:
    """Return the document of a refusal; ``body`` reports a part that was done."""
    head: Document = {"schema": SCHEMA, "ok": False, "command": command}
    return head | {"error": refusal(error, now=now, next_steps=next_steps)} | dict(body or {})


def refusal(error: GitleaseError, *, now: datetime, next_steps: Sequence[str] = ()) -> Document:
    """Return the ``error`` of a failure; every key is always present."""
    views = error.views
    first = views[0] if views else None
    return _shaped(
        "error",
        error,
        exit=exit_of(error.code),
        message=sentences.refusal(error, now),
        # An assignment in a task file alone has no lease, but somebody's name.
        holder=first.holder if first else error.whose,
        session=first.session if first else None,
        expires_at=seconds(first.expires_at) if first else None,
        expires_in=first.expires_in if first else None,
        free_at=None if error.free_at_ms is None else rfc3339(error.free_at_ms, round_up=True),
        lease=lease(first) if first else None,
        conflicts=[lease(view) for view in views],
        next=list(next_steps),
    )


def lease(view: LeaseView) -> Document:
    """Return one lease; its end is rounded down, and from when it is free is rounded up."""
    later = {
        name: None if at is None else seconds(at, round_up=True)
        # Rounded up, and ends down: nobody counts on a part of a second that is not theirs.
        for name, at in (("free_at", view.free_at), ("lapses_at", view.lapses_at))
    }
    # A planned lease has neither, unless it would renew one.
    grant = {"lease_id": view.lease_id or None, "token": view.token or None}
    return _shaped("lease", view, **grant, **later, process_ended=sentences.process_ended(view))


def ended_lease(one: EndedLease) -> Document:
    """Return a lease that was released or revoked; what the audit trail does not tell is None."""
    # Null instead of left out: programs read ended leases by the names of live ones.
    absent = (x.removesuffix(":null") for x in SHAPES["ended_lease"].split() if ":null" in x)
    since = None if one.claimed_at is None else rfc3339(one.claimed_at)
    ended = {"claimed_at": since, "ended_at": rfc3339(one.ended_at), "ended_by": one.by}
    known: Document = dict.fromkeys(absent) | ended | {"assigned": False}
    return _shaped("ended_lease", one, **known)


def task(found: Task | None, *, resource: str = "", waits_for: Sequence[str] = ()) -> Document:
    """Return a task, or the same fields for a ``resource`` without a task file.

    ``waits_for`` has its open dependencies. ``status`` is the word in the file, ``progress`` its
    meaning: ``todo``, ``in_progress``, ``done`` or ``other``. ``assigned_in`` says where each
    assignment stands: ``record``, ``file`` or ``both``.
    """
    known: Document = {"waits_for": list(waits_for)}
    if found is not None:
        known |= {"assigned": list(found.everyone), "assigned_in": found.everyone}
        return _shaped("task", found, **known)
    known |= {"resource": resource, "assigned": [], "assigned_in": {}, "depends_on": []}
    texts = ["title", "status", "progress", "priority", "created", "file"]
    return _shaped("task", **known, paths=[], **dict.fromkeys(texts))


def entry(found: Entry) -> Document:
    """Return a task of the queue, with the reason, person and lease that block it."""
    return task(found.task, waits_for=found.waits_for) | {
        "claimable": found.claimable,
        "why_not": found.why_not.value if found.why_not else None,
        "who": found.who,
        "lease": lease(found.lease) if found.lease else None,
        "setback": setback(found.setback),
    }


def setback(found: Setback | None) -> Document | None:
    """Return the failures of a task; no ``free_at`` where it needs a person."""
    if found is None:
        return None
    last, free = found.last, found.free_at
    known = {"last_at": rfc3339(last.at), "by": last.author, "note": last.text}
    until = None if free is None else rfc3339(free, round_up=True)
    return _shaped("setback", found, **known, free_at=until)


def carry(found: Carry, *, waits_for: Sequence[str] = ()) -> Document:
    """Return a carried task or lease, with the state of the lease."""
    return task(found.task, resource=found.resource, waits_for=waits_for) | {
        "state": found.state.value,
        "taken_over_by": found.by,
        "lease": lease(found.lease) if found.lease else None,
    }


def carried(reading: QueueReading) -> list[Document]:
    """Return what a person carries, in its order."""
    waits = {e.task.resource.key: e.waits_for for e in reading.entries}
    return [
        carry(x, waits_for=waits.get(x.task.resource.key, ()) if x.task else ())
        for x in reading.carried
    ]


def taken(found: Taken) -> Document:
    """Return a loss; ``what`` is ``taken_over`` or ``revoked``."""
    return _shaped("taken", found)


def note(left: Note) -> Document:
    """Return a note."""
    return _shaped("note", left, at=rfc3339(left.at))


def pushed(answer: PushAnswer) -> Document:
    """Return the result of a push; ``fenced`` if a lease moved with the work."""
    head = {"status": answer.status, "remote": answer.remote, "fenced": answer.fenced}
    return head | {"refs": [work_ref(x) for x in answer.refs]} | _leases(answer.leases)


def landed(one: Landed) -> Document:
    """Return what landed, with its completed leases."""
    names = ("resource", "commit", "base", "remote", "commits", "fenced", "already")
    return {"status": "landed", **{x: getattr(one, x) for x in names}} | _leases(one.leases)


def work_ref(one: WorkRef) -> Document:
    """Return one ref of a push with its old and new ids; None if the ref does not exist."""
    texts = {"source": one.source, "from": one.old, "to": one.new, "reason": one.reason}
    given = {name: text or None for name, text in texts.items()}
    return _shaped("ref", one, status=one.became.value, **given)


def waiting(tickets: Sequence[Ticket]) -> list[Document]:
    """Return the waiters for a resource in order; they give up at ``until``."""
    return [
        _shaped(
            "ticket", ticket, place=number, since=rfc3339(ticket.since), until=rfc3339(ticket.until)
        )
        for number, ticket in enumerate(tickets, start=1)
    ]


def watched(event: WatchEvent) -> Document:
    """Return one event of ``watch``; ``lease`` is present if it concerns one."""
    about = {} if event.lease is None else {"lease": lease(event.lease)}
    return _shaped("watched", event, schema=SCHEMA, event=event.kind, **about)


def board(found: BoardView) -> Document:
    """Return the body of a board: its rows, and recent events."""
    news = [_shaped("news", x, at=rfc3339(x.at)) for x in found.news]
    return {"rows": [board_row(x) for x in found.rows], "news": news}


def board_row(row: BoardRow) -> Document:
    """Return a row of a board; ``ends_at`` is in the past for an expired lease."""
    texts = ("title", "holder", "session", "host", "branch", "reason", "pool")
    # An edge protects it after the lapse, and then no time is certain.
    free = None if row.assigned else row.lapses
    return _shaped(
        "board_row",
        row,
        **{name: getattr(row, name) or None for name in texts},
        ends_at=None if row.ends is None else rfc3339(row.ends),
        free_at=None if free is None else rfc3339(free, round_up=True),
        waiting=[x.holder for x in row.waiting],
        setback=setback(row.setback),
    )


def event(entry: Event) -> Document:
    """Return a line of the audit trail."""
    return _shaped("event", entry, at=rfc3339(entry.at))


def violation(found: Finding) -> Document:
    """Return one finding of a check; every key is always present."""
    return _shaped("violation", found, rule=found.rule.id, next=list(found.next_steps))


def setting(one: Setting) -> Document:
    """Return a setting, with its value as in the settings file."""
    return _shaped("setting", one, value=one.value)


def diagnosis(found: Diagnosis, fix: str | None) -> Document:
    """Return a line of ``doctor``, with the command that mends it."""
    return _shaped("diagnosis", found, fix=fix)


def access(token: Any, now: int) -> Document:
    """Return a token for the gateway, without its secret."""
    until = None if token.expires_at is None else rfc3339(token.expires_at)
    known: Document = {"created_at": rfc3339(token.created_at), "expires_at": until}
    scopes = sorted(token.scopes)
    return _shaped("access", token, **known, scopes=scopes, expired=token.is_over(now))


def seconds(at: datetime, *, round_up: bool = False) -> str:
    """Format as UTC, RFC 3339 with ``Z``, in whole seconds."""
    up = timedelta(seconds=1) if round_up and at.microsecond else timedelta()
    return utc_text(at + up)


def _value(value: Any) -> Any:
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, datetime):
        return seconds(value)
    if isinstance(value, Resource | Enum):
        return value.text if isinstance(value, Resource) else value.value
    return list(value) if isinstance(value, tuple) else value
