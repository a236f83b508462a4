"""Renewals that go along: one process of a clone renews what the others ask for.

Concerned are S3 (a holder counts from the decision that renewed its lease, whoever made it), S6 (an
answer is about its own operations), S7 (only what its own person asks for is renewed), S8 (whoever
pushes may be killed at any point) and that nobody's lease outlives its heartbeat. No promise rests
on it: who finds its lease not renewed renews it itself.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from core.values import JO, KIM
from support.memory import Fault, MemoryState
from support.session import MemoryWorld

from gitlease.core import JSON, Actor, Barrier, Hold, Lost, parse_resource
from gitlease.engine import ClaimOptions, Keeper, LedgerSession, fresh_id, holds_of, sessions
from gitlease.store import StateFolder

TTL = 15


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
