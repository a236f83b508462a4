"""What a clone puts back of its own in a ledger that was restored from an older state.

Every change of a ledger first puts back what the ledger lacks, so that whoever held a lease before
it was deleted goes on (see ``kernel.rules.moves.restoring``).
"""

from __future__ import annotations

from collections.abc import Iterator

from gitlease.kernel.ledger.ports import Snapshot
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import Actor, Lease, Moment, State, holder_has, place
from gitlease.kernel.rules.ledger import Ledger
from gitlease.kernel.rules.moves.closing import wait_end
from gitlease.kernel.rules.moves.restoring import MOST_BACK


def owed(
    head: Snapshot, actor: Actor, moment: Moment, *, brings: bool = False
) -> Iterator[tuple[Actor, tuple[Lease, ...]]]:
    """An actor's own live leases of before that a head lacks, as many as one operation may have.

    ``brings``: the actor is a gateway, and those without a host came through one, for their holder.
    """
    if head.former is None:
        return
    ledger, former = head.ledger, head.former.read()
    if ledger is None or former is None or wait_end(ledger.header, moment.now.wall_ms) is None:
        return
    then, every = replace(moment, seen=head.former.seen), former.every_lease()
    others = dict.fromkeys(x.holder for x in every if x.host is None) if brings else {}
    for who in dict.fromkeys([actor, *map(Actor, others)]):
        own = [x for x in every if _is_owed(x, ledger, who, then)]
        for start in range(0, len(own), MOST_BACK):
            yield who, tuple(own[start : start + MOST_BACK])


def _is_owed(lease: Lease, ledger: Ledger, actor: Actor, moment: Moment) -> bool:
    if lease.state is not State.ACTIVE or not lease.same_holder(actor):
        return False
    # Another clone of this person knows better what became of its leases since.
    if lease.host is not None and lease.place.host != place(actor.host).host:
        return False
    try:
        stood = ledger.lease(lease.resource, lease.scope)
    except Invalid:
        return False
    there = stood is not None and stood.lease_id == lease.lease_id
    if stood is not None and there and stood.renewals >= lease.renewals:
        return False
    return holder_has(lease, moment)
