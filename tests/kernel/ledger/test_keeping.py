"""Keeping leases alive: under a manual clock, over a store whose faults are scripted."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from kernel.rules.values import F001, JO, KIM
from support.memory import Broken, Fault
from support.session import MemoryWorld
from support.snapshots import check_words

from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.ledger.keeping import DOUBTED, Keeper, LossDetector, holds_of
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.rules.errors import Loss
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.loss import Hold, Lost
from gitlease.kernel.rules.resources import Resource, parse_resource

TTL = 900
RUN = Actor(JO.holder, session="build-7", session_explicit=True)


class World(MemoryWorld):
    """One remote, one clock, clones, and a keeper of Jo's."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[float] = []
        self.keeper = Keeper(self.open, clock=self.clock, dice=random.Random(7))

    def open(self, limit: float) -> LedgerSession:
        self.limits.append(limit)
        return self.of(Actor(JO.holder), patience=2 * limit).session

    def hold(self, *words: str, who: Actor = RUN, ttl: int = TTL) -> tuple[Hold, ...]:
        """Claim, and keep what was granted."""
        wanted: list[Resource] = [parse_resource(word) for word in words or ("F001",)]
        holds = holds_of(self.of(who).claim(wanted, ClaimOptions(ttl=ttl)))
        self.keeper.add(holds)
        self.remote.requests.clear()
        return holds

    def run_for(self, seconds: float) -> list[Lost]:
        """What a heartbeat's two threads would do in that time, one after the other."""
        lost: list[Lost] = []
        end = self.clock.boot_ms + seconds * 1_000
        while self.clock.boot_ms < end:
            lost += self.keeper.overdue()
            waits = [w for w in (self.keeper.due_in(), self.keeper.ends_in()) if w is not None]
            left = (end - self.clock.boot_ms) / 1_000
            self.clock.advance(min([left, *(max(w, 0.001) for w in waits)]))
            lost += self.keeper.overdue()
            if batch := self.keeper.batch():
                lost += self.keeper.settle(self.keeper.renew(batch))
        return lost

    def break_for(self, requests: int, fault: Fault = Fault.UNREACHABLE) -> None:
        self.remote.pushes.extend([fault] * requests)
        self.remote.fetches.extend([Fault.UNREACHABLE] * requests)

    def mend(self) -> None:
        self.remote.pushes.clear()
        self.remote.fetches.clear()


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("count", [1, 20])
def test_all_leases_of_a_process_are_renewed_in_one_push(world: World, count: int) -> None:
    world.hold(*[f"task-{n}" for n in range(count)])
    assert world.run_for(6 * 3_600) == []
    assert set(world.remote.requests) == {"push"}
    pushes = len(world.remote.requests)
    assert 6 * 9 <= pushes <= 6 * 12, "every third of 15 minutes, with jitter"
    assert len(world.holders()) == count


def test_the_same_run_granted_anew_does_not_bring_a_lost_grant_back(world: World) -> None:
    world.hold()
    world.of(RUN).release([F001])
    world.of(RUN).claim([F001])
    assert [x.loss for x in world.run_for(400)] == [Loss.RELEASED_ELSEWHERE]


@pytest.mark.parametrize("ttl", [10, 20])
def test_a_heartbeat_does_not_cut_off_its_own_pushes_where_they_are_slow(
    world: World, ttl: int
) -> None:
    world.remote.during = lambda kind: world.clock.advance(2.7 if kind == "push" else 0.9)
    world.hold(ttl=ttl)
    assert world.run_for(120) == []
    assert min(world.limits[1:]) == pytest.approx(2 * 2.7)


# --- every reason of loss ------------------------------------------------------------------------


def test_a_revocation_is_told_with_who_did_it(world: World) -> None:
    world.of(KIM).set_policy({"admins": KIM.holder})
    world.hold()
    world.of(KIM).revoke(F001, reason="wrong task")
    [lost] = world.run_for(400)
    assert (lost.loss, lost.by) == (Loss.REVOKED, KIM.holder)
    assert lost.error.loss == "revoked"
    check_words(lost.error.message)


def test_a_process_that_slept_past_its_time_is_told_that_it_ran_out(world: World) -> None:
    world.hold()
    world.clock.advance(TTL + 1)
    [lost] = world.keeper.overdue()
    assert lost.loss is Loss.EXPIRED
    assert world.remote.requests == []
    assert world.keeper.batch() == (), "a loss is final"


def test_an_outage_past_the_deadline_is_told_before_anyone_else_may_start(world: World) -> None:
    """S3: the holder stops before its end, a contender starts after it."""
    [hold] = world.hold()
    world.break_for(10_000)
    lost = world.run_for(TTL)
    assert [x.loss for x in lost] == [Loss.UNREACHABLE]
    check_words(lost[0].error.message)
    assert world.clock.boot_ms - hold.since.boot_ms <= TTL * 1_000
    assert world.keeper.due_in() is None
    assert 5 <= len(world.limits) <= 60, "backing off, with several tries within the lease"


def test_the_deadline_is_kept_while_a_renewal_hangs(world: World) -> None:
    [hold] = world.hold()
    early: list[tuple[Lost, ...]] = []

    def hang(_kind: str) -> None:
        world.clock.advance(TTL)
        early.append(world.keeper.overdue())  # what the thread that watches does meanwhile

    world.clock.advance(400)
    batch = world.keeper.batch()
    world.remote.during = hang
    beat = world.keeper.renew(batch)
    assert [x.loss for x in early[0]] == [Loss.UNREACHABLE]
    check_words(early[0][0].error.message)
    assert early[0][0].hold == hold
    assert world.keeper.settle(beat) == (), "told once"


@pytest.mark.parametrize("fault", [Fault.UNREACHABLE, Fault.LOST, Fault.UNANSWERED, Fault.BUSY])
@pytest.mark.parametrize("outage", [10, 500])
def test_an_outage_within_the_lease_loses_nothing(world: World, fault: Fault, outage: int) -> None:
    world.hold()
    world.run_for(280)
    world.break_for(100_000, fault)
    assert world.run_for(outage) == []
    world.mend()
    assert world.run_for(3_600) == []
    assert world.holders() == [f"F001 {JO.holder}"]


def test_one_damaged_record_keeps_the_others_beating(world: World) -> None:
    world.hold("F001", "F002")
    world.remote.damage("leases/ab/f001.yaml", Broken("cut off", F001))
    lost = world.run_for(TTL)
    assert [(f"{x.hold.grant.resource}", x.loss) for x in lost] == [("F001", Loss.UNREACHABLE)]
    assert "damaged" in lost[0].detail
    assert world.keeper.due_in() is not None


def known_losses(
    sight: LossDetector, holds: Sequence[Hold], looks: int = DOUBTED + 1
) -> list[Loss]:
    return [lost.loss for _ in range(looks) for lost in sight.lost(holds)][:1]


@pytest.mark.parametrize("verb", ["release", "park"])
def test_an_end_by_another_process_of_the_clone_is_seen_without_asking_anybody(
    world: World, verb: str
) -> None:
    holds = world.hold()
    sight = LossDetector(world.open)
    assert known_losses(sight, holds) == []
    if verb == "release":
        world.of(Actor(JO.holder)).release([F001])
    else:
        world.of(RUN).park([F001], seconds=3_600)
    world.remote.requests.clear()
    assert known_losses(sight, holds, DOUBTED) == [], "the holder's own work may end with it"
    [lost] = sight.lost(holds)
    assert (lost.loss, lost.hold) == (Loss.RELEASED_ELSEWHERE, holds[0])
    assert world.remote.requests == []
