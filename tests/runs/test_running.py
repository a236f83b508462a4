"""A command under leases: under a manual clock, with a remote and a command that are scripted."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import cast

import pytest
from kernel.rules.values import F001, JO, KIM
from support.clock import ManualClock
from support.memory import Fault, MemoryClone, MemoryRemote, memory_ledger_store
from support.session import LeaseService, ledger_session

from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.ledger.heartbeat import Heartbeat
from gitlease.kernel.ledger.keeping import Keeper, holds_of
from gitlease.kernel.rules.errors import Loss
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.loss import Hold, Lost
from gitlease.kernel.rules.resources import parse_resource
from gitlease.runs.supervisor import (
    FAILED,
    Ended,
    SupervisedProcess,
    Supervisor,
    early_by,
    grace_ms,
)

TTL = 900
RUN = Actor(JO.holder, session="run-1", session_explicit=True)
TICK = 50  # milliseconds


class World:
    """One remote, one clock, one run of Jo's: its heartbeat is beaten as time passes."""

    def __init__(self, *, ttl: int = TTL, grace: int | None = None, words: str = "F001") -> None:
        self.clock, self.remote = ManualClock(), MemoryRemote()
        self.clones: defaultdict[str, MemoryClone] = defaultdict(MemoryClone)
        self.of(KIM).set_policy({"admins": KIM.holder, "ttl_min": "1s", "skew": "0s"})
        wanted = [parse_resource(word) for word in words.split()]
        self.holds = holds_of(self.of(RUN).claim(wanted, ClaimOptions(ttl=ttl)))
        self.grace = grace_ms(grace, self.holds)
        self.keeper = Keeper(
            lambda limit: self.of(Actor(JO.holder), patience=2 * limit).session,
            clock=self.clock,
            dice=random.Random(7),
            early=early_by(self.grace),
        )
        self.listener: Callable[[Lost], None] = lambda _lost: None
        self.began = self.clock.boot_ms
        self.reasons: list[Lost | str | None] = []
        self.script: dict[float, Callable[[], object]] = {}

    def of(self, who: Actor, *, patience: float = 60.0) -> LeaseService:
        store = memory_ledger_store(
            self.remote, clock=self.clock, clone=self.clones[who.holder], place="origin"
        )
        dice = random.Random(7)
        return LeaseService(
            ledger_session(store, clock=self.clock, actor=who, patience=patience, dice=dice)
        )

    def after(self, seconds: float, what: Callable[[], object]) -> None:
        self.script[seconds] = what

    def attend(self, command: ScriptedCommand) -> Ended:
        process, heartbeat = cast(SupervisedProcess, command), cast(Heartbeat, self)
        how = {"clock": self.clock, "grace": self.grace, "on_stop": self.reasons.append}
        return Supervisor(process, heartbeat, self.holds, **how).attend()  # type: ignore[arg-type]

    def seconds(self) -> float:
        return (self.clock.boot_ms - self.began) / 1_000

    @property
    def end(self) -> float:
        """Seconds after the start at which others may start, unless it is renewed."""
        return min(hold.duration_ms for hold in self.holds) / 1_000

    def break_remote(self) -> None:
        self.remote.pushes.extend([Fault.UNREACHABLE] * 10_000)
        self.remote.fetches.extend([Fault.UNREACHABLE] * 10_000)

    # A heartbeat, as a Supervisor sees it.

    def keep(self, holds: Sequence[Hold], listener: Callable[[Lost], None]) -> None:
        self.listener = listener
        self.keeper.add(holds)

    def drop(self, lease_ids: Sequence[str], listener: Callable[[Lost], None]) -> None:
        self.keeper.drop(lease_ids)

    def look(self) -> None:
        for lost in self.keeper.overdue():
            self.listener(lost)

    def left_ms(self, lease_id: str) -> int:
        return self.keeper.left_ms(lease_id)

    def tick(self) -> None:
        """A moment passes for everybody: what a heartbeat's threads do in it is done."""
        self.clock.advance(TICK / 1_000)
        for at in [at for at in self.script if at <= self.seconds()]:
            self.script.pop(at)()
        self.look()
        if batch := self.keeper.batch():
            for lost in self.keeper.settle(self.keeper.renew(batch)):
                self.listener(lost)


class ScriptedCommand:
    """A command that ends ``after`` so many seconds, and ``on_term`` so long after TERM."""

    def __init__(
        self,
        world: World,
        *,
        after: float | None = None,
        status: int = 0,
        on_term: float | None = 0.1,
        guarded: bool = True,
    ) -> None:
        self.world, self.after, self.status = world, after, status
        self.on_term, self.guarded = on_term, guarded
        self.events: list[tuple[str, float]] = []
        self.until: list[int] = []
        self.to_stop = self.told_to_end = self.group_is_left = self.goes_on = False
        self.spares_runs = False
        self.is_watched = guarded
        self.ended: int | None = None
        self.frozen = 0.0
        self._woken = False

    def at(self, what: str) -> list[float]:
        return [at for name, at in self.events if name == what]

    def wait(self, seconds: float) -> int | None:
        over = self.world.seconds() + seconds
        while True:
            self._live()
            if self.ended is not None:
                return self.ended
            if self.frozen:  # of this process nothing runs, and of its heartbeat neither
                self.world.clock.advance(self.frozen)
                self.frozen = 0.0
                self._guardian()
                continue
            if self._woken or self.world.seconds() >= over - 1e-9:
                self._woken = False
                return None
            self.world.tick()
            self._guardian()

    def _live(self) -> None:
        now, asked = self.world.seconds(), self.at("TERM")
        if self.ended is None and asked and self.on_term is not None:
            self.ended = 143 if now >= asked[0] + self.on_term else None
        if self.ended is None and self.after is not None and now >= self.after:
            self.ended = self.status

    def _guardian(self) -> None:
        if self.guarded and self.ended is None and self.world.clock.boot_ms >= self.until[-1]:
            self.events.append(("GUARDIAN", (self.until[-1] - self.world.began) / 1_000))
            self.ended = 137

    def left_behind(self) -> list[str]:
        return []

    def ask(self) -> None:
        self.events.append(("TERM", self.world.seconds()))

    def kill(self) -> None:
        self.events.append(("KILL", self.world.seconds()))
        self.ended = self.ended or 137

    def guard(self, until_ms: int) -> bool:
        self.until.append(until_ms)
        return self.guarded

    def wake(self) -> None:
        self._woken = True


@pytest.mark.parametrize("status", [0, 1, 75, 125, 137, 255])
def test_a_run_ends_with_the_status_of_its_command(status: int) -> None:
    world = World()
    command = ScriptedCommand(world, after=10, status=status)
    ended = world.attend(command)
    assert (ended.exit, ended.lost, command.events) == (status, (), [])
    assert world.keeper.due_in() is None, "nothing is kept any more"


def test_a_long_run_never_lapses_and_its_guardian_is_told_in_time() -> None:
    world = World(ttl=60)
    command = ScriptedCommand(world, after=1_200)
    assert world.attend(command).exit == 0
    assert command.at("GUARDIAN") == []
    pairs = zip(command.until, command.until[1:], strict=False)
    assert all(later >= sooner - TICK for sooner, later in pairs), "never shortened"
    assert len(world.remote.requests) <= 1_200 / 20 + 10


@pytest.mark.parametrize("ttl", [1, 2, 3, 10, 60, 900])
def test_the_command_may_never_live_to_where_others_may_start(ttl: int) -> None:
    world = World(ttl=ttl)
    command = ScriptedCommand(world, after=0.01)
    world.attend(command)
    assert command.until[0] < world.began + ttl * 1_000
    [hold] = world.holds
    assert command.until[0] <= world.began + ttl * 1_000 - hold.early_ms() // 2


# --- the grace ------------------------------------------------------------------------------------


def test_an_outage_past_the_deadline_ends_the_command_before_the_lease() -> None:
    world = World(ttl=60)
    world.break_remote()
    command = ScriptedCommand(world, on_term=None)
    ended = world.attend(command)
    assert [x.loss for x in ended.lost] == [Loss.UNREACHABLE]
    assert (ended.exit, ended.status) == (FAILED, 137)
    [term], [kill] = command.at("TERM"), command.at("KILL")
    assert kill < world.end
    assert kill - term == pytest.approx(10, abs=0.2), "the whole grace"
    assert isinstance(world.reasons[0], Lost)


@pytest.mark.parametrize("by", [RUN, Actor(JO.holder)], ids=["by itself", "by its person"])
def test_an_end_by_name_stops_the_command_unless_its_session_did_it(by: Actor) -> None:
    world = World()
    world.after(20, lambda: world.of(by).release([F001]))
    command = ScriptedCommand(world, after=2 * TTL, status=3)
    ended = world.attend(command)
    assert (ended.exit, bool(ended.lost)) == ((3, False) if by is RUN else (FAILED, True))


# --- failures that recover ------------------------------------------------------------------------


def test_a_run_that_was_stopped_past_the_end_finds_its_command_dead_and_says_lost() -> None:
    world = World(ttl=60)
    command = ScriptedCommand(world, on_term=None)
    world.after(5, lambda: setattr(command, "frozen", 600.0))
    ended = world.attend(command)
    [at] = command.at("GUARDIAN")
    assert at < world.end
    assert [x.loss for x in ended.lost] == [Loss.EXPIRED]
    assert ended.exit == FAILED


def test_a_command_that_cannot_be_guarded_any_more_is_stopped() -> None:
    world = World()
    command = ScriptedCommand(world, on_term=None)
    world.after(20, lambda: setattr(command, "guarded", False))
    ended = world.attend(command)
    assert (ended.exit, ended.lost) == (FAILED, ())
    assert ended.failure is not None
    assert "guardian" in ended.failure
    [term], [kill] = command.at("TERM"), command.at("KILL")
    assert kill - term == pytest.approx(10, abs=0.2)


@pytest.mark.parametrize(("on_term", "status"), [(2.0, 143), (None, 137)])
def test_a_wish_to_stop_is_term_grace_kill_and_no_loss(on_term: float | None, status: int) -> None:
    world = World()

    def wish() -> None:
        command.to_stop = True
        command.wake()

    command = ScriptedCommand(world, on_term=on_term)
    world.after(20, wish)
    ended = world.attend(command)
    assert (ended.exit, ended.stopped, ended.lost) == (status, True, ())
    assert world.reasons == [None]
    assert len(command.at("TERM")) == 1
