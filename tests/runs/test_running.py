"""A command under leases: under a manual clock, with a remote and a command that are scripted."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import cast

import pytest
from core.values import F001, JO, KIM
from support.clock import ManualClock
from support.memory import Fault, MemoryClone, MemoryRemote, memory_ledger_store
from support.session import LeaseService, ledger_session

from gitlease.core import Actor, GitleaseError, Hold, Loss, Lost, early_ms, parse_resource
from gitlease.engine import ClaimOptions, Keeper, holds_of
from gitlease.runs import (
    CannotExecute,
    Ended,
    Heartbeat,
    NoCommand,
    SupervisedProcess,
    Supervisor,
    early_by,
    exit_of_refusal,
    grace_ms,
)
from gitlease.runs.supervisor import FAILED

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
        """Have something happen so long after the start."""
        self.script[seconds] = what

    def attend(self, command: ScriptedCommand) -> Ended:
        supervisor = Supervisor(
            cast(SupervisedProcess, command),
            cast(Heartbeat, self),
            self.holds,
            clock=self.clock,
            grace=self.grace,
            on_stop=self.reasons.append,
        )
        return supervisor.attend()

    def seconds(self) -> float:
        """How long ago it began."""
        return (self.clock.boot_ms - self.began) / 1_000

    @property
    def end(self) -> float:
        """Seconds after the start at which others may start, unless it is renewed."""
        return min(hold.duration_ms for hold in self.holds) / 1_000

    def break_remote(self) -> None:
        self.remote.pushes.extend([Fault.UNREACHABLE] * 10_000)
        self.remote.fetches.extend([Fault.UNREACHABLE] * 10_000)

    def mend_remote(self) -> None:
        self.remote.pushes.clear()
        self.remote.fetches.clear()

    def live(self) -> list[str]:
        ledger = self.remote.ledger(self.remote.refs["global"])
        return [f"{x.resource} {x.holder}" for x in ledger.every_lease()]

    # --- a heartbeat, as a Supervisor sees it -----------------------------------------------------

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
    """A command that ends by itself ``after`` so many seconds, and ``on_term`` so long after TERM.

    None: not at all. ``rest``: how long what it started lives on after TERM.
    """

    def __init__(
        self,
        world: World,
        *,
        after: float | None = None,
        status: int = 0,
        on_term: float | None = 0.1,
        on_kill: bool = True,
        rest: float | None = 0.0,
        guarded: bool = True,
    ) -> None:
        self.world, self.after, self.status = world, after, status
        self.on_term, self.on_kill, self.rest, self.guarded = on_term, on_kill, rest, guarded
        self.events: list[tuple[str, float]] = []
        self.until: list[int] = []
        self.to_stop = self.told_to_end = False
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
        """What the other process does: it counts by itself."""
        if self.guarded and self.ended is None and self.world.clock.boot_ms >= self.until[-1]:
            self.events.append(("GUARDIAN", (self.until[-1] - self.world.began) / 1_000))
            self.ended = 137

    def wait_for_group(self, seconds: float) -> bool:
        asked = self.at("TERM")
        left = seconds if self.rest is None else asked[0] + self.rest - self.world.seconds()
        self.world.clock.advance(max(0.0, min(seconds, left)))
        return self.rest is not None and left <= seconds

    def ask(self) -> None:
        self.events.append(("TERM", self.world.seconds()))

    def kill(self) -> None:
        self.events.append(("KILL", self.world.seconds()))
        if self.on_kill and self.ended is None:
            self.ended = 137

    def guard(self, until_ms: int) -> bool:
        self.until.append(until_ms)
        return self.guarded

    def wake(self) -> None:
        self._woken = True


# --- a healthy one --------------------------------------------------------------------------------


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
    assert command.until[0] <= world.began + ttl * 1_000 - early_ms(hold) // 2


# --- the grace ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ttl", "asked", "grace"),
    [(900, None, 10), (900, 150, 150), (900, 151, 150), (30, None, 5), (2, 1, 1 / 3), (900, 1, 1)],
)
def test_the_grace_is_ten_seconds_and_at_most_a_sixth(
    ttl: int, asked: int | None, grace: float
) -> None:
    world = World(ttl=ttl, grace=asked)
    assert world.grace == int(grace * 1_000)


def test_the_shortest_lease_bounds_the_grace() -> None:
    world = World(words="F001 F002")
    short = Hold(grant=world.holds[0].grant, since=world.holds[0].since, duration_ms=12_000)
    assert grace_ms(None, [world.holds[1], short]) == 2_000


# --- every reason of loss -------------------------------------------------------------------------


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


def test_a_command_that_heeds_term_is_not_killed() -> None:
    world = World(ttl=60)
    world.break_remote()
    command = ScriptedCommand(world, on_term=3)
    ended = world.attend(command)
    assert (ended.exit, ended.status, command.at("KILL")) == (FAILED, 143, [])


@pytest.mark.parametrize("loss", [Loss.REVOKED, Loss.RELEASED_ELSEWHERE])
def test_a_loss_that_is_heard_of_ends_the_command_at_once(loss: Loss) -> None:
    world = World()
    deeds: dict[Loss, Callable[[], object]] = {
        Loss.REVOKED: lambda: world.of(KIM).revoke(F001, reason="wrong task"),
        Loss.RELEASED_ELSEWHERE: lambda: world.of(Actor(JO.holder)).release([F001]),
    }
    world.after(100, deeds[loss])
    command = ScriptedCommand(world, on_term=None)
    ended = world.attend(command)
    assert [x.loss for x in ended.lost] == [loss]
    [term], [kill] = command.at("TERM"), command.at("KILL")
    assert term <= TTL * 0.42 + 1, "with the next renewal"
    assert kill - term == pytest.approx(10, abs=0.2)
    assert ended.exit == FAILED


@pytest.mark.parametrize("by", [RUN, Actor(JO.holder)], ids=["by itself", "by its person"])
def test_an_end_by_name_stops_the_command_unless_its_session_did_it(by: Actor) -> None:
    world = World()
    world.after(20, lambda: world.of(by).release([F001]))
    command = ScriptedCommand(world, after=2 * TTL, status=3)
    ended = world.attend(command)
    assert (ended.exit, bool(ended.lost)) == ((3, False) if by is RUN else (FAILED, True))


@pytest.mark.parametrize("loss", list(Loss))
@pytest.mark.parametrize("on_term", [0.5, None])
def test_whatever_the_reason_the_command_ends_within_the_grace(
    loss: Loss, on_term: float | None
) -> None:
    world = World()
    lost = Lost(hold=world.holds[0], loss=loss, by=KIM.holder)
    world.after(20, lambda: world.listener(lost))
    command = ScriptedCommand(world, on_term=on_term)
    ended = world.attend(command)
    assert (ended.exit, ended.lost) == (FAILED, (lost,))
    [term] = command.at("TERM")
    assert term == pytest.approx(20, abs=0.2), "at once"
    assert world.seconds() <= 30.2
    assert world.reasons == [lost], "told before, and once"


def test_the_kill_comes_before_the_old_expiry_even_when_the_loss_is_heard_of_late() -> None:
    world = World(ttl=60)
    world.after(1, lambda: world.of(KIM).revoke(F001, reason="no"))
    world.after(2, world.break_remote)
    world.after(49, world.mend_remote)
    command = ScriptedCommand(world, on_term=None)
    ended = world.attend(command)
    assert ended.exit == FAILED
    assert command.at("KILL")[0] < world.end


def test_a_machine_that_slept_past_the_end_kills_at_once() -> None:
    world = World(ttl=60)
    command = ScriptedCommand(world, on_term=None)
    world.after(5, lambda: world.clock.advance(600))
    ended = world.attend(command)
    assert [x.loss for x in ended.lost] == [Loss.EXPIRED]
    assert ended.exit == FAILED
    assert (command.at("GUARDIAN") or command.at("KILL"))[0] <= 605.5


def test_a_wall_clock_that_jumps_past_the_end_ends_the_command() -> None:
    world = World(ttl=60)
    command = ScriptedCommand(world, on_term=None)
    world.after(5, lambda: world.clock.skew(600))
    ended = world.attend(command)
    assert [x.loss for x in ended.lost] == [Loss.EXPIRED]
    [term], [kill] = command.at("TERM"), command.at("KILL")
    assert kill - term <= 0.2, "there is no time for a grace"


def test_one_lost_of_several_ends_the_command_and_the_others_stay() -> None:
    world = World(words="F001 F002")
    world.after(10, lambda: world.of(KIM).revoke(F001, reason="no"))
    command = ScriptedCommand(world)
    ended = world.attend(command)
    assert [f"{x.hold.grant.resource}" for x in ended.lost] == ["F001"]
    assert ended.exit == FAILED
    assert world.live() == [f"F002 {JO.holder}"]


def test_a_loss_found_out_as_the_command_ends_by_itself_is_told() -> None:
    world = World(ttl=60)
    command = ScriptedCommand(world, after=5.05, status=0)
    world.after(5.05, lambda: world.clock.skew(600))
    ended = world.attend(command)
    assert (ended.exit, ended.status) == (FAILED, 0)


# --- failures that recover ------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.UNREACHABLE, Fault.LOST, Fault.UNANSWERED, Fault.BUSY])
def test_an_outage_within_the_lease_is_not_noticed(fault: Fault) -> None:
    world = World(ttl=60)
    world.after(15, lambda: world.remote.pushes.extend([fault] * 10_000))
    world.after(40, world.mend_remote)
    command = ScriptedCommand(world, after=300)
    assert world.attend(command).exit == 0
    assert command.events == []


# --- a run that is stopped itself -----------------------------------------------------------------


def test_a_run_that_was_stopped_past_the_end_finds_its_command_dead_and_says_lost() -> None:
    world = World(ttl=60)
    command = ScriptedCommand(world, on_term=None)
    world.after(5, lambda: setattr(command, "frozen", 600.0))
    ended = world.attend(command)
    [at] = command.at("GUARDIAN")
    assert at < world.end
    assert [x.loss for x in ended.lost] == [Loss.EXPIRED]
    assert ended.exit == FAILED


def test_a_run_that_was_stopped_for_a_while_goes_on() -> None:
    world = World(ttl=60)
    command = ScriptedCommand(world, after=200)
    world.after(5, lambda: setattr(command, "frozen", 40.0))
    assert world.attend(command).exit == 0
    assert command.at("GUARDIAN") == []


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


# --- what is asked of it --------------------------------------------------------------------------


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


def test_a_lease_lost_while_the_command_is_stopped_shortens_the_grace() -> None:
    world = World(ttl=600, grace=100)

    def wish() -> None:
        command.to_stop = True
        world.clock.skew(560)  # of which a second is left for belief

    command = ScriptedCommand(world, on_term=None)
    world.after(20, wish)
    ended = world.attend(command)
    assert [x.loss for x in ended.lost] == [Loss.EXPIRED]
    [term], [kill] = command.at("TERM"), command.at("KILL")
    assert kill - term < 40


@pytest.mark.parametrize(("rest", "killed"), [(1.0, False), (None, True)])
def test_what_the_command_started_is_ended_with_it(rest: float | None, killed: bool) -> None:
    world = World(ttl=60)
    world.break_remote()
    command = ScriptedCommand(world, on_term=0.1, rest=rest)
    ended = world.attend(command)
    assert ended.exit == FAILED
    assert bool(command.at("KILL")) is killed
    assert world.seconds() < world.end


def test_a_command_that_not_even_kill_ends_is_given_up() -> None:
    world = World(ttl=60)
    world.break_remote()
    command = ScriptedCommand(world, on_term=None, on_kill=False, guarded=True)
    command._guardian = lambda: None  # type: ignore[method-assign]
    ended = world.attend(command)
    assert (ended.exit, ended.status) == (FAILED, None)
    assert ended.failure is not None


# --- exit statuses --------------------------------------------------------------------------------


def test_a_run_that_never_began_ends_by_the_contract() -> None:
    from gitlease.core import errors

    found: dict[int, set[str]] = {}
    for kind in _every(errors.GitleaseError):
        if kind.__module__ == errors.__name__:
            found.setdefault(exit_of_refusal(kind("no")), set()).add(kind.code)
    assert found == {
        75: {"held", "wait_timeout", "nothing_left", "policy", "lost", "not_holder"},
        125: {
            *("usage", "denied", "unavailable", "unknown_outcome", "invalid", "rollback"),
            *("not_found", "not_a_repository"),
        },
    }
    assert exit_of_refusal(CannotExecute("x")) == 126
    assert exit_of_refusal(NoCommand("x")) == 127


def _every(base: type[GitleaseError]) -> list[type[GitleaseError]]:
    return [x for kind in base.__subclasses__() for x in (kind, *_every(kind))]
