"""What goes along: one process of a clone renews and claims what the others ask for.

Concerned are S3 (a holder counts from the decision that renewed its lease, whoever made it), S6 (an
answer is about its own operations), S7 (only what its own person asks for is renewed), S8 (whoever
pushes may be killed at any point) and that nobody's lease outlives its heartbeat. No promise rests
on it: who finds its lease not renewed renews it itself.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from kernel.rules.values import JO, KIM
from support.memory import Fault, MemoryState
from support.session import MemoryWorld

from gitlease.kernel.ledger import sessions, transaction
from gitlease.kernel.ledger.answers import Answer, ClaimOptions
from gitlease.kernel.ledger.keeping import Keeper, holds_of
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.rules.errors import GitleaseError, LeaseLost, UnknownOutcome
from gitlease.kernel.rules.frozen import JSON
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.loss import Hold, Lost
from gitlease.kernel.rules.moves.operations import Barrier
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store.git_ledger import RefLedgerStore
from gitlease.kernel.store.state import StateFolder

TTL = 15


class Killed(BaseException):
    """The process is gone."""


class Process:
    """A process of a clone that holds one lease, and keeps it."""

    def __init__(self, world: MemoryWorld, name: str, who: Actor = JO, ttl: int = TTL) -> None:
        self.world, self.name = world, name
        self.run = Actor(who.holder, session=f"run-{name}", session_explicit=True)
        self.lost: list[Lost] = []
        dice = random.Random(name)
        self.keeper = Keeper(self.open, clock=world.clock, dice=dice)
        wanted = [parse_resource(name)]
        answer = world.of(self.run, clone="here").claim(wanted, ClaimOptions(ttl=ttl))
        self.hold: Hold = holds_of(answer)[0]
        self.keeper.add([self.hold])
        self.ask()

    def open(self, limit: float) -> LedgerSession:
        return self.world.of(Actor(self.run.holder), clone="here", patience=limit).session

    def ask(self) -> None:
        if (wishes := self.keeper.wishes()) is not None:
            self.keeper.ask(wishes)

    def beat(self) -> None:
        """What the threads of its heartbeat do at one instant."""
        self.lost += self.keeper.overdue()
        if batch := self.keeper.batch():
            beat = self.keeper.renew(batch)
            self.lost += self.keeper.settle(beat)
        self.ask()


class World(MemoryWorld):
    def __init__(self) -> None:
        super().__init__()
        self.processes: list[Process] = []

    def start(self, *names: str, **how: Any) -> list[Process]:
        made = [Process(self, name, **how) for name in names]
        self.processes += made
        self.remote.requests.clear()
        return made

    def run_for(self, seconds: float) -> None:
        end = self.clock.boot_ms + seconds * 1_000
        while self.clock.boot_ms < end:
            waits = [x.keeper.due_in() for x in self.processes]
            left = (end - self.clock.boot_ms) / 1_000
            self.clock.advance(min([left, *(max(w, 0.001) for w in waits if w is not None)]))
            for process in self.processes:
                process.beat()

    @property
    def pushes(self) -> int:
        return self.remote.requests.count("push")

    def renewals(self) -> dict[str, int]:
        return {f"{x.resource}": x.renewals for x in self.leases()}


@pytest.fixture
def world() -> World:
    return World()


def test_six_runs_renew_in_one_push_each_third(world: World) -> None:
    world.start(*"ABCDEF")
    world.run_for(24)
    assert world.pushes <= 5, "six runs alone take 24"
    assert set(world.remote.requests) == {"push"}
    assert [x.lost for x in world.processes] == [[]] * 6
    assert min(world.renewals().values()) >= 3


def test_a_claim_takes_along_what_is_soon_due_and_answers_for_itself(world: World) -> None:
    world.start("A", "B")
    world.clock.advance(4)
    answer = world.of(JO, clone="here").claim([parse_resource("C")])
    assert [x.resource for x in answer.leases] == ["C"]
    assert answer.status == "claimed"
    assert (world.pushes, world.renewals()) == (1, {"A": 1, "B": 1, "C": 0})
    world.run_for(4)
    assert world.pushes == 1, "both find it done when they would be due"


def test_who_takes_others_along_is_told_the_results_of_its_own(world: World) -> None:
    """S6: a gateway tells its clients by their places in the batch."""
    world.start("A")
    world.clock.advance(4)
    session = world.of(JO, clone="here").session
    own = Barrier(id=fresh_id(), actor=JO)
    step = session.transaction.carry_out([own])
    assert [x.operation for x in step.applied.outcomes] == [own.id]
    assert world.renewals() == {"A": 1}


def test_what_another_clone_renewed_does_not_count(world: World) -> None:
    """S3: of that it is not known when it was decided."""
    [one] = world.start("A")
    world.clock.advance(4)
    world.of(JO, clone="there").renew_all()
    world.of(Actor(JO.holder), clone="there").beat([one.hold.grant])
    world.clock.advance(2)
    world.of(JO, clone="here").read()
    world.remote.requests.clear()
    world.run_for(2)
    assert world.pushes == 1


def test_the_lease_of_a_process_that_hangs_is_renewed_once_more_at_most(world: World) -> None:
    [hangs] = world.start("A")
    world.start("B")
    world.processes.remove(hangs)
    world.run_for(120)
    assert world.renewals() == {"A": 1, "B": world.renewals()["B"]}
    [lease] = [x for x in world.leases() if f"{x.resource}" == "A"]
    assert lease.expires_at < world.clock.now().wall_ms


def test_what_a_killed_process_asked_keeps_its_lease_no_longer(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = StateFolder(str(tmp_path / "state"))
    monkeypatch.setattr(MemoryState, "ask", lambda _, name, what: folder.ask(name, what))
    monkeypatch.setattr(MemoryState, "asked", lambda _: folder.asked())
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as run:
        with monkeypatch.context() as its:
            its.setattr(os, "getpid", lambda: run.pid)
            [killed] = world.start("A")
        assert folder.asked() == [[JSON.dump(killed.hold)]]
        run.kill()
    world.start("B")
    world.processes.remove(killed)
    world.run_for(60)
    assert world.renewals()["A"] == 0 < world.renewals()["B"]
    [lease] = [x for x in world.leases() if f"{x.resource}" == "A"]
    assert lease.expires_at == killed.hold.since.wall_ms + TTL * 1_000
    assert len(folder.notes.of("asking")) == 1, "whoever asks next drops what the dead asked"


def test_nothing_of_another_person_goes_along(world: World) -> None:
    """S7, and L1: to ask for it would cost a fetch."""
    world.start("A", who=KIM)
    world.clock.advance(4)
    world.of(JO, clone="here").claim([parse_resource("C")])
    assert world.remote.requests == ["push"]
    assert world.renewals() == {"A": 0, "C": 0}


def test_what_has_ended_is_not_brought_back(world: World) -> None:
    [one] = world.start("A")
    world.clock.advance(4)
    person = Actor(JO.holder)
    world.of(person, clone="there").release([parse_resource("A")])
    world.of(person, clone="here").claim([parse_resource("C")])
    assert [f"{x.resource}" for x in world.leases()] == ["C"]
    world.run_for(4)
    assert [x.hold.grant for x in one.lost] == [one.hold.grant]


def test_a_server_that_refuses_what_goes_along_takes_the_claim_alone(world: World) -> None:
    world.start("A")
    world.clock.advance(4)
    world.remote.pushes.extend([Fault.REFUSED] * 2)
    answer = world.of(JO, clone="here").claim([parse_resource("C")])
    assert answer.status == "claimed"
    assert world.renewals() == {"A": 0, "C": 0}


@pytest.mark.parametrize("verb", ["unbind", "give_back"])
def test_what_was_renewed_along_can_be_ended_at_once(world: World, verb: str) -> None:
    """S6: only a renewal is done by another's renewal."""
    [one] = world.start("A")
    world.clock.advance(4)
    world.of(JO, clone="here").claim([parse_resource("C")])
    session = one.open(9)
    if verb == "unbind":
        sessions.unbind(session, [one.hold.grant])
    else:
        sessions.give_back(session, [one.hold.grant], note=None, commit=None)
    left = [x for x in world.leases() if f"{x.resource}" == "A"]
    assert [x.session for x in left] == ([None] if verb == "unbind" else [])


POINTS = (
    (MemoryState, "add_pending"),
    (RefLedgerStore, "_swap"),
    (RefLedgerStore, "adopt"),
    (RefLedgerStore, "forget_pending"),
)


@pytest.mark.parametrize(("kind", "point"), POINTS)
def test_a_process_killed_with_others_renewals_leaves_them_to_theirs(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: type, point: str
) -> None:
    """S8: at every point of its push."""
    one, other = world.start("A", "B")
    world.clock.advance(6.4)
    with monkeypatch.context() as patch:
        patch.setattr(kind, point, Mock(side_effect=Killed))
        with pytest.raises(Killed):
            one.beat()
    world.processes.remove(one)
    world.run_for(60)
    assert other.lost == []
    live = [f"{x.resource}" for x in world.leases() if x.expires_at > world.clock.now().wall_ms]
    assert live == ["B"]


# --- claims of those who wait for their turn ------------------------------------------------------


def waits_for(monkeypatch: pytest.MonkeyPatch, turn: Callable[[], object]) -> None:
    """Whoever wants its turn first has to wait for this one."""
    waited: list[bool] = []

    @contextmanager
    def turns(self: MemoryState, seconds: float, on_wait: Callable[[], None]) -> Iterator[None]:
        if not waited:
            waited.append(True)
            on_wait()
            turn()
        yield

    monkeypatch.setattr(MemoryState, "turn", turns)


def claim(world: World, name: str, who: Actor = JO, **options: Any) -> Answer:
    run = Actor(who.holder, session=f"run-{name}", session_explicit=True)
    return world.of(run, clone="here").claim([parse_resource(name)], ClaimOptions(**options))


def test_who_waits_is_granted_its_claim_in_the_step_of_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(world, "A")
    world.remote.requests.clear()
    asked = world.clock.now()

    def other() -> None:
        world.clock.advance(2)
        assert [f"{x.resource}" for x in claim(world, "B").leases] == ["B"], "S6: of its own alone"
        world.clock.advance(1)

    waits_for(monkeypatch, other)
    answer = claim(world, "C", ttl=60, reason="mine")
    assert (world.remote.requests, answer.status) == (["push"], "claimed")
    [lease] = answer.leases
    assert (lease.resource, lease.session, lease.reason) == ("C", "run-C", "mine")
    [hold] = holds_of(answer)
    assert hold.since == asked, "S3: not later than it was decided"
    assert hold.left_ms(world.clock.now()) == 57_000
    assert len({x.token for x in world.leases()}) == 3
    assert world.clones["here"].state("global").asked() == []


@pytest.mark.parametrize(
    ("name", "who", "code"), [("B", JO, "held"), ("src/a/", JO, "held"), ("K", KIM, "")]
)
def test_who_would_be_refused_or_is_another_decides_for_itself(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, who: Actor, code: str
) -> None:
    """S7: nobody grants anything to another person, and L1: no refusal is given for another."""
    claim(world, "A")
    other = "src/" if name == "src/a/" else "B"
    taken = list[int]()
    waits_for(monkeypatch, lambda: taken.append(len(claim(world, other, new=True).leases)))
    world.remote.requests.clear()
    if code:
        with pytest.raises(GitleaseError) as refused:
            world.of(Actor(JO.holder, session="else", session_explicit=True), clone="here").claim(
                [parse_resource(name)]
            )
        assert refused.value.code == code
    else:
        assert claim(world, name, who).status == "claimed"
        assert world.remote.requests.count("push") >= 2
    assert taken == [1]


@pytest.mark.parametrize(("kind", "point"), POINTS)
def test_whoever_is_killed_with_anothers_claim_leaves_it_one_lease(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: type, point: str
) -> None:
    """S6 and S8: at every point of its push, the claim is made once, by one or the other."""
    claim(world, "A")

    def killed() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(kind, point, Mock(side_effect=Killed))
            with pytest.raises(Killed):
                claim(world, "B")
        world.clock.advance(3)

    waits_for(monkeypatch, killed)
    answer = claim(world, "C")
    [lease] = [x for x in world.leases() if f"{x.resource}" == "C"]
    assert (answer.status, [x.lease_id for x in answer.leases]) == ("claimed", [lease.lease_id])
    assert lease.renewals == 0
    assert holds_of(answer)[0].since.wall_ms <= lease.renewed_at
    head = world.of(JO, clone="here").session.store.known("global")
    seen = head and head.seen(lease)
    assert seen
    assert (seen.since or seen.at).wall_ms <= lease.renewed_at, "S3: nor later for its heartbeat"


def test_another_step_with_ones_own_claim_is_not_taken_for_ones_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S6: the claim has the token of the step that came through."""
    claim(world, "A")

    def killed() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(RefLedgerStore, "_read_back", Mock(side_effect=Killed))
            world.remote.pushes.append(Fault.LATE)
            world.remote.late_by = 1
            with pytest.raises(Killed):
                claim(world, "B")

    waits_for(monkeypatch, killed)
    [view] = claim(world, "C").leases
    assert {f"{x.resource}": x.token for x in world.leases()} == {"A": 1, "B": 2, "C": 3}
    assert view.token == 3


def test_a_server_that_refuses_anothers_claim_takes_ones_own_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(world, "A")

    def refused_at_first() -> None:
        world.remote.pushes.extend([Fault.REFUSED] * 2)
        assert claim(world, "B").status == "claimed"
        assert [f"{x.resource}" for x in world.leases()] == ["A", "B"]

    waits_for(monkeypatch, refused_at_first)
    assert claim(world, "C").status == "claimed"


def test_what_may_have_gone_along_is_not_said_to_have_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S6: whoever has the turn may still push it."""
    claim(world, "A")
    waits_for(monkeypatch, lambda: world.remote.pushes.extend([Fault.UNREACHABLE] * 50))
    with pytest.raises(UnknownOutcome):
        claim(world, "C")
    assert world.clones["here"].state("global").asked() == []


def test_a_claim_that_is_made_along_as_it_is_refused_is_granted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S6: where turns run out, another process may make it on a newer ledger."""
    claim(world, "A")
    world.of(KIM, clone="there").claim([parse_resource("C")])
    world.of(JO, clone="here").read()
    waits_for(monkeypatch, lambda: None)
    told, refusals = transaction.with_views, list[str]()

    def refused(why: GitleaseError, *given: Any) -> GitleaseError:
        refusals.append(why.code)
        if refusals == ["held", "held"]:  # by the ledger as it was just fetched
            world.of(KIM, clone="there").release([parse_resource("C")])
            world.of(JO, clone="here").read()
            claim(world, "B")
        return told(why, *given)

    monkeypatch.setattr(transaction, "with_views", refused)
    assert claim(world, "C").status == "claimed"
    assert [f"{x.resource}" for x in world.leases()] == ["A", "B", "C"]


def test_what_was_granted_along_and_ended_since_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(world, "A")

    def other() -> None:
        claim(world, "B")
        run = Actor(JO.holder, session="run-C", session_explicit=True)
        world.of(run, clone="here").release([parse_resource("C")])

    waits_for(monkeypatch, other)
    with pytest.raises(LeaseLost):
        claim(world, "C")


@pytest.mark.parametrize("after", ["renewed", "forgotten by the ring"])
def test_what_was_granted_along_is_ones_own_whatever_came_after(
    world: World, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """S6: a renewal of the same run changes the record, and 128 operations fill the ring."""
    claim(world, "A")

    def other() -> None:
        claim(world, "B")
        run = Actor(JO.holder, session="run-C", session_explicit=True)
        if after == "renewed":
            world.of(run, clone="here").claim([parse_resource("C")])
        for _ in range(3 if after != "renewed" else 0):
            many = [Barrier(id=fresh_id(), actor=JO) for _ in range(50)]
            world.of(JO, clone="here").session.transaction.carry_out(many)

    waits_for(monkeypatch, other)
    answer = claim(world, "C", new=True)
    assert (answer.status, [x.token for x in answer.leases]) == ("claimed", [3])


def test_who_waits_for_longer_than_a_lease_may_last_is_granted_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S6: it may be stopped, and the ring no longer know that it was granted the claim before."""
    claim(world, "A")

    def other() -> None:
        world.clock.advance(10.1)
        claim(world, "B")
        assert [f"{x.resource}" for x in world.leases()] == ["A", "B"]

    waits_for(monkeypatch, other)
    assert claim(world, "C").status == "claimed"


def test_who_is_refused_for_another_may_have_its_own_claim_made_along_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S6: it waits a second time, alone, and asks for its claim until then only."""
    claim(world, "A")
    state, waits = world.clones["here"].state("global"), list[str]()

    @contextmanager
    def turns(self: MemoryState, seconds: float, on_wait: Callable[[], None]) -> Iterator[None]:
        waits.append("")
        if len(waits) == 2:  # B, which takes the claim of C along, and is refused for it
            world.remote.pushes.extend([Fault.REFUSED] * 2)
        if len(waits) in (1, 3):
            on_wait()
            claim(world, "B" if len(waits) == 1 else "D")
        yield

    monkeypatch.setattr(MemoryState, "turn", turns)
    assert claim(world, "C").status == "claimed"
    assert {f"{x.resource}" for x in world.leases()} == {"A", "B", "C", "D"}
    assert state.asked() == []


def test_whoever_is_interrupted_while_it_waits_asks_no_longer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(world, "A")
    waits_for(monkeypatch, Mock(side_effect=Killed))
    with pytest.raises(Killed):
        claim(world, "C")
    claim(world, "B")
    assert [f"{x.resource}" for x in world.leases()] == ["A", "B"]


def test_where_nothing_can_be_asked_each_renews_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(MemoryState, "ask", fail)
    world.start("A", "B")
    world.run_for(24)
    assert [x.lost for x in world.processes] == [[], []]
    assert world.pushes >= 7
