"""News for a holder, shown once in a clone: lost leases, and outcomes of open changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gitlease.core.frozen import dataclass, replace
from gitlease.core.lease import Actor, same_person
from gitlease.core.ledger import Damage, Fate, Ledger, Notice
from gitlease.core.moves.operations import TAKEOVER
from gitlease.core.resources.resource import WHOLE, Resource
from gitlease.engine.ports import LedgerStore, Pending, Snapshot

DAMAGE_SHOWN = 10
LOOKED_BACK = 200  # events
CLAIMED = "claimed after its lapse"


def unread_notices(
    store: LedgerStore, layer: str, notices: Sequence[Notice], actor: Actor
) -> list[Notice]:
    """The notices that this run has not seen in this clone; marks them as shown.

    A notice about another run of the same person stays unread for that run, and is shown to that
    run alone if the person caused it.
    """
    run = f" to {actor.session}" if actor.session else ""
    keys = {
        n.id + run if is_to(n, actor) else f"{n.id} of another run": n
        for n in notices
        if is_to(n, actor) or not same_person(n.by, n.to)
    }
    if not keys:
        return []
    before = store.shown(layer, list(keys))
    unread = [n for key, n in keys.items() if key not in before]
    return [replace(n, what=CLAIMED) if _is_claim(store, layer, n) else n for n in unread]


def _is_claim(store: LedgerStore, layer: str, notice: Notice) -> bool:
    # A ledger tells of a claim after a lapse as of a takeover, which has a reason always.
    if notice.what != TAKEOVER[0] or notice.reason is None:
        return notice.what == TAKEOVER[0]
    operation = notice.id.partition("-")[0]
    events = store.history(layer, LOOKED_BACK)
    return any(e.operation == operation and e.detail for e in events if e.kind in TAKEOVER)


def is_to(notice: Notice, actor: Actor) -> bool:
    """Whether it is about this run or the person, not another run."""
    return notice.session in (None, actor.session)


def told(notice: Notice) -> str:
    """A notice as one line."""
    scope = "" if notice.scope == WHOLE else f" (scope {notice.scope})"
    session = f" (session {notice.session})" if notice.session else ""
    why = f': "{notice.reason}"' if notice.reason else ""
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
