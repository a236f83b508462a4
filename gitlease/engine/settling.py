"""What became of changes whose outcome an earlier command could not know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gitlease.core.frozen import dataclass
from gitlease.core.ledger import Fate
from gitlease.engine.ports import LedgerStore, Pending, Snapshot

BECAME = {
    Fate.APPLIED: "had reached the remote",
    Fate.LOST: "did not reach the remote, and no longer can",
    Fate.UNKNOWN: "is too long ago to tell what became of it",
    Fate.UNDECIDED: "has not reached the remote so far, and cannot once the ledger changes",
}


@dataclass(frozen=True, slots=True)
class Settled:
    """What there is to say of earlier changes, and those of them that may land yet."""

    said: tuple[str, ...] = ()
    open: tuple[Pending, ...] = ()


def settle(store: LedgerStore, waiting: Iterable[Pending], head: Snapshot) -> Settled:
    """Settle those of the changes that a head decides."""
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
    """What a head tells of changes, of all that were left open if none are given.

    That one may land yet is said once in this clone.
    """
    settled = settle(store, store.pending(head.layer) if waiting is None else waiting, head)
    return settled.said + _open_still(store, head.layer, settled.open)


def _open_still(store: LedgerStore, layer: str, still: Sequence[Pending]) -> tuple[str, ...]:
    if not still:
        return ()
    before = store.shown(layer, [x.operations[0] for x in still])
    return tuple(_became(x, Fate.UNDECIDED) for x in still if x.operations[0] not in before)


def _became(pending: Pending, fate: Fate) -> str:
    return f"an earlier {pending.what.removeprefix('this ')} {BECAME[fate]}"
