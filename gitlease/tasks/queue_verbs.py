"""The verbs that show tasks with their leases: ``queue``, ``brief``, and ``show`` for one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from gitlease.kernel.ledger.stepping import read_leases
from gitlease.kernel.rules.edge import Task
from gitlease.kernel.rules.errors import Hint
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.ledger import Ticket
from gitlease.kernel.rules.resources import WHOLE, Resource, scopes_overlap
from gitlease.tasks.queue import Carried, Carry, Entry, FoundTask, QueueReading, WhyNot
from gitlease.verbs import parameters as takes
from gitlease.verbs import sentences, wire
from gitlease.verbs.reading import NOBODY, whose
from gitlease.verbs.table import READING_EXITS, Details, Door, Result, Table, verb

HEADINGS = ("TASK", "PRIORITY", "STATUS", "ASSIGNED", "TITLE", "WAITS FOR", "WHY NOT")
OWN_HEADINGS = ("TASK", "LEASE", "PRIORITY", "STATUS", "TITLE", "WAITS FOR")
STYLES = {WhyNot.YOURS: "green", WhyNot.HELD: "yellow", WhyNot.ASSIGNED: "yellow", None: ""}
OWN_STYLES = {Carried.LIVE: "green", Carried.WAITING: "cyan", Carried.TAKEN_OVER: "yellow"}


@verb(
    "queue",
    """List the tasks that you may claim, best first: by priority, then those whose dependencies are
done, then the oldest.

--all includes the others, each with the reason why you may not claim it. --mine lists what you
carry instead, in any state (--all adds nothing): the tasks assigned to you and your leases, each
with the state of its lease: live, waiting (you ended it and kept the task), lapsed, taken over,
theirs (held by someone who is also assigned, or came after you), or none. Waiting ones come first,
leases in other layers last.""",
    examples=(
        "gitlease queue",
        "gitlease queue --all                  # include held, assigned and done tasks",
        "gitlease queue --mine                 # your tasks and leases",
        "gitlease queue --ref origin/main      # the task files of that branch",
    ),
    exits=READING_EXITS,
    done="listed, even if there is nothing to claim",
    reads=True,
)
def queue_verb(
    door: Door,
    *,
    mine: takes.MyTasks = False,
    all: takes.AllTasks = False,
    ref: takes.Ref = None,
    cached: takes.Cached = False,
) -> Result:
    if mine:
        carrying = door.queue.brief(ref=ref, cached=cached)
        return Result(
            body={"tasks": wire.carried(carrying)},
            lines=lambda: [_carried_table(door, carrying)],
            value=carrying,
            warnings=carrying.warnings,
        )
    reading = door.queue.queue(ref=ref, cached=cached)
    shown = [e for e in reading.entries if all or e.claimable]
    # --all shows each of them, with its reason.
    away = "" if all else sentences.not_here(reading.entries)
    part: dict[str, object] = {} if ref is None else {"ref": ref}
    return Result(
        body={
            "tasks": [wire.entry(e) for e in shown],
            "left_alone": [wire.entry(x) for x in reading.left_alone],
        },
        lines=lambda: [
            Table(
                headings=HEADINGS,
                rows=[
                    (
                        e.task.resource.text,
                        *_columns(e.task),
                        sentences.listed(e.waits_for),
                        sentences.why_not(e, door.now()),
                    )
                    for e in shown
                ],
                styles=[STYLES.get(e.why_not, "dim") for e in shown],
                otherwise="there are no tasks" if all else "nothing to claim",
            ),
            *([] if all else _left_alone(door, reading)),
        ],
        value=reading,
        warnings=(*reading.warnings, *([away] if away else [])),
        then=[
            *([Hint("queue", {"all": True} | part, "show where they are")] if away else ()),
            *([] if all else _after_setback(door, reading.left_alone)),
        ],
    )


def _left_alone(door: Door, reading: QueueReading) -> list[str]:
    now = door.now()
    return [f"{x.task.resource}: {sentences.why_not(x, now)}" for x in reading.left_alone]


def _after_setback(door: Door, failed: Sequence[Entry]) -> Iterable[Hint]:
    """Yield the call by which a person has the first of these tasks handed out again."""
    # Only a note without a session is a person's word, which ends a setback.
    if failed and door.ledger.actor.session is None:
        terms = {"resource": failed[0].task.resource.text, "text": "TEXT"}
        yield Hint("note", terms, "let pools take it again")


def _carried_table(door: Door, reading: QueueReading) -> Table:
    waits = {e.task.resource.key: e.waits_for for e in reading.entries}

    def row(carry: Carry) -> tuple[str, ...]:
        waits_for = waits.get(carry.task.resource.key, ()) if carry.task else ()
        priority, status, _, title = _columns(carry.task) if carry.task else ("",) * 4
        head = (carry.resource, _how(door, carry), priority, status, title)
        return (*head, sentences.listed(waits_for))

    return Table(
        headings=OWN_HEADINGS,
        rows=[*map(row, reading.carried)],
        styles=[OWN_STYLES.get(carry.state, "") for carry in reading.carried],
        otherwise="you carry nothing",
    )


def _how(door: Door, carry: Carry) -> str:
    """Return the state of a carried task's lease, with its layer if that is another one."""
    text, view = sentences.how(carry, door.now()), carry.lease
    other = view is not None and view.layer != door.ledger.layer
    return f"{text}, in layer {view.layer}" if view is not None and other else text


def _columns(task: Task) -> tuple[str, ...]:
    status, priority, title = map(sentences.one_line, (task.status, task.priority, task.title))
    return (priority, status, sentences.listed(task.everyone), title)


NEXT = 5  # tasks that may come next
CARRIED, TAKEN, NOTES, HELD = 12, 6, 6, 4  # lines of a section; the rest are counted
LONGEST_NOTE = 300


@verb(
    "brief",
    """Show one page to start a session with: who you are, your tasks and leases, recent losses and
the reasons, notes for you, leases of others in the layers that this clone uses, and the next tasks.

Your leases on tasks that are done on the remote's main branch are completed first (see
landing.release in the settings), except with --cached.

Both people and agents should run this first.""",
    examples=("gitlease brief", "gitlease brief --json", "gitlease brief --ref origin/main"),
    exits=READING_EXITS,
    done="shown, even if there is nothing to report",
    reads=True,
)
def brief_verb(door: Door, *, ref: takes.Ref = None, cached: takes.Cached = False) -> Result:
    reading, actor = door.queue.brief(ref=ref, cached=cached), door.ledger.actor
    live = (carry.lease for carry in reading.carried if carry.state is Carried.LIVE)
    return Result(
        body={
            "holder": actor.holder,
            "session": actor.session,
            "carrying": wire.carried(reading),
            "taken": [wire.taken(t) for t in reading.taken],
            "notes": [wire.note(n) for n in reading.notes],
            "next_tasks": [wire.entry(e) for e in reading.next_up[:NEXT]],
            "others": [wire.lease(view) for view in reading.others],
            "left_alone": [wire.entry(x) for x in reading.left_alone],
        },
        lines=lambda: _page(door, reading),
        leases=[view for view in live if view is not None],
        value=reading,
        warnings=reading.warnings,
        # Reading needs no user.email, but every one of these calls does.
        then=[*_after_brief(door, reading)] if actor.holder else (),
    )


def _after_brief(door: Door, reading: QueueReading) -> Iterable[Hint]:
    """Yield the calls for the caller's own work, and for the next task."""
    if any(c.state is Carried.LIVE and c.lease and c.lease.mine for c in reading.carried):
        yield Hint("renew", {"all": True}, "keep what you hold")
    # A lost task that somebody else has by now cannot be resumed.
    free = {e.task.resource.key for e in reading.entries if e.claimable}
    for carry in reading.carried:
        view, lost = carry.lease, carry.state in (Carried.LAPSED, Carried.NONE)
        lost = lost and carry.task is not None and carry.task.resource.key in free
        if lost or carry.state is Carried.WAITING:
            again: dict[str, object] = {"resources": [carry.resource]}
            again |= {"scope": view.scope} if view and view.scope != WHOLE else {}
            again |= {"any": True} if door.needs_any(carry.resource) else {}
            again |= {"layer": view.layer} if view else {}
            yield Hint("claim", again, "resume it")
            break
    if reading.next_up:
        yield Hint("next", {"claim": True}, "claim the next task")


def _page(door: Door, reading: QueueReading) -> Iterable[str]:
    now, actor, layer = door.now(), door.ledger.actor, door.ledger.layer
    run = f"session {actor.session}" if actor.session else "no session"
    yield f"you are {actor.holder or NOBODY}, {run}"
    own, elsewhere = sentences.by_session(reading, [actor.session] if actor.session else [])
    nothing = sentences.nothing_carried(reading, actor.session)
    carrying = [(c.resource, _how(door, c), sentences.titled(c.task)) for c in own]
    yield from _section("you carry", _aligned(carrying), CARRIED, otherwise=nothing)
    others = [
        f"{sentences.named_in(x, layer)}: {sentences.held_elsewhere(x, now)}" for x in elsewhere
    ]
    yield from _section("your other sessions", others, CARRIED)
    taken = [sentences.was_taken(t, now) for t in reading.taken]
    yield from _section("taken from you", taken, TAKEN)
    notes = list[str]()
    for note in reading.notes:
        text = sentences.one_line(sentences.noted(note, now))
        # A brief stays one page, whatever others left as notes.
        short = f"{text[:LONGEST_NOTE]}… (in full: show {note.resource})"
        notes.append(text if len(text) <= LONGEST_NOTE else short)
    yield from _section("notes", notes, NOTES)
    away = sentences.not_here(reading.entries)
    none = f"nothing to claim: {away}" if away else "nothing to claim"
    yield from _section("next", _aligned(map(_next, reading.next_up)), NEXT, otherwise=none)
    yield from _section("left alone", _left_alone(door, reading), NEXT)
    held = [
        f"{sentences.named_in(x, layer)}: {sentences.whose(x)}, {sentences.until(x, now)}"
        for x in reading.others
    ]
    yield from _section("held by others", held, HELD)


def _section(title: str, lines: Sequence[str], limit: int, *, otherwise: str = "") -> Iterable[str]:
    if not lines and not otherwise:
        return
    yield ""
    yield f"{title}:" if lines else otherwise
    yield from (f"  {text}" for text in lines[:limit])
    if len(lines) > limit:
        yield f"  and {len(lines) - limit} more"


def _aligned(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Align the first column; leave empty words out."""
    listed = list(rows)
    # Rows beyond are not printed, and must not widen the column.
    width = max((len(row[0]) for row in listed[:CARRIED]), default=0)
    return ["  ".join((row[0].ljust(width), *filter(None, row[1:]))) for row in listed]


def _next(entry: Entry) -> tuple[str, ...]:
    task, waiting = entry.task, sentences.waiting(entry.waits_for)
    title = sentences.titled(task), f"({waiting})" if waiting else ""
    return (task.resource.text, sentences.one_line(task.priority), *title)


ENDED_SHOWN = 3  # lines for people; JSON has all of them


@verb(
    "show",
    """Show one resource: its holder, where, until when and why, its notes, who waits for it, and
which of its leases were released or revoked lately.

For a task, this includes the title, status and assignees from its task file. It also succeeds if
the resource is free: read the output, or the state in the JSON.""",
    examples=(
        "gitlease show F001",
        "gitlease show F001 --ref main         # the task file on main",
        "gitlease show src/auth/ --json",
    ),
    exits=READING_EXITS,
    done="shown, even if it is free",
    reads=True,
)
def show_verb(
    door: Door,
    resource: takes.Named,
    *,
    ref: takes.Ref = None,
    scope: takes.OverlapScope = None,
    cached: takes.Cached = False,
) -> Result:
    part = WHOLE if scope is None else scope
    reading = read_leases(door.ledger, resource=resource, ended=True, cached=cached)
    # By this clone's copy, which the reading has just renewed: the remote is asked once.
    found = door.queue.find(resource, ref=ref)
    views = [door.own(view) for view in reading.leases if scopes_overlap(view.scope, part)]
    tickets = [ticket for ticket in reading.waiting if scopes_overlap(ticket.scope, part)]
    ended = [one for one in reading.ended if scopes_overlap(one.scope, part)]
    entry = found.entry
    failed = entry is not None and entry.why_not is WhyNot.FAILED
    alone = entry is not None and entry.why_not is WhyNot.ASSIGNED  # nothing but the edge is left
    who = entry.who if entry is not None and alone else None

    def lines() -> Iterable[str | Details]:
        now, actor = door.now(), door.ledger.actor
        task = sentences.facts(entry.task, entry.waits_for) if entry else []
        first, *others = [_facts(view, actor, now) for view in views] or [[]]
        yield Details(rows=[*task, *first])
        yield from (Details(rows=block) for block in others)
        if not views:
            yield _unleased(resource, part, found, tickets, now)
            # `show` succeeds for any name, so a mistyped one is told as that.
            known = entry is not None or reading.leases or reading.notes
            if not known and door.needs_any(resource.text):
                yield "no task file and no record has this name"
        # Without a lease the line above says it of a failed task.
        if entry and entry.setback and (views or not failed):
            yield f"{entry.task.resource} {sentences.setback(entry.setback, now)}"
        yield from (sentences.noted(note, now) for note in reading.notes)
        for place, ticket in enumerate(tickets, start=1):
            yield sentences.in_line(place, ticket, now)
        yield from (sentences.ended(one, now) for one in ended[:ENDED_SHOWN])

    return Result(
        body={
            "leases": [wire.lease(view) for view in views],
            "task": wire.task(entry.task, waits_for=entry.waits_for) if entry else None,
            "notes": [wire.note(note) for note in reading.notes],
            "waiting": wire.waiting(tickets),
            "ended": [wire.ended_lease(one) for one in ended],
            "setback": wire.setback(entry.setback) if entry else None,
        },
        lines=lines,
        leases=views,
        warnings=(*reading.warnings, *found.warnings),
        hints=(sentences.ask(door, resource.text, who, scope=scope),) if who is not None else (),
        then=[*_after_setback(door, [entry] if failed and entry else [])],
    )


def _unleased(
    resource: Resource, scope: str, found: FoundTask, tickets: Sequence[Ticket], now: datetime
) -> str:
    entry = found.entry
    view = entry.lease if entry else None
    name = entry.task.resource if entry else resource
    # A lease on another scope leaves this one free.
    elsewhere = view and view.resource == str(name) and not scopes_overlap(view.scope, scope)
    if entry is None or elsewhere or entry.why_not is None:
        return sentences.unleased(str(name), tickets)
    return f"{name} has no lease: {sentences.why_not(entry, now)}"


def _facts(view: LeaseView, actor: Actor, now: datetime) -> list[tuple[str, str]]:
    def known(names: str) -> dict[str, str]:
        return {name: str(getattr(view, name) or "") for name in names.split()}

    facts = known("resource scope state holder") | {"whose": whose(view, actor)}
    ended = bool(sentences.process_ended(view))
    facts |= known("session") | {"process": "ended" if ended else ""}
    facts |= {"what it started": "may still run" if ended else ""}
    facts |= known("host branch") | {"work tree": view.worktree or ""} | known("reason")
    facts |= {"paths": " ".join(view.paths)} | known("token lease_id")
    facts |= {"claimed_at": wire.seconds(view.claimed_at)}
    until = sentences.until(view, now) + sentences.afterwards(view, now)
    return [*facts.items(), ("time", until)]
