"""A ledger's history, as the checker's tests write it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pygit2
from kernel.rules.values import empty
from ledger_checker.checker import Verified, verify
from support.forge import objects_in

from gitlease.check import replay
from gitlease.kernel.git.repository import discover
from gitlease.kernel.rules.lease import Moment
from gitlease.kernel.rules.ledger import Ledger
from gitlease.kernel.rules.moves.operations import Operation
from gitlease.kernel.rules.moves.transitions import Decided, decide
from gitlease.kernel.store.private_store import make_bare
from gitlease.kernel.store.tree import read_ledger, write_step


class Book:
    """A ledger in a bare repository, written step by step by the product's own code."""

    def __init__(self, path: Path) -> None:
        make_bare(str(path))
        self.path = path
        self.repo = pygit2.Repository(str(path))
        self.ledger: Ledger = empty()
        self.tips: list[str] = []
        self.replaceable = False

    @property
    def tip(self) -> str:
        return self.tips[-1] if self.tips else ""

    def step(self, *operations: Operation, when: Moment, together: bool = True) -> Decided:
        return self.write(decide(self.ledger, operations, when, together=together))

    def write(self, decided: Decided, *, replacing: bool = False) -> Decided:
        """Store what was decided; ``replacing``: in the place of the renewal before, if it may."""
        renews = decided.applied.only_renews
        instead = replacing and renews and self.replaceable
        objects = objects_in(self.repo)
        self.tips.append(write_step(objects, decided, self.tip, replace_tip=instead)[0])
        self.replaceable = renews and len(self.tips) > 1
        self.ledger = read_ledger(objects, self.tip)
        return decided

    def forged(self, change: Callable[[Ledger], Ledger], *ops: Operation, when: Moment) -> None:
        """A step whose result is changed before it is written."""
        decided = decide(self.ledger, ops, when)
        applied = replace(decided.applied, ledger=change(decided.applied.ledger))
        self.write(replace(decided, applied=applied))

    def check(self, *tips: str) -> Verified:
        """What the independent checker finds; the product's replay must agree."""
        found, replayed = verify(self.path, self.tip, tips), self.replay(*tips)
        assert {x.commit for x in replayed.broken} == {x.commit for x in found.broken}, replayed
        if not found.unjudged and not found.broken:
            counted = ("revision", "commits", "decisions")
            assert [getattr(replayed, x) for x in counted] == [getattr(found, x) for x in counted]
        assert replayed.hidden == found.hidden
        assert found.broken or found.unjudged or replayed.leases >= found.leases
        return found

    def replay(self, *tips: str) -> replay.Verified:
        return replay.verify(discover(str(self.path)), self.tip, tips, environ=os.environ)

    def broken(self) -> list[str]:
        """The rules that the last commit breaks; those before it break none."""
        found = self.check().broken
        assert {one.commit for one in found} <= {self.tip}
        return [one.rule for one in found]
