"""The service over a store in memory, under a manual clock and every kind of fault."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core.values import F001, JO, KIM
from support.memory import Broken, Fault
from support.session import MemoryWorld
from support.snapshots import check_words, raises

from gitlease.core import (
    Denied,
    Grant,
    Invalid,
    LeaseHeld,
    LeaseLost,
    NotHolder,
    Rollback,
    Unavailable,
    UnknownOutcome,
    UsageError,
    WaitTimeout,
    parse_resource,
)
from gitlease.engine import ClaimOptions, unbind

F002 = parse_resource("F002")


class World(MemoryWorld):
    """One remote, one clock, and a clone for each person."""

    def slowly(self, kind: str, seconds: float) -> None:
        """Every request of this kind takes so long, from now on."""
        self.remote.during = lambda which: self.clock.advance(seconds if which == kind else 0)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def begun(world: World) -> World:
    """A world whose two people have met a ledger before."""
    world.of(JO).claim([parse_resource("warm-up")])
    world.of(JO).release([parse_resource("warm-up")])
    world.of(KIM).read()
    world.asked()
    return world


# --- how often the remote is asked ---------------------------------------------------------------


def test_an_uncontended_change_is_one_connection(begun: World) -> None:
    jo = begun.of(JO)
    jo.claim([F001])
    assert begun.asked() == ["push"]
    jo.renew([F001])
    assert begun.asked() == ["push"]
    jo.extend(F001, 3_600)
    assert begun.asked() == ["push"]
    jo.release([F001])
    assert begun.asked() == ["push"]


def test_the_first_contact_fetches_once(world: World) -> None:
    world.of(JO).claim([F001])
    assert world.asked() == ["fetch", "push"]


def test_renewing_fifty_leases_is_one_push(begun: World) -> None:
    begun.of(JO).claim([parse_resource(f"task-{n}") for n in range(50)])
    assert begun.asked() == ["push"]
    assert len(begun.of(JO).renew_all().leases) == 50
    assert begun.asked() == ["push"]


def test_bad_arguments_ask_nobody(begun: World) -> None:
    with pytest.raises(UsageError):
        begun.of(JO).claim([F001], ClaimOptions(takeover=True))
    assert begun.asked() == []


# --- refusals come from fresh knowledge ----------------------------------------------------------


def test_a_claim_is_refused_only_after_a_fetch(begun: World) -> None:
    begun.of(KIM).claim([F001])
    begun.of(JO).read()
    begun.asked()
    with pytest.raises(LeaseHeld) as refused:
        begun.of(JO).claim([F001])
    assert begun.asked() == ["fetch"]
    assert refused.value.lease is not None
    assert refused.value.lease.holder == KIM.holder
    assert [view.holder for view in refused.value.views] == [KIM.holder]


def test_what_was_released_meanwhile_is_not_refused_from_memory(begun: World) -> None:
    begun.of(KIM).claim([F001])
    begun.of(JO).read()
    begun.of(KIM).release([F001])
    begun.asked()
    assert begun.of(JO).claim([F001]).status == "claimed"
    assert begun.asked() == ["fetch", "push"]


def test_lost_is_said_only_after_a_fetch(begun: World) -> None:
    begun.asked()
    with pytest.raises(LeaseLost):
        begun.of(JO).renew([F001])
    assert begun.asked() == ["fetch"]


def test_an_unreachable_remote_never_says_held(begun: World) -> None:
    begun.of(KIM).claim([F001])
    begun.of(JO).read()
    begun.remote.fetches.append(Fault.UNREACHABLE)
    with pytest.raises(Unavailable):
        begun.of(JO).claim([F001])


def test_an_unrelated_change_never_surfaces_as_held(begun: World) -> None:
    begun.of(KIM).claim([F002])
    begun.asked()
    assert begun.of(JO).claim([F001]).status == "claimed"
    assert begun.asked() == ["push", "fetch", "push"]


# --- contention ----------------------------------------------------------------------------------


def test_contention_without_end_gives_up_as_unavailable(begun: World) -> None:
    busy = begun.of(KIM)
    numbers = iter(range(100_000))

    def overtake(kind: str) -> None:
        if kind == "push":
            begun.remote.during = lambda _kind: None
            busy.claim([parse_resource(f"other-{next(numbers)}")])
            begun.remote.during = overtake
            begun.clock.advance(1)

    begun.remote.during = overtake
    began = begun.clock.now()
    with pytest.raises(Unavailable) as gave_up:
        begun.of(JO).claim([F001])
    begun.remote.during = lambda _kind: None
    assert not isinstance(gave_up.value, UnknownOutcome)
    assert 60 <= began.elapsed_at_most(begun.clock.now()) / 1_000 < 75
    assert f"F001 {JO.holder}" not in begun.holders()
    assert begun.of(JO).read().warnings == ()


def test_pauses_grow_and_stay_bounded(begun: World) -> None:
    begun.remote.pushes.extend([Fault.BUSY] * 20)
    begun.of(JO).claim([F001])
    naps = begun.clock.naps
    assert len(naps) == 20
    assert all(0 <= nap <= 2.0 for nap in naps)
    assert max(naps[:3]) < max(naps)


# --- what became of a push -----------------------------------------------------------------------


def test_a_lost_answer_costs_a_fetch_and_nothing_else(begun: World) -> None:
    begun.remote.pushes.append(Fault.UNANSWERED)
    assert begun.of(JO).claim([F001]).status == "claimed"
    assert begun.asked() == ["push", "fetch"]
    assert begun.of(JO).read().warnings == ()


def test_an_undecided_push_is_pushed_again_the_same(begun: World) -> None:
    begun.remote.pushes.append(Fault.LOST)
    answer = begun.of(JO).claim([F001])
    assert answer.status == "claimed"
    assert begun.asked() == ["push", "fetch", "push"]
    (lease,) = answer.leases
    assert (lease.token, lease.renewals) == (2, 0)


def test_a_push_that_lands_late_is_applied_once(begun: World) -> None:
    begun.remote.pushes.append(Fault.LATE)
    begun.remote.late_by = 2
    (lease,) = begun.of(JO).claim([F001]).leases
    assert (lease.token, lease.renewals) == (2, 0)
    assert begun.of(JO).read().warnings == ()


def test_a_push_that_never_lands_is_fenced_off_by_a_barrier(begun: World) -> None:
    begun.remote.pushes.extend([Fault.LATE, Fault.LOST, Fault.LOST])
    begun.remote.late_by = 100
    with pytest.raises(Unavailable) as gave_up:
        begun.of(JO).claim([F001])
    assert not isinstance(gave_up.value, UnknownOutcome)
    begun.remote.arrive()
    assert begun.holders() == []
    assert begun.of(JO).read().warnings == ()


@pytest.mark.parametrize(("fault", "times"), [(Fault.REFUSED, 1), (Fault.BUSY, 30)])
def test_a_refusal_after_an_unanswered_try_makes_it_harmless(
    begun: World, fault: Fault, times: int
) -> None:
    """S6: the server refused the second try, and may still carry the first one out."""
    begun.remote.pushes.extend([Fault.LATE, *[fault] * times])
    begun.remote.late_by = 1_000
    with raises(Unavailable):
        begun.of(JO).claim([F001])
    begun.remote.arrive()
    assert begun.holders() == []
    assert begun.of(JO).read().warnings == ()
    assert begun.of(KIM).claim([F001]).status == "claimed"


def test_without_a_barrier_the_outcome_is_unknown_and_said_later(begun: World) -> None:
    begun.remote.pushes.extend([Fault.LATE, Fault.LOST, Fault.LOST, Fault.LOST])
    begun.remote.late_by = 100
    with pytest.raises(UnknownOutcome):
        begun.of(JO).claim([F001])
    begun.remote.arrive()
    (said,) = begun.of(JO).note(F002, "hello").warnings
    check_words(said)
    assert begun.of(JO).note(F002, "again").warnings == ()


def test_what_is_found_later_counts_from_its_decision(begun: World) -> None:
    """Whoever reads it, and when: the clock was set back, so only the sighting tells the time."""
    begun.remote.pushes.extend([Fault.UNANSWERED])
    begun.remote.fetches.append(Fault.UNREACHABLE)
    with pytest.raises(UnknownOutcome):
        begun.of(JO).claim([F001], ClaimOptions(ttl=60))
    begun.clock.skew(-3_600)
    begun.clock.advance(50)
    (lease,) = begun.of(JO).read().leases
    assert lease.state == "active"
    begun.clock.advance(11)
    (lease,) = begun.of(JO).read().leases
    assert lease.state == "expired"
    with pytest.raises(LeaseLost):
        begun.of(JO).renew([F001])


def test_a_reading_command_says_what_became_of_a_change(begun: World) -> None:
    begun.remote.pushes.extend([Fault.UNANSWERED])
    begun.remote.fetches.append(Fault.UNREACHABLE)
    with pytest.raises(UnknownOutcome):
        begun.of(JO).claim([F001])
    (said,) = begun.of(JO).read().warnings
    check_words(said)
    assert begun.of(JO).read().warnings == ()


def test_a_refused_command_says_what_became_of_a_change_too(begun: World) -> None:
    begun.of(KIM).claim([F002])
    begun.of(JO).read()
    begun.remote.pushes.extend([Fault.UNANSWERED])
    begun.remote.fetches.append(Fault.UNREACHABLE)
    with pytest.raises(UnknownOutcome):
        begun.of(JO).claim([F001])
    with pytest.raises(LeaseHeld) as refused:
        begun.of(JO).claim([F002])
    check_words(refused.value.warnings)


def test_a_pending_change_that_was_overtaken_is_said_and_forgotten(begun: World) -> None:
    begun.remote.pushes.extend([Fault.LOST])
    begun.remote.fetches.append(Fault.UNREACHABLE)
    with pytest.raises(UnknownOutcome):
        begun.of(JO).claim([F001])
    begun.of(KIM).claim([F002])
    (said,) = begun.of(JO).read().warnings
    check_words(said)
    begun.asked()
    assert begun.of(JO).note(F002, "hello").warnings == ()
    assert begun.asked() == ["push"]


def lost_and_unknown(world: World) -> None:
    world.remote.pushes.append(Fault.LOST)
    world.remote.fetches.append(Fault.UNREACHABLE)
    with pytest.raises(UnknownOutcome):
        world.of(JO).claim([F001])
    world.asked()


def test_a_change_that_did_not_land_is_told_by_the_next_command_though_it_reads(
    begun: World,
) -> None:
    lost_and_unknown(begun)
    (said,) = begun.of(JO).read().warnings
    check_words(said)
    assert begun.asked() == ["fetch"]
    assert begun.of(JO).read().warnings == ()
    (said,) = begun.of(JO).note(F002, "hello").warnings
    check_words(said)


def test_the_step_that_rules_it_out_says_so_itself(begun: World) -> None:
    lost_and_unknown(begun)
    (said,) = begun.of(JO).note(F002, "hello").warnings
    check_words(said)
    assert begun.asked() == ["fetch", "push"]
    assert begun.of(JO).read().warnings == ()


def test_a_second_try_that_is_never_sent_does_not_undo_the_first(begun: World) -> None:
    begun.remote.pushes.extend([Fault.LATE, *[Fault.UNREACHABLE] * 10])
    begun.remote.late_by = 100
    with pytest.raises(UnknownOutcome):
        begun.of(JO).claim([F001])
    begun.remote.pushes.clear()
    begun.remote.arrive()
    assert begun.holders() == [f"F001 {JO.holder}"]
    check_words(begun.of(JO).read().warnings)


def test_a_change_that_was_never_sent_is_unavailable_and_not_pending(begun: World) -> None:
    begun.remote.pushes.append(Fault.UNREACHABLE)
    with pytest.raises(Unavailable) as failed:
        begun.of(JO).claim([F001])
    assert not isinstance(failed.value, UnknownOutcome)
    begun.asked()
    assert begun.of(JO).claim([F001]).warnings == ()
    assert begun.asked() == ["push"]


def test_a_change_found_by_the_barrier_is_not_reported_twice(begun: World) -> None:
    # push, read back, push, read back, push, read back; and then the barrier's push
    begun.remote.pushes.extend([Fault.LATE, Fault.LOST, Fault.LOST])
    begun.remote.late_by = 6
    assert begun.of(JO).claim([F001]).status == "claimed"
    assert begun.of(JO).read().warnings == ()


def test_what_the_server_refuses_twice_is_denied(begun: World) -> None:
    begun.remote.pushes.extend([Fault.REFUSED, Fault.REFUSED])
    with pytest.raises(Denied):
        begun.of(JO).claim([F001])
    assert begun.holders() == []
    assert begun.of(JO).read().warnings == (), "nothing is unknown after a refusal"
    assert begun.of(JO).claim([F001]).status == "claimed"


def test_what_the_server_refuses_once_is_tried_again(begun: World) -> None:
    begun.remote.pushes.append(Fault.REFUSED)
    assert begun.of(JO).claim([F001]).status == "claimed"


def test_a_server_that_refuses_replacements_gets_appends(begun: World) -> None:
    begun.of(JO).claim([F001])
    begun.of(JO).renew([F001])
    begun.remote.refuses_replacements = True
    begun.asked()
    assert begun.of(JO).renew([F001]).status == "renewed"
    assert begun.asked() == ["push", "fetch", "push"]
    assert begun.of(JO).renew([F001]).status == "renewed"
    assert begun.asked() == ["push"]
    kinds = [event.kind for event in begun.of(JO).log().events]
    assert kinds[:4] == ["renewed", "renewed", "renewed", "claimed"]


def test_a_locked_ref_is_waited_for_and_then_unavailable(begun: World) -> None:
    begun.remote.pushes.extend([Fault.BUSY] * 5)
    assert begun.of(JO).claim([F001]).status == "claimed"
    begun.remote.pushes.extend([Fault.BUSY] * 1_000)
    with pytest.raises(Unavailable):
        begun.of(JO).claim([F002])


def test_a_lost_creation_is_made_again(world: World) -> None:
    world.remote.pushes.extend([Fault.LOST])
    assert world.of(JO).claim([F001]).status == "claimed"
    assert world.holders() == [f"F001 {JO.holder}"]


def test_two_creators_make_one_ledger(world: World) -> None:
    def first(kind: str) -> None:
        if kind == "push":
            world.remote.during = lambda _kind: None
            world.of(KIM).claim([F001])

    world.remote.during = first
    with pytest.raises(LeaseHeld):
        world.of(JO).claim([F001])
    assert world.of(JO).claim([F002]).leases[0].token == 2


def test_a_rolled_back_ledger_stops_everything(begun: World) -> None:
    old = begun.remote.refs["global"]
    begun.of(JO).claim([F001])
    begun.remote.force("global", old)
    with pytest.raises(Rollback):
        begun.of(JO).read()
    with pytest.raises(Rollback):
        begun.of(JO).renew([F001])
    with pytest.raises(Rollback):
        begun.of(JO).claim([F002])


# --- in time -------------------------------------------------------------------------------------


def test_a_claim_confirmed_after_its_time_is_lost(begun: World) -> None:
    begun.slowly("push", 11)
    with pytest.raises(LeaseLost):
        begun.of(JO).claim([F001], ClaimOptions(ttl=10))


def test_a_claim_confirmed_in_time_is_held_from_its_decision(begun: World) -> None:
    begun.slowly("push", 9)
    decided = begun.clock.now()
    (lease,) = begun.of(JO).claim([F001], ClaimOptions(ttl=10)).leases
    assert lease.renewed_at.timestamp() * 1_000 == decided.wall_ms
    assert lease.expires_in == 1
    begun.clock.advance(1)
    assert begun.of(JO).read(cached=True).leases[0].state == "expired"


def test_a_clock_set_back_during_a_push_does_not_make_a_late_claim_good(begun: World) -> None:
    def slow(kind: str) -> None:
        if kind == "push":
            begun.clock.advance(11)
            begun.clock.skew(-60)

    begun.remote.during = slow
    with pytest.raises(LeaseLost):
        begun.of(JO).claim([F001], ClaimOptions(ttl=10))


def test_pushing_again_does_not_lengthen_a_lease(begun: World) -> None:
    begun.slowly("push", 4)
    begun.remote.pushes.extend([Fault.LOST, Fault.LOST])
    with pytest.raises(LeaseLost):
        begun.of(JO).claim([F001], ClaimOptions(ttl=10))


def test_what_is_given_back_late_is_given_back(begun: World) -> None:
    """Nobody goes on with it, so there is nothing to be in time for."""
    begun.of(JO).claim([F001], ClaimOptions(ttl=10))
    run = replace(JO, session="run", session_explicit=True)
    (bound,) = begun.of(run).claim([F001], ClaimOptions(ttl=10, bind=True)).leases
    grant = Grant(F001, "*", "run", bound.lease_id, bound.token)
    begun.slowly("push", 11)
    (freed,) = unbind(begun.of(JO).session, [grant]).leases
    assert (freed.session, freed.state) == (None, "expired")
    begun.slowly("push", 0)
    assert unbind(begun.of(JO).session, [grant]).leases == ()


def test_a_claim_read_back_counts_from_its_decision(begun: World) -> None:
    def slow(kind: str) -> None:
        begun.clock.advance(3)
        begun.clock.skew(-3)  # the wall clock stands still: only boot time tells

    begun.remote.during = slow
    begun.remote.pushes.append(Fault.UNANSWERED)
    begun.of(JO).claim([F001], ClaimOptions(ttl=10))
    begun.clock.advance(4)
    assert begun.of(JO).read(cached=True).leases[0].state == "expired"


# --- the wait ------------------------------------------------------------------------------------


def test_a_wait_wakes_when_the_lease_is_free(begun: World) -> None:
    begun.of(KIM).claim([F001], ClaimOptions(ttl=30))
    (lease,) = begun.of(KIM).read().leases
    answer = begun.of(JO).claim([F001], wait=300)
    assert answer.status == "taken_over"
    assert lease.free_at is not None
    late = begun.clock.wall_ms / 1_000 - lease.free_at.timestamp()
    assert 0 < late < 1


def test_a_wait_notices_a_release_within_ten_seconds(begun: World) -> None:
    begun.of(KIM).claim([F001])
    released: list[int] = []

    def release_later(kind: str) -> None:
        if not released and begun.clock.now().wall_ms > start + 20_000:
            released.append(begun.clock.wall_ms)
            begun.remote.during = lambda _kind: None
            begun.of(KIM).release([F001])

    start = begun.clock.wall_ms
    begun.remote.during = release_later
    assert begun.of(JO).claim([F001], wait=300).status == "claimed"
    assert begun.clock.wall_ms - released[0] <= 10_000
    assert max(begun.clock.naps) <= 10


def test_a_wait_looks_less_often_later_and_pushes_only_its_ticket(begun: World) -> None:
    begun.of(KIM).claim([F001])
    begun.of(JO).read()
    begun.asked()
    with pytest.raises(WaitTimeout) as timeout:
        begun.of(JO).claim([F001], wait=300)
    assert sum(begun.clock.naps) == pytest.approx(300, abs=0.5)
    asked = begun.asked()
    assert asked[:2] == ["fetch", "push"], "refused from fresh knowledge, and then in line"
    assert set(asked[2:-2]) == {"peek"}, "nothing moved, so nothing is fetched"
    assert 20 < len(asked[2:-2]) < 40
    assert asked[-2:] == ["fetch", "push"], "one more try at the end, and out of the line"
    assert timeout.value.lease is not None
    assert timeout.value.lease.holder == KIM.holder


def test_a_wait_stays_polite_when_the_clocks_disagree(begun: World) -> None:
    begun.of(KIM).set_policy({"rule": "observed"})
    begun.of(KIM).claim([F001])
    begun.of(JO).read()
    begun.clock.advance(10)
    begun.clock.skew(3_600)
    with pytest.raises(WaitTimeout):
        begun.of(JO).claim([F001], wait=120)
    assert begun.asked().count("peek") < 30


def test_a_wait_of_no_time_looks_once(begun: World) -> None:
    begun.of(KIM).claim([F001])
    begun.of(JO).read()
    with pytest.raises(WaitTimeout):
        begun.of(JO).claim([F001], wait=0)
    assert begun.clock.naps == []


def test_a_wait_tells_once_a_look_why(begun: World) -> None:
    begun.of(KIM).claim([F001])
    begun.of(JO).read()
    told: list[str] = []
    with pytest.raises(WaitTimeout):
        begun.of(JO).claim([F001], wait=20, on_wait=lambda held: told.append(held.message))
    check_words(set(told))
    assert 3 <= len(told) <= begun.asked().count("peek") + 2


# --- what happened behind one's back -------------------------------------------------------------


def test_a_displaced_holder_is_told_once(begun: World) -> None:
    begun.of(JO).claim([F001], ClaimOptions(ttl=60))
    begun.clock.advance(200)
    begun.of(KIM).claim([F001])
    (told,) = begun.of(JO).read().warnings
    check_words(told)
    assert begun.of(JO).read().warnings == ()


def test_a_claim_of_ones_own_lapsed_lease_keeps_its_paths(begun: World) -> None:
    begun.of(JO).claim([F001], ClaimOptions(ttl=60, paths=("src/**",)))
    begun.clock.advance(200)
    (again,) = begun.of(JO).claim([F001]).leases
    assert (again.renewals, again.paths) == (0, ("src/**",))
    begun.clock.advance(2_000)
    (other,) = begun.of(JO).claim([F001], ClaimOptions(paths=("docs/**",))).leases
    assert other.paths == ("docs/**",)


def test_the_log_has_a_lapse_before_the_claim_that_found_it(begun: World) -> None:
    begun.of(JO).claim([F001], ClaimOptions(ttl=60))
    begun.clock.advance(200)
    begun.of(JO).claim([F001])
    for events in (begun.of(JO).log(resource=F001).events, begun.of(JO).log().events):
        assert [e.kind for e in events][:3] == ["claimed", "lapsed", "claimed"]


def test_a_notice_leaves_the_ledger_with_the_next_change(begun: World) -> None:
    begun.of(JO).claim([F001], ClaimOptions(ttl=60))
    begun.clock.advance(200)
    begun.of(KIM).claim([F001])
    begun.of(JO).read()
    begun.of(JO).note(F002, "hello")
    version = begun.remote.refs["global"]
    assert begun.remote.ledger(version).notices(JO.holder) == ()


def test_a_refused_command_still_tells_what_happened(begun: World) -> None:
    begun.of(JO).claim([F001], ClaimOptions(ttl=60))
    begun.clock.advance(200)
    begun.of(KIM).claim([F001])
    with pytest.raises(NotHolder) as refused:
        begun.of(JO).renew([F001])
    said = (*refused.value.warnings, *begun.of(JO).read().warnings)
    check_words(said)


def test_a_revoked_holder_is_told_why(begun: World) -> None:
    begun.of(JO).claim([F001])
    begun.of(KIM).set_policy({"admins": KIM.holder})
    begun.of(KIM).revoke(F001, reason="on holiday")
    (told,) = begun.of(JO).read().warnings
    check_words(told)


def test_a_notice_that_comes_with_a_failed_change_is_not_lost(begun: World) -> None:
    begun.of(JO).claim([F001], ClaimOptions(ttl=60))
    begun.clock.advance(200)
    begun.of(KIM).claim([F001])
    begun.of(JO).store.fetch("global")
    begun.remote.pushes.append(Fault.UNREACHABLE)
    with pytest.raises(Unavailable) as failed:
        begun.of(JO).note(F002, "hello")
    said = (*failed.value.warnings, *begun.of(JO).read().warnings)
    assert len(said) == 1


# --- answers -------------------------------------------------------------------------------------


def test_several_resources_are_all_or_none(begun: World) -> None:
    begun.of(KIM).claim([F002])
    with pytest.raises(LeaseHeld) as refused:
        begun.of(JO).claim([F001, F002])
    assert refused.value.resource == "F002"
    assert begun.holders() == [f"F002 {KIM.holder}"]


def test_the_same_resource_twice_is_one(begun: World) -> None:
    assert len(begun.of(JO).claim([F001, parse_resource("f001")]).leases) == 1


def test_renewing_names_what_is_lost_and_renews_the_rest(begun: World) -> None:
    begun.of(JO).claim([F001], ClaimOptions(ttl=60))
    begun.of(JO).claim([F002], ClaimOptions(ttl=600))
    begun.clock.advance(100)
    answer = begun.of(JO).renew_all()
    assert [view.resource for view in answer.leases] == ["F002"]
    assert [refusal.resource for refusal in answer.refused] == ["F001"]
    assert isinstance(answer.refused[0], LeaseLost)


def test_renewing_everything_with_nothing_held_succeeds(begun: World) -> None:
    answer = begun.of(JO).renew_all()
    assert answer.leases == ()
    assert not answer.changed


def test_releasing_nothing_succeeds_after_a_look(begun: World) -> None:
    answer = begun.of(JO).release([F001])
    assert (answer.status, answer.changed) == ("released", False)
    assert begun.asked() == ["fetch"]


def test_a_claim_brings_the_notes_of_those_before(begun: World) -> None:
    begun.of(KIM).claim([F001])
    begun.of(KIM).release([F001], note="tests red")
    answer = begun.of(JO).claim([F001])
    assert [(n.author, n.text) for n in answer.notes] == [(KIM.holder, "tests red")]


def test_layers_do_not_block_each_other(begun: World) -> None:
    begun.of(KIM).claim([F001])
    assert begun.of(JO, layer="backend").claim([F001]).status == "claimed"


def test_cached_answers_ask_nobody_and_say_their_age(begun: World) -> None:
    begun.of(JO).read()
    begun.asked()
    begun.clock.advance(42)
    check_words(begun.of(JO).read(cached=True).warnings)
    assert begun.asked() == []


def test_the_log_of_a_resource_knows_it_in_any_spelling(begun: World) -> None:
    begun.of(JO).claim([parse_resource("src/café.py")])
    begun.of(JO).claim([F001])
    events = begun.of(JO).log(resource=parse_resource("SRC/cafe\u0301.py")).events
    assert [event.kind for event in events] == ["claimed"]


def test_confirming_makes_the_ledger_where_there_is_none(world: World) -> None:
    reading = world.of(JO).confirm()
    assert reading.revision == 1
    assert reading.ledger_id is not None
    assert world.of(KIM).confirm().ledger_id == reading.ledger_id


# --- damaged records -----------------------------------------------------------------------------


def test_a_damaged_record_takes_down_its_own_resource_only(begun: World) -> None:
    begun.remote.damage("global", "leases/aa/f001.yaml", Broken("no holder", F001))
    with pytest.raises(Invalid):
        begun.of(JO).claim([F001])
    assert begun.of(JO).claim([F002]).status == "claimed"
    assert begun.of(JO).claim([parse_resource("src/")]).status == "claimed"
    reading = begun.of(JO).read()
    check_words(reading.warnings)
    assert len(reading.leases) == 2


def test_a_damaged_record_with_paths_takes_down_claims_of_paths(begun: World) -> None:
    begun.remote.damage("global", "paths/aa/x.yaml", Broken("no holder", paths=True))
    with pytest.raises(Invalid):
        begun.of(JO).claim([parse_resource("src/")])
    assert begun.of(JO).claim([F001]).status == "claimed"


def test_an_admin_drops_a_damaged_record(begun: World) -> None:
    begun.of(KIM).set_policy({"admins": KIM.holder})
    begun.remote.damage("global", "leases/aa/f001.yaml", Broken("no holder", F001))
    begun.of(KIM).drop_record("leases/aa/f001.yaml", reason="garbage")
    assert begun.of(JO).claim([F001]).status == "claimed"
