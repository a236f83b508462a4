"""The remote of a simulation: its moves are watched, its replicas may lag, and it may go back."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ledger_checker.beliefs import Checker
from ledger_checker.losses import Line
from simulation.machines import LAYER
from support.memory import MemoryRemote

from gitlease.kernel.ledger.ports import Swapped
from gitlease.kernel.rules.work import WorkRef
from gitlease.kernel.store.storage import Move


class Surroundings(Protocol):
    """What the server needs of the world around it."""

    dice: random.Random
    checker: Checker
    faults: Counter[str]

    def outside(self, step: str) -> None:
        """Told of every step that leaves the process. Raises Killed where it dies there."""


class Server(MemoryRemote):
    """A remote that has every move of its ref judged.

    ``lagging`` is how likely a reader is shown an older state, ``behind`` how old at most in moves.
    """

    def __init__(self, around: Surroundings) -> None:
        super().__init__()
        self.around = around
        self.lagging, self.behind = 0.0, 12
        self._left: Line | None = None
        self.places: dict[str, str] = {}  # by version the ref at which it was

    def push(
        self,
        moves: Sequence[Move],
        work: Sequence[WorkRef] = (),
        on_start: Callable[[], object] = lambda: None,
    ) -> Swapped:
        self.around.outside("before a push")
        pushed = super().push(moves, work, on_start)
        self.around.outside("after a push")
        return pushed

    def roll_back(self, steps: int) -> None:
        """Show and take an earlier state as the present one, as a restored backup does."""
        past = self.around.checker.line.moves
        if self._left is None and len(past) > steps:
            version = past[len(past) - 1 - steps][0]
            self._left = self.around.checker.rolled_back(version)
            self.force(LAYER, version)

    @property
    def rolled_back(self) -> bool:
        return self._left is not None

    def bring_back(self) -> Line | None:
        """Bring back what was there before the rollback; the moves that count again, if any."""
        line, self._left = self._left, None
        if line is not None:
            self.around.checker.restored(line)
            self.force(LAYER, line.last)
        return line

    def _answer(self, kind: str, layer: str) -> str | None:
        self.around.outside(f"before a {kind}")
        found = super()._answer(kind, layer)
        self.around.outside(f"after a {kind}")
        if found and not self.rolled_back and self.around.dice.random() < self.lagging:
            moves = self.around.checker.line.moves
            past = [version for version, _, _ in moves if self.places[version] == layer]
            back = self.around.dice.randint(1, self.behind)
            if back < len(past):
                self.around.faults["lagging replica"] += 1
                return past[len(past) - 1 - back]
        return found

    def _move(self, moves: Iterable[Move]) -> bool:
        moves = list(moves)
        there = {move.layer: self.refs.get(move.layer, "") for move in moves}
        moved = super()._move(moves)
        for move in moves if moved else ():
            after, base = self.steps[move.new], move.expected
            if not base or self.steps[base].header.moved_to is not None:
                base = after.parent  # a ledger that is there again, or goes on at another place
            self.places[move.new] = move.layer
            before = self.steps[base] if base else None
            self.around.checker.moved(move.new, before, after, there[move.layer])
        return moved

    def delete(self, place: str) -> None:
        """Delete the ref at a place, as anybody who may push can."""
        self.around.checker.deleted()
        self.force(place, "")
