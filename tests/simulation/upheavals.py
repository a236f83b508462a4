"""What becomes of a whole ledger: its ref is deleted and it comes back, or it moves and returns.

Anybody may delete the ref. Then somebody restores it from what one clone has seen, perhaps two at
once, or makes a new one in its place. An admin ends the wait that follows, having asked everybody
or not, or days pass. The ledger moves whenever main names another place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.commands import Commands
from simulation.machines import LAYER, Process, Run
from simulation.places import PLACES, word_of

from gitlease.kernel.ledger import acts
from gitlease.kernel.ledger.answers import Reading
from gitlease.kernel.ledger.deleted import restore
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.ledger import Header
from gitlease.kernel.store.git_ledger import LATE

if TYPE_CHECKING:
    from simulation.world import World

APART = 180.0  # seconds between two deletions: more than clocks differ where they are common
LATELY = LATE / MS + 60.0  # in which whoever comes to the new place first goes on there


class Upheavals:
    """Those of one world. ``main`` is the place that the default branch names."""

    def __init__(self, world: World, commands: Commands) -> None:
        self._world = world
        self.main = LAYER
        self.recorded: str | None = None
        self._deleted_at = self._moved_at = 0.0
        self._movers = 0  # moves that are under way, on machines that may sleep meanwhile
        verbs = commands.verbs
        verbs["restore"] = lambda x: restore(self._session(x))
        verbs["restore now"] = lambda x: restore(self._session(x), at_once=True)
        verbs["new ledger"] = self._make_another
        verbs["move"] = self._move_there

    def _session(self, process: Process) -> LedgerSession:
        return self._world.session(process)

    def _make_another(self, process: Process) -> Reading:
        process.run.machine.seen = None  # whoever is told to use another gives up what was known
        return acts.confirm(self._session(process), another=True)

    def _move_there(self, process: Process) -> Reading:
        def there() -> Header | None:
            version = self._world.remote.fetch(self.main)
            return None if version is None else self._world.remote.steps[version].header

        session = self._session(process)
        session.store.reopens = True  # type: ignore[attr-defined]
        self._movers += 1
        try:
            return acts.move(session, word_of(self.main), there)
        finally:
            self._movers -= 1

    @property
    def header(self) -> Header:
        """That of the newest state."""
        world = self._world
        return world.remote.steps[world.checker.line.last].header

    def happen(self) -> None:
        """Take the next step of whatever is the matter, or let something begin."""
        world, dice = self._world, self._world.dice
        checker, header = world.checker, self.header
        now = world.true_wall()
        if self._is_moving():
            self._moved_at = world.true
        if self.recorded != header.ledger_id and not checker.is_deleted and dice.random() < 0.3:
            self.recorded = header.ledger_id  # in the settings on the default branch
        if checker.is_deleted:
            if dice.random() < 0.4:
                self._bring_back()
        elif self._is_moving():
            if dice.random() < 0.3:
                world.command(dice.choice(world.people), "move")
        elif header.closed_until is not None and header.closed_until + 60_000 > now:
            self._wait(dice.random())
        elif dice.random() < world.weather.upheavals:
            if dice.random() < 0.5:
                # A push that opens a moved ledger, and sleeps while others open and delete it,
                # finds nothing there as before: no compare-and-swap tells the two apart.
                is_far = world.true - self._deleted_at > APART and not self._movers
                if is_far and world.true - self._moved_at > LATELY and self._somebody_may():
                    self._delete()
            else:
                self.main = next(x for x in PLACES if x != self.main)
                self._count("main names another place")

    def _is_moving(self) -> bool:
        world = self._world
        return world.remote.places[world.checker.line.last] != self.main

    def _wait(self, draw: float) -> None:
        world, dice = self._world, self._world.dice
        if draw < 0.04:
            if dice.random() < 0.5:  # an admin asks everybody
                for run in world.people:
                    world.command(run, "note")
            world.command(dice.choice(world.people), "restore now")
        elif draw < 0.08:
            world.days_pass()

    def _delete(self) -> None:
        world = self._world
        world.remote.arrive()
        world.remote.delete(world.remote.places[world.checker.line.last])
        self._deleted_at = world.true
        self._count("deletion")

    def _bring_back(self) -> None:
        world, dice = self._world, self._world.dice
        draw, run = dice.random(), dice.choice(world.people)
        verb = "restore" if draw < 0.7 else "restore now" if draw < 0.85 else "new ledger"
        if world.observed and verb == "new ledger":
            return  # its policy would be the usual one, which trusts wall clocks
        if not self._may_restore(run):
            return
        before = world.checker.is_deleted
        said = world.command(run, verb)
        if said == "ok" and before:
            self._count(verb)

    def _may_restore(self, run: Run) -> bool:
        """Whoever missed a restoration knows what tokens come next by a common clock alone."""
        world, known = self._world, run.machine.disk.load()
        if not world.observed:
            return True
        return known is not None and world.checker.knows_all(known.version)

    def _somebody_may(self) -> bool:
        return any(self._may_restore(run) for run in self._world.people)

    def _count(self, what: str) -> None:
        self._world.faults[what] += 1
        self._world.turns += 1

    def settle(self) -> None:
        """The ledger comes back where it was deleted, and a move comes to its end."""
        world = self._world
        # An admin who was away since a move finishes that; nobody else may restore then.
        for verb in ("restore", *([] if world.observed else ["move", "new ledger"])):
            for run in world.people:
                if world.checker.is_deleted and self._may_restore(run):
                    world.command(run, verb)
        self.recorded = self.header.ledger_id
        for run in world.people:
            if self._is_moving():
                world.command(run, "move")
