"""A ledger that moves to another place, with all that is in it.

Its last step at the old place names the new one. From then on nothing is decided there, so whoever
still reads it is sent on. The first step at the new place follows that very state: the id, the
tokens and the live leases go on.
"""

from __future__ import annotations

from gitlease.kernel.rules.errors import Invalid, hint, shown
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import Moment
from gitlease.kernel.rules.ledger import MOVED_FORMAT, Header, Ledger
from gitlease.kernel.rules.moves import operations as ops
from gitlease.kernel.rules.moves.closing import check_admin
from gitlease.kernel.rules.moves.operations import Event, Operation, Outcome

MOVED, OPENED = "moved", "opened"
MAX_PLACE = 600


def move(ledger: Ledger, op: ops.MoveLedger, moment: Moment) -> tuple[Ledger, Outcome]:
    """End the ledger here: by an admin, or by anyone if there are none."""
    by, finish = op.actor.holder, hint("one of them can do it: `{}`", "init", move=True)
    check_admin(ledger.header.policy, by, "move it", finish)
    if not op.to.isprintable() or not 0 < len(op.to) <= MAX_PLACE or op.to.count(" ") < 2:
        raise Invalid("the place to which the ledger is to move is not a place")
    moved = Event(MOVED, op.id, moment.now.wall_ms, by, detail=op.to)
    # Older clients would go on here.
    header = replace(ledger.header, moved_to=op.to, format=MOVED_FORMAT)
    return ledger.with_header(header), Outcome(operation=op.id, status=MOVED, events=(moved,))


def open_moved(ledger: Ledger, op: ops.OpenMoved, moment: Moment) -> tuple[Ledger, Outcome]:
    """Go on at the new place."""
    if ledger.header.moved_to != op.at:
        raise Invalid("the ledger was not moved to this place")
    opened = Event(OPENED, op.id, moment.now.wall_ms, op.actor.holder, detail=op.at)
    header = replace(ledger.header, moved_to=None)
    return ledger.with_header(header), Outcome(operation=op.id, status=OPENED, events=(opened,))


def check_here(header: Header, operation: Operation) -> None:
    """Raise Invalid if the ledger has moved away, so that nothing else is decided here."""
    if header.moved_to is not None and not isinstance(operation, ops.OpenMoved):
        raise Invalid(
            f"the ledger was moved to {place_text(header.moved_to)}: nothing changes here any more"
        )


def place_text(place: str) -> str:
    """A place for people."""
    remote, prefix, layer = (shown(x) for x in [*place.rsplit(" ", 2), "", ""][:3])
    return f"{prefix}/{layer}" + ("" if remote == "-" else f" of {remote}")
