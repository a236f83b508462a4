"""Keeping leases alive: under a manual clock, over a store whose faults are scripted."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from core.values import F001, JO, KIM
from support.memory import Broken, Fault
from support.session import MemoryWorld
from support.snapshots import check_words

from gitlease.core import Actor, Hold, Loss, Lost, Resource, parse_resource
from gitlease.engine import (
    DOUBTED,
    GLANCES_SKIPPED,
    ClaimOptions,
    Keeper,
    LedgerSession,
    LossDetector,
    RenewalResult,
    holds_of,
)
from gitlease.store import RefLedgerStore

TTL = 900
RUN = Actor(JO.holder, session="build-7", session_explicit=True)
OTHER_RUN = Actor(JO.holder, session="build-8", session_explicit=True)


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


# --- a healthy one never lapses ------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 10, 50])
def test_all_leases_of_a_process_are_renewed_in_one_push(world: World, count: int) -> None:
    world.hold(*[f"task-{n}" for n in range(count)])
    assert world.run_for(6 * 3_600) == []
    assert set(world.remote.requests) == {"push"}
    pushes = len(world.remote.requests)
    assert 6 * 9 <= pushes <= 6 * 12, "every third of 15 minutes, with jitter"
    assert len(world.holders()) == count


def test_leases_of_several_runs_are_renewed_together_and_stay_theirs(world: World) -> None:
    world.hold("F001", who=RUN)
    world.hold("F002", who=OTHER_RUN)
    assert world.run_for(400) == []
    assert world.remote.requests == ["push"]
    ledger = world.remote.ledger(world.remote.refs["global"])
    sessions = {f"{x.resource}": (x.session, x.renewals) for x in ledger.every_lease()}
    assert sessions == {"F001": ("build-7", 1), "F002": ("build-8", 1)}


def test_the_first_that_is_due_takes_the_others_along(world: World) -> None:
    world.hold("F001", ttl=900)
    world.hold("F002", ttl=60)
    assert world.run_for(26) == []
    assert world.remote.requests == ["push"]
    ledger = world.remote.ledger(world.remote.refs["global"])
    assert [x.renewals for x in ledger.every_lease()] == [1, 1]


def test_what_is_parked_is_kept_by_nobody(world: World) -> None:
    world.hold("F001")
    answer = world.of(RUN).park([F001], seconds=3_600)
    assert [view.parked for view in answer.leases] == [True]
    assert holds_of(answer) == ()


def test_what_was_dropped_is_renewed_no_more(world: World) -> None:
    [hold] = world.hold()
    world.keeper.drop([hold.grant.lease_id])
    assert world.keeper.due_in() is None
    assert world.keeper.ends_in() is None
    assert world.run_for(2_000) == []
    assert world.remote.requests == []


def test_a_renewal_on_its_way_when_it_is_dropped_brings_it_not_back(world: World) -> None:
    [hold] = world.hold()
    world.clock.advance(400)
    beat = world.keeper.renew(world.keeper.batch())
    world.keeper.drop([hold.grant.lease_id])
    assert world.keeper.settle(beat) == ()
    assert world.keeper.due_in() is None


def test_a_lease_released_during_its_renewal_is_not_claimed_again(world: World) -> None:
    """S7, and a heartbeat never re-acquires."""
    [hold] = world.hold()
    world.clock.advance(400)
    batch = world.keeper.batch()
    world.of(RUN).release([F001])
    [lost] = world.keeper.settle(world.keeper.renew(batch))
    assert lost.loss is Loss.RELEASED_ELSEWHERE
    assert lost.hold == hold
    assert world.holders() == []


def test_the_same_run_granted_anew_does_not_bring_a_lost_grant_back(world: World) -> None:
    world.hold()
    world.of(RUN).release([F001])
    world.of(RUN).claim([F001])
    assert [x.loss for x in world.run_for(400)] == [Loss.RELEASED_ELSEWHERE]


# --- every reason of loss ------------------------------------------------------------------------


def test_a_lapse_that_another_took_is_told_as_taken_over(world: World) -> None:
    world.hold()
    world.clock.advance(TTL + 120)  # slept: no heartbeat
    world.of(KIM).claim([F001])
    lost = world.keeper.settle(world.keeper.renew(world.keeper.batch()))
    assert [(x.loss, x.by) for x in lost] == [(Loss.TAKEN_OVER, KIM.holder)]


def test_a_revocation_is_told_with_who_did_it(world: World) -> None:
    world.of(KIM).set_policy({"admins": KIM.holder})
    world.hold()
    world.of(KIM).revoke(F001, reason="wrong task")
    [lost] = world.run_for(400)
    assert (lost.loss, lost.by) == (Loss.REVOKED, KIM.holder)
    assert lost.error.loss == "revoked"
    check_words(lost.error.message)


@pytest.mark.parametrize("acknowledged", [False, True])
def test_the_reason_is_known_also_when_another_command_was_told_before(
    world: World, acknowledged: bool
) -> None:
    world.of(KIM).set_policy({"admins": KIM.holder})
    world.hold()
    world.of(KIM).revoke(F001, reason="wrong task")
    if acknowledged:
        world.of(RUN).read()
        world.of(RUN).claim([parse_resource("other")])
    [lost] = world.run_for(400)
    assert lost.loss is Loss.REVOKED


@pytest.mark.parametrize("verb", ["release", "done"])
def test_an_end_from_outside_is_told_as_such(world: World, verb: str) -> None:
    world.hold()
    person = world.of(Actor(JO.holder), clone="another")
    if verb == "release":
        person.release([F001])
    else:
        person.complete(F001)
    assert [x.loss for x in world.run_for(400)] == [Loss.RELEASED_ELSEWHERE]


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
    began = hold.since.boot_ms
    told = [x for x in (world.clock.boot_ms - began,) if x <= TTL * 1_000]
    assert told, "not later than its end"
    assert world.keeper.due_in() is None


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


@pytest.mark.parametrize("clock", ["wall", "both"])
def test_the_larger_of_the_clocks_ends_belief(world: World, clock: str) -> None:
    world.hold()
    if clock == "wall":
        world.clock.skew(TTL + 1)
    else:
        world.clock.advance(TTL + 1)
    assert [x.loss for x in world.keeper.overdue()] == [Loss.EXPIRED]


def test_a_wall_clock_that_was_set_back_lengthens_nothing(world: World) -> None:
    world.hold()
    world.clock.skew(-3_600)
    world.clock.advance(TTL - 1)
    assert len(world.keeper.overdue()) == 1


# --- failures that recover, and others that do not ------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.UNREACHABLE, Fault.LOST, Fault.UNANSWERED, Fault.BUSY])
@pytest.mark.parametrize("outage", [10, 300, 500])
def test_an_outage_within_the_lease_loses_nothing(world: World, fault: Fault, outage: int) -> None:
    world.hold()
    world.run_for(280)
    world.break_for(100_000, fault)
    assert world.run_for(outage) == []
    world.mend()
    assert world.run_for(3_600) == []
    assert world.holders() == [f"F001 {JO.holder}"]


def test_a_server_that_refuses_is_asked_again_until_the_end(world: World) -> None:
    world.hold()
    world.remote.pushes.extend([Fault.REFUSED] * 10_000)
    lost = world.run_for(TTL)
    assert [x.loss for x in lost] == [Loss.UNREACHABLE]
    assert "refused" in lost[0].detail


def test_retries_are_few(world: World) -> None:
    world.hold()
    world.break_for(100_000)
    world.run_for(TTL)
    asked = len(world.limits)
    assert 5 <= asked <= 60, "backing off, with several tries within the lease"


def test_a_contact_never_takes_most_of_what_is_left(world: World) -> None:
    world.hold(ttl=30)
    world.run_for(20)
    assert world.limits
    assert all(2 <= limit <= 10 for limit in world.limits)


def test_one_damaged_record_keeps_the_others_beating(world: World) -> None:
    world.hold("F001", "F002")
    world.remote.damage("global", "leases/ab/f001.yaml", Broken("cut off", F001))
    lost = world.run_for(TTL)
    assert [(f"{x.hold.grant.resource}", x.loss) for x in lost] == [("F001", Loss.UNREACHABLE)]
    assert "damaged" in lost[0].detail
    assert world.keeper.due_in() is not None


def test_a_ledger_set_back_is_never_called_a_loss(world: World) -> None:
    before = world.of(RUN).claim([parse_resource("first")])
    assert before.leases
    old = world.remote.refs["global"]
    world.hold()
    world.remote.force("global", old)
    world.clock.advance(400)
    beat = world.keeper.renew(world.keeper.batch())
    assert beat.lost == ()
    assert beat.failure is not None
    assert beat.failure.code == "rollback"


def test_what_a_heartbeat_heard_is_left_to_be_said(world: World) -> None:
    heard: list[str] = []
    service = world.of(Actor(JO.holder))

    class Ears:
        def leave(self, texts: Sequence[str]) -> None:
            heard.extend(texts)

        def take(self) -> tuple[str, ...]:
            return ()

    world.hold("F002", who=Actor(JO.holder))
    holds = world.hold("F003")
    world.of(KIM).set_policy({"admins": KIM.holder})
    world.of(KIM).revoke(parse_resource("F002"), reason="wrong task")
    service.session.inbox = Ears()
    keeper = Keeper(lambda _limit: service.session, clock=world.clock, dice=random.Random(7))
    keeper.add(holds)
    world.clock.advance(400)
    keeper.settle(keeper.renew(keeper.batch()))
    assert any("F002" in line and "revoked" in line for line in heard)


# --- what this clone comes to know by itself ------------------------------------------------------


def known_losses(
    sight: LossDetector, holds: Sequence[Hold], looks: int = DOUBTED + 1
) -> list[Loss]:
    return [lost.loss for _ in range(looks) for lost in sight.lost(holds)][:1]


@pytest.mark.parametrize("verb", ["release", "done", "park", "end"])
def test_an_end_by_another_process_of_the_clone_is_seen_without_asking_anybody(
    world: World, verb: str
) -> None:
    holds = world.hold()
    sight = LossDetector(world.open)
    assert known_losses(sight, holds) == []
    person = world.of(RUN if verb == "end" else Actor(JO.holder))
    if verb == "release":
        person.release([F001])
    elif verb == "done":
        person.complete(F001)
    elif verb == "park":
        world.of(RUN).park([F001], seconds=3_600)
    else:
        person.end_session()
    world.remote.requests.clear()
    assert known_losses(sight, holds, DOUBTED) == [], "the holder's own work may end with it"
    [lost] = sight.lost(holds)
    assert (lost.loss, lost.hold) == (Loss.RELEASED_ELSEWHERE, holds[0])
    assert world.remote.requests == []


def test_a_revocation_is_seen_as_soon_as_the_clone_has_heard_of_it(world: World) -> None:
    world.of(KIM).set_policy({"admins": KIM.holder})
    holds = world.hold("F001", "F002")
    sight = LossDetector(world.open)
    assert sight.lost(holds) == ()
    world.of(KIM).revoke(F001, reason="wrong task")
    world.of(KIM).claim([F001])
    assert sight.lost(holds) == (), "nobody here has heard of it"
    world.of(Actor(JO.holder)).read()
    world.remote.requests.clear()
    [lost] = sight.lost(holds)
    assert (lost.hold, lost.loss, lost.by) == (holds[0], Loss.REVOKED, KIM.holder)
    assert world.remote.requests == []


def test_what_else_the_clone_learns_is_no_loss(world: World) -> None:
    holds = world.hold()
    sight = LossDetector(world.open)
    world.of(RUN).renew([F001])
    world.of(KIM).claim([parse_resource("other")])
    world.of(Actor(JO.holder)).read()
    assert known_losses(sight, holds) == []
    world.clock.advance(2_000)
    world.of(Actor(JO.holder)).read()
    assert known_losses(sight, holds) == [], "what runs out is for the deadline to say"


def test_a_state_of_before_the_grant_tells_nothing_of_it(world: World) -> None:
    world.of(JO, clone="late").read()
    holds = world.hold()
    sight = LossDetector(lambda _limit: world.of(Actor(JO.holder), clone="late").session)
    assert known_losses(sight, holds) == []


def test_nothing_is_read_again_while_the_clone_learns_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds = world.hold()
    sight = LossDetector(world.open)
    sight.lost(holds)
    read: list[str] = []
    known = RefLedgerStore.known

    def count(store: RefLedgerStore, layer: str) -> object:
        read.append(layer)
        return known(store, layer)

    monkeypatch.setattr(RefLedgerStore, "known", count)
    assert known_losses(sight, holds, 50) == []
    assert read == []


def test_where_the_clone_cannot_be_read_it_is_tried_again_later(world: World) -> None:
    holds = world.hold()
    broken = [True]

    def open_session(limit: float) -> LedgerSession:
        if broken.pop():
            raise OSError("no such place")
        return world.open(limit)

    sight = LossDetector(open_session)
    world.of(Actor(JO.holder)).release([F001])
    broken[:] = [False, True]
    assert known_losses(sight, holds, 1 + GLANCES_SKIPPED + DOUBTED) == []
    assert [x.loss for x in sight.lost(holds)] == [Loss.RELEASED_ELSEWHERE]


def test_a_loss_that_was_seen_is_final_and_counts_from_the_last_renewal(world: World) -> None:
    [old] = world.hold()
    world.run_for(400)
    world.of(Actor(JO.holder)).release([F001])
    sight = LossDetector(world.open)
    seen = tuple(lost for _ in range(DOUBTED + 1) for lost in sight.lost([old]))
    [lost] = world.keeper.settle(RenewalResult(asked=(), lost=seen))
    assert lost.hold.since.boot_ms > old.since.boot_ms
    assert world.keeper.due_in() is None
    assert world.keeper.settle(RenewalResult(asked=(), lost=seen)) == ()
