"""What was lost with a ledger that was deleted, and what must hold once it is there again.

Judged by the records of two states and by what was granted before, never by the product's rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from ledger_checker.moves import Broken, same_person
from ledger_checker.state import MS

if TYPE_CHECKING:
    from support.memory import Step

    from gitlease.kernel.rules.lease import Lease
    from gitlease.kernel.rules.ledger import Header

RESTORED, WAIT_ENDED, PUT_BACK = "restored", "wait_ended", "put_back"
LEAST = 86_400 * MS  # milliseconds: no lease lasts longer
SKEW = 30 * MS  # by which a clock is off at most where all are common


class Line:
    """The moves of the ref from the first on: one past, of which a rollback makes another."""

    def __init__(self, moves: Sequence[tuple[str, frozenset[str], frozenset[str]]] = ()) -> None:
        self.moves = list(moves)
        self.places = {version: n for n, (version, _, _) in enumerate(self.moves)}
        self.operations = {op for _, ops, _ in self.moves for op in ops}
        self.gone = {lease for _, _, gone in self.moves for lease in gone}

    def add(self, version: str, operations: Iterable[str], gone: Iterable[str]) -> None:
        move = version, frozenset(operations), frozenset(gone)
        self.places[version] = len(self.moves)
        self.moves.append(move)
        self.operations |= move[1]
        self.gone |= move[2]

    @property
    def last(self) -> str:
        return self.moves[-1][0]

    def until(self, version: str) -> Line:
        return Line(self.moves[: self.places[version] + 1])


class Losses:
    """The lines that were lost, and all grants there. ``again`` is the last restoration.

    ``waived`` are leases that somebody had as an admin said that nobody has any.
    """

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.again = ""
        self.waived = self.put_back = 0
        self._top = 0
        self._granted: dict[str, Lease] = {}

    def had(self, version: str) -> bool:
        """Whether a version is among what was lost."""
        return any(version in line.places for line in self.lines)

    def moved(self, after: Step, back: Sequence[Lease], changed: Iterable[Lease]) -> None:
        """A move of the ref, in which some leases are put ``back``."""
        for lease in back:
            self.put_back += 1
            was = self._granted.get(lease.lease_id)
            same = was is not None and all(
                getattr(was, x) == getattr(lease, x) for x in ("token", "resource", "claimed_at")
            )
            if was is None or not same or not same_person(was.holder, lease.holder):
                raise Broken(f"S7: {lease.resource} was never granted as it is put back")
            if lease.expires_at > was.expires_at:
                raise Broken(f"S3: {lease.resource} lasts longer since it was put back")
        self._granted |= {x.lease_id: x for x in changed if x not in back}
        self._top = max(self._top, after.header.token)

    def check_again(self, before: Step | None, after: Step) -> None:
        """A ledger takes the place of the deleted one: it waits, and its tokens are higher."""
        at = next((e.at for e in after.events if e.kind == RESTORED), None)
        if at is None:
            raise Broken("S2: a ledger was made where one was deleted, as if there had been none")
        if after.header.token <= self._top:
            raise Broken("S4: a restored ledger begins with tokens that were given before")
        until, ended = after.header.closed_until, any(e.kind == WAIT_ENDED for e in after.events)
        if not ended and (until is None or until < at + LEAST):
            raise Broken("S2: a restored ledger grants before every lease has lapsed")


def check_open(
    before: Header | None,
    after: Step,
    granted: Collection[Lease],
    true_wall: Callable[[], float] | None,
) -> None:
    """S2: nothing new is granted while a restored ledger waits, unless an admin ends that."""
    until = None if before is None else before.closed_until
    if until is None or not granted or any(e.kind == WAIT_ENDED for e in after.events):
        return
    by_all = (
        [after.events[-1].at] if true_wall is None else [after.events[-1].at, true_wall() + SKEW]
    )
    if min(by_all) < until:
        raise Broken("S2: a restored ledger granted something before its wait was over")
