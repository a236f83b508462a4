"""Brings back a ledger whose ref was deleted, and ends the wait that follows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from gitlease.kernel.ledger.acts import confirmed
from gitlease.kernel.ledger.answers import Reading
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.ports import Prepared, Snapshot, Swapped
from gitlease.kernel.ledger.stepping import change
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.rules.errors import AnotherLedger, Invalid
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.moves.closing import wait_end
from gitlease.kernel.rules.moves.operations import Barrier, EndWait, Operation, Restore
from gitlease.kernel.rules.moves.transitions import Decided


def restore(session: LedgerSession, *, at_once: bool = False) -> Reading:
    """Put a ledger whose ref was deleted back, as this clone has seen it last: for admins.

    ``at_once``: without its wait, or end it, where an admin has asked everybody. Raises Invalid
    where this clone has seen none, and Rollback where there is another ledger.
    """
    store, layer = session.store, session.layer
    session.check_holder()
    end = EndWait(id=fresh_id(), actor=session.actor)
    try:
        head = store.fetch(layer)
    except AnotherLedger as missing:
        known = store.known(layer)
        if not missing.gone:
            more = "how to bring the former ledger back in its place: gitlease help trouble"
            raise missing.with_(hints=(*missing.hints, more)) from None
        if known is None or known.ledger is None:
            raise
        back = Restore(id=fresh_id(), actor=session.actor, above=0, waits=True)
        mine = _recreate(session, known, [back, end] if at_once else [back])
        revision = known.ledger.header.revision
        by = "restored the ledger" if mine else "somebody else has restored the ledger meanwhile"
        of = f", as this clone has seen it last (revision {revision})" if mine else ""
        ended = " and ended its wait" if mine and at_once else ""
        return replace(confirmed(session, known), told=(f"{by}{ended}{of}",))
    if head.ledger is None:
        raise Invalid(
            f"there is no ledger at {store.place}, and this clone has never seen one there",
            hints=(
                "restore it in a clone that has used it there, the most recent one if possible",
            ),
        )
    waits = wait_end(head.ledger.header, session.clock.now().wall_ms) is not None
    if at_once and waits:
        change(session, "init", [end])
        ended = "ended the wait of the restored ledger: it grants new leases again"
        return replace(confirmed(session, head), told=(ended,))
    said = f"nothing was restored: the ledger at {store.place} is there"
    if at_once:
        said += ", and does not wait"
    reading = confirmed(session, head)
    return replace(reading, warnings=(*reading.warnings, said))


def _recreate(session: LedgerSession, known: Snapshot, operations: list[Operation]) -> bool:
    """Create the ref on top of a known state; False if somebody else did meanwhile."""
    layer = session.layer
    session.transaction.decided(known, operations)  # who may not is told so by what is known here

    def decide(heads: Mapping[str, Snapshot]) -> Mapping[str, Decided]:
        head = heads[layer]
        if head.version != known.version:
            raise _Back(head)
        return {layer: session.transaction.decided(head, operations)}

    def send(prepared: Prepared) -> Swapped:
        return session.store.swap(replace(prepared, expected={layer: ""}))

    with suppress(_Back):
        session.transaction.carry_out_on([layer], decide, what="the restoration", send=send)
        return True
    return False


class _Back(Exception):
    """The ledger is there again."""


def first_step(session: LedgerSession, head: Snapshot) -> list[Operation]:
    """The first step of a new ledger: one that waits if another may have been in its place."""
    if not head.lost:
        return [Barrier(id=fresh_id(), actor=session.actor)]
    return [Restore(id=fresh_id(), actor=session.actor, above=head.token_seen, waits=True)]
