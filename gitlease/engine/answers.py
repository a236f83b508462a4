"""Answers of the engine, and news for a holder: faces translate these and add no facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from gitlease import engine
from gitlease.core.errors import GitleaseError, UsageError
from gitlease.core.frozen import dataclass, replace
from gitlease.core.instant import Instant
from gitlease.core.lease import Actor, Lease, LeaseView, State, same_person
from gitlease.core.ledger import MAX_STEP, NOTED, Damage, Fate, Ledger, Note, Notice, Ticket
from gitlease.core.moves.operations import TAKEOVER, Event, Operation
from gitlease.core.policy import DEFAULT_POLICY, Policy
from gitlease.core.resources import WHOLE, Resource
from gitlease.engine.ports import LedgerStore, Pending, Snapshot, Written

MAX_RESOURCES = MAX_STEP  # of one command, which is one step


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOptions:
    """How a claim is to be made, for all verbs that claim.

    ``ttl`` in seconds. ``new`` refuses to renew what is one's own already, and ``bind`` has the
    session bind what its person holds without one. ``any_name`` lets names pass that are no tasks.
    ``commit`` records the edges as a commit of their own; None: as the settings say. ``picked``:
    a pool or a run takes the tasks from the queue by itself, so they go back to it at their lapse.
    """

    scope: str = WHOLE
    ttl: int | None = None
    paths: tuple[str, ...] = ()
    reason: str | None = None
    takeover: bool = False
    expect_holder: str | None = None
    reopen: bool = False
    new: bool = False
    bind: bool = False
    any_name: bool = False
    commit: bool | None = None
    picked: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """How a claim stands in line: its ticket, and how many who wait longer it may pass over."""

    ticket: str | None = None
    passing: int | None = None


NO_TURN = Turn()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a verb. ``refused`` has the errors of single leases.

    ``bound`` are the ids of leases that its session bound for a time. ``displaced`` has the leases
    that were taken over, ``unassigned`` the names whose edges were. ``edge_in`` says where the
    caller's edge stands now: in the ledger's ``record``, a ``file``, or both. ``written`` has the
    task file edits, ``notes`` those left for the next holder. ``stays`` names what an implicit end
    left to running commands. ``at`` is the instant from which its leases count, if the ledger was
    changed.
    """

    status: str
    leases: tuple[LeaseView, ...] = ()
    bound: tuple[str, ...] = ()
    displaced: tuple[LeaseView, ...] = ()
    unassigned: tuple[str, ...] = ()
    edge: str = "none"
    edge_in: tuple[str, ...] = ()
    written: tuple[Written, ...] = ()
    notes: tuple[Note, ...] = ()
    refused: tuple[GitleaseError, ...] = ()
    capped_to_max: bool = False
    max_ttl_seconds: int = 0
    max_park_seconds: int = 0
    changed: bool = True
    stays: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    at: Instant | None = None

    @property
    def found_nothing(self) -> bool:
        """Return whether there was nothing to end."""
        return not self.leases and not self.refused and not self.stays


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedLease:
    """A lease that was released or revoked, as far as the audit trail knows it.

    Times in ms by the writers' clocks; ``claimed_at`` is None if its grant is too long ago.
    """

    resource: str
    scope: str
    layer: str
    holder: str
    session: str | None
    token: int
    state: State
    claimed_at: int | None
    ended_at: int
    by: str
    reason: str | None
    mine: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of a reading verb. ``waiting`` is the line, in its order.

    ``ended`` has what was released or revoked lately, newest first.
    """

    leases: tuple[LeaseView, ...] = ()
    ended: tuple[EndedLease, ...] = ()
    notes: tuple[Note, ...] = ()
    waiting: tuple[Ticket, ...] = ()
    events: tuple[Event, ...] = ()
    policy: Policy = DEFAULT_POLICY
    ledger_id: str | None = None
    revision: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Taken:
    """A lease taken from a holder. ``what``: ``taken_over``, ``revoked``, or ``retired``.

    ``lapsed``: it had run out, and was not assigned any more.
    """

    resource: str
    scope: str
    what: str
    by: str
    at: datetime
    reason: str | None
    lapsed: bool = False


@dataclass(frozen=True, slots=True)
class FoundTask:
    """A task in the queue, if there is one. ``warnings`` are about unusable task files."""

    entry: engine.Entry | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReading:
    """The tasks as one actor finds them.

    ``entries`` are in the order of the queue, ``next_up`` what is handed out, best first;
    ``others`` has what others hold, in every layer in use. ``left_alone``: what failed lately, or
    waits for a person, and is not handed out.
    """

    entries: tuple[engine.Entry, ...] = ()
    next_up: tuple[engine.Entry, ...] = ()
    carried: tuple[engine.Carry, ...] = ()
    taken: tuple[Taken, ...] = ()
    notes: tuple[Note, ...] = ()
    others: tuple[LeaseView, ...] = ()
    left_alone: tuple[engine.Entry, ...] = ()
    warnings: tuple[str, ...] = ()


def named(what: str, operations: Sequence[Operation]) -> str:
    """The name of a change, for messages: ``claim of F001 and 2 more``."""
    resources = [str(r) for op in operations if (r := getattr(op, "resource", None)) is not None]
    if not resources:
        return f"this {what}"
    more = f" and {len(resources) - 1} more" if len(resources) > 1 else ""
    return f"{what} of {resources[0]}{more}"


def overall(statuses: Sequence[str]) -> str:
    """One status for several: the most important one."""
    for status in ("taken_over", "claimed"):
        if status in statuses:
            return status
    return statuses[0] if statuses else "renewed"


def joined(one: Answer, other: Answer) -> Answer:
    """Join the answers of two steps or layers."""
    return replace(
        other,
        leases=one.leases + other.leases,
        edge=other.edge if one.edge == "none" else one.edge,
        edge_in=tuple(dict.fromkeys((*one.edge_in, *other.edge_in))),
        written=one.written + other.written,
        refused=one.refused + other.refused,
        capped_to_max=one.capped_to_max or other.capped_to_max,
        changed=one.changed or other.changed,
        stays=tuple(dict.fromkeys(one.stays + other.stays)),
        warnings=tuple(dict.fromkeys(one.warnings + other.warnings)),
    )


def stopped(done: Answer, error: GitleaseError) -> Answer:
    """The answer so far, with the error that stopped it among ``refused``."""
    return joined(
        done,
        Answer(status=done.status, refused=(error,), changed=False, warnings=error.warnings),
    )


def leave_to_runs(answer: Answer, leases: Sequence[Lease]) -> Answer:
    """The answer, with a warning for each lease that an implicit end leaves to its run."""
    names = [str(lease.resource) for lease in leases]
    messages = (f"{name} stays: it belongs to a running command" for name in names)
    return replace(
        answer,
        stays=tuple(dict.fromkeys((*answer.stays, *names))),
        warnings=tuple(dict.fromkeys((*answer.warnings, *messages))),
    )


def several(resources: Sequence[Resource], *, besides: int = 0) -> tuple[Resource, ...]:
    """The resources of one command, each once; UsageError for more than one push should carry.

    ``besides`` is the number of operations that its step has beside one for each.
    """
    found, most = tuple(dict.fromkeys(resources)), MAX_RESOURCES - besides
    if len(found) > most:
        raise UsageError(
            f"{len(found)} resources are more than the {most} of one command",
            hints=("a folder or a pattern covers many files",),
        )
    return found


DAMAGE_SHOWN = 10
NOTICES_BACK = 200  # events
CLAIMED = "claimed after its lapse"


def unread_notices(
    store: LedgerStore, layer: str, notices: Sequence[Notice], actor: Actor
) -> list[Notice]:
    """The notices that this run has not seen in this clone; marks them as shown.

    A notice about another run of the same person stays unread for that run, and is shown to that
    run alone if the person caused it, or if it is a note.
    """
    run = f" to {actor.session}" if actor.session else ""
    keys = {
        n.id + run if is_to(n, actor) else f"{n.id} of another run": n
        for n in notices
        if is_to(n, actor) or not (n.what == NOTED or same_person(n.by, n.to))
    }
    if not keys:
        return []
    before = store.shown(layer, list(keys))
    unread = [n for key, n in keys.items() if key not in before]
    return [replace(n, what=CLAIMED) if _is_claim(store, layer, n) else n for n in unread]


def _is_claim(store: LedgerStore, layer: str, notice: Notice) -> bool:
    # A ledger tells of a claim after a lapse as of a deliberate one, which always has a reason.
    if notice.what != TAKEOVER[0] or notice.reason is None:
        return notice.what == TAKEOVER[0]
    operation = notice.id.partition("-")[0]
    events = store.history(layer, NOTICES_BACK)
    return any(e.operation == operation and e.detail for e in events if e.kind in TAKEOVER)


def is_to(notice: Notice, actor: Actor) -> bool:
    """Return whether it is about this run or the person, not another run."""
    return notice.session in (None, actor.session)


def told(notice: Notice) -> str:
    """A notice as one line."""
    scope = "" if notice.scope == WHOLE else f" (scope {notice.scope})"
    session = f" (session {notice.session})" if notice.session else ""
    why = f': "{notice.reason}"' if notice.reason else ""
    if notice.what == NOTED:
        more = f" (in full: show {notice.resource})" if why.endswith('…"') else ""
        return f"note on {notice.resource}{scope} by {notice.by}{why}{more}"
    if notice.what == CLAIMED:
        return (
            f"{notice.by} claimed {notice.resource}{scope}, after your lease{session} lapsed{why}"
        )
    done = _DONE.get(notice.what, notice.what)
    return f"your claim of {notice.resource}{scope}{session} was {done} by {notice.by}{why}"


_DONE = {
    "taken_over": "taken over",
    "replaced": "replaced, after it had lapsed,",
    "run_out": "ended with its session",
}


def of_damage(damage: Sequence[Damage], *, shown: int = DAMAGE_SHOWN) -> tuple[str, ...]:
    """Warnings about unreadable records, at most ``shown`` of them by name."""
    said = [f"{d.shown} cannot be read: {d.problem}" for d in damage[:shown]]
    if len(damage) > shown:
        said.append(f"{len(damage) - shown} more records cannot be read")
    return tuple(said)


def unread_records(head: Snapshot) -> tuple[str, ...]:
    """A check's warnings about unreadable records of a ledger."""
    damage = () if head.ledger is None else of_damage(tuple(head.ledger.damage()))
    return tuple(f"{text}: its paths are not checked" for text in damage)


def unreadable_line(ledger: Ledger, resource: Resource) -> tuple[str, ...]:
    """Report an unreadable waiting line, which keeps nobody from claiming the resource."""
    problem = ledger.tickets_damage(resource)
    return () if problem is None else (problem,)


BECAME = {
    Fate.APPLIED: "had reached the remote",
    Fate.LOST: "did not reach the remote, and has no effect",
    Fate.UNKNOWN: "is too old to tell its outcome",
    Fate.UNDECIDED: "has not reached the remote so far, and cannot once the ledger changes",
}


@dataclass(frozen=True, slots=True)
class Settled:
    """Messages about earlier changes, and those changes that may still land."""

    said: tuple[str, ...] = ()
    open: tuple[Pending, ...] = ()


def settle(store: LedgerStore, waiting: Iterable[Pending], head: Snapshot) -> Settled:
    """Settle the changes that a head decides."""
    said, still = [], []
    for pending in list(waiting):
        became = store.settle(pending, head)
        if became is Fate.UNDECIDED:
            still.append(pending)
        else:
            said.append(_became(pending, became))
    return Settled(tuple(said), tuple(still))


def told_by(
    store: LedgerStore, head: Snapshot, waiting: Iterable[Pending] | None = None
) -> tuple[str, ...]:
    """Messages about the changes that a head decides; by default about all open ones.

    One that may still land is reported once in this clone.
    """
    settled = settle(store, store.pending(head.layer) if waiting is None else waiting, head)
    still = {x.operations[0]: x for x in settled.open}
    before = store.shown(head.layer, list(still)) if still else frozenset()
    undecided = (_became(x, Fate.UNDECIDED) for key, x in still.items() if key not in before)
    return (*settled.said, *undecided)


def _became(pending: Pending, fate: Fate) -> str:
    return f"an earlier {pending.what.removeprefix('this ')} {BECAME[fate]}"
