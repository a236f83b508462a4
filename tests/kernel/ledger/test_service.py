"""The service over a store in memory, under a manual clock and every kind of fault."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel.rules.values import F001, JO, KIM
from support.memory import Broken, Fault
from support.session import MemoryWorld
from support.snapshots import check_words, raises

from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.ledger.sessions import unbind
from gitlease.kernel.rules.errors import (
    Denied,
    Invalid,
    LeaseHeld,
    LeaseLost,
    Unavailable,
    UnknownOutcome,
    WaitTimeout,
)
from gitlease.kernel.rules.moves.operations import Grant
from gitlease.kernel.rules.resources import parse_resource

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


def test_a_change_is_one_connection_and_the_first_contact_one_more(world: World) -> None:
    jo = world.of(JO)
    jo.claim([F001])
    assert world.asked() == ["fetch", "push"]
    jo.extend(F001, 3_600)
    assert world.asked() == ["push"]
    for act in (jo.renew, jo.release, jo.claim):
        act([F001])
        assert world.asked() == ["push"]


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
    with pytest.raises(LeaseLost):
        begun.of(JO).renew([F002])
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


# --- what became of a push -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "asked"),
    [
        (Fault.UNANSWERED, ["push", "fetch"]),
        (Fault.LOST, ["push", "fetch", "push"]),
        (Fault.LATE, ["push", "fetch", "push", "fetch"]),
    ],
)
def test_a_push_without_an_answer_is_applied_once(
    begun: World, fault: Fault, asked: list[str]
) -> None:
    begun.remote.pushes.append(fault)
    begun.remote.late_by = 2
    (lease,) = begun.of(JO).claim([F001]).leases
    assert (lease.token, lease.renewals) == (2, 0)
    assert begun.asked() == asked
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


@pytest.mark.parametrize(("fault", "again"), [(Fault.UNANSWERED, 0), (Fault.LOST, 1)])
def test_what_became_of_a_change_is_told_by_the_next_command(
    begun: World, fault: Fault, again: int
) -> None:
    begun.remote.pushes.append(fault)
    begun.remote.fetches.append(Fault.UNREACHABLE)
    with pytest.raises(UnknownOutcome):
        begun.of(JO).claim([F001])
    (said,) = begun.of(JO).read().warnings
    check_words(said)
    assert begun.of(JO).read().warnings == ()
    assert len(begun.of(JO).note(F002, "hello").warnings) == again, "now it cannot land any more"


def test_a_change_that_was_never_sent_is_unavailable_and_not_pending(begun: World) -> None:
    begun.remote.pushes.append(Fault.UNREACHABLE)
    with pytest.raises(Unavailable) as failed:
        begun.of(JO).claim([F001])
    assert not isinstance(failed.value, UnknownOutcome)
    begun.asked()
    assert begun.of(JO).claim([F001]).warnings == ()
    assert begun.asked() == ["push"]
    begun.remote.pushes.extend([Fault.BUSY] * 1_000)
    with pytest.raises(Unavailable):
        begun.of(JO).claim([F002])


def test_what_the_server_refuses_twice_is_denied(begun: World) -> None:
    begun.remote.pushes.extend([Fault.REFUSED, Fault.REFUSED])
    with pytest.raises(Denied):
        begun.of(JO).claim([F001])
    assert begun.holders() == []
    assert begun.of(JO).read().warnings == (), "nothing is unknown after a refusal"
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


def test_a_claim_confirmed_after_its_time_is_lost(begun: World) -> None:
    begun.slowly("push", 11)
    with pytest.raises(LeaseLost):
        begun.of(JO).claim([F001], ClaimOptions(ttl=10))


def test_a_clock_set_back_during_a_push_does_not_make_a_late_claim_good(begun: World) -> None:
    def slow(kind: str) -> None:
        if kind == "push":
            begun.clock.advance(11)
            begun.clock.skew(-60)

    begun.remote.during = slow
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


def test_a_wait_stays_polite_when_the_clocks_disagree(begun: World) -> None:
    begun.of(KIM).set_policy({"rule": "observed"})
    begun.of(KIM).claim([F001])
    begun.of(JO).read()
    begun.clock.advance(10)
    begun.clock.skew(3_600)
    with pytest.raises(WaitTimeout):
        begun.of(JO).claim([F001], wait=120)
    assert begun.asked().count("peek") < 30


def test_a_displaced_holder_is_told_once_whatever_becomes_of_the_command(begun: World) -> None:
    begun.of(JO).claim([F001], ClaimOptions(ttl=60))
    begun.clock.advance(200)
    begun.of(KIM).claim([F001])
    begun.of(JO).store.fetch("global")
    begun.remote.pushes.append(Fault.UNREACHABLE)
    with pytest.raises(Unavailable) as failed:
        begun.of(JO).note(F002, "hello")
    (told,) = (*failed.value.warnings, *begun.of(JO).read().warnings)
    check_words(told)
    assert begun.of(JO).note(F002, "hello").warnings == ()
    assert begun.remote.ledger(begun.remote.refs["global"]).notices(JO.holder) == ()


# --- answers -------------------------------------------------------------------------------------


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


def test_renewing_and_releasing_nothing_succeeds_after_a_look(begun: World) -> None:
    answer = begun.of(JO).renew_all()
    assert (answer.leases, answer.changed) == ((), False)
    begun.asked()
    answer = begun.of(JO).release([F001])
    assert (answer.status, answer.changed) == ("released", False)
    assert begun.asked() == ["fetch"]


def test_cached_answers_ask_nobody_and_say_their_age(begun: World) -> None:
    begun.of(JO).read()
    begun.asked()
    begun.clock.advance(42)
    check_words(begun.of(JO).read(cached=True).warnings)
    assert begun.asked() == []


def test_confirming_makes_the_ledger_where_there_is_none(world: World) -> None:
    reading = world.of(JO).confirm()
    assert reading.revision == 1
    assert reading.ledger_id is not None
    assert world.of(KIM).confirm().ledger_id == reading.ledger_id


def test_a_damaged_record_takes_down_its_own_resource_or_paths_only(begun: World) -> None:
    begun.remote.damage("leases/aa/f001.yaml", Broken("no holder", F001))
    with pytest.raises(Invalid):
        begun.of(JO).claim([F001])
    assert begun.of(JO).claim([F002]).status == "claimed"
    assert begun.of(JO).claim([parse_resource("src/")]).status == "claimed"
    check_words(begun.of(JO).read().warnings)
    begun.of(KIM).set_policy({"admins": KIM.holder})
    begun.of(KIM).drop_record("leases/aa/f001.yaml", reason="garbage")
    assert begun.of(JO).claim([F001]).status == "claimed"
    begun.remote.damage("paths/aa/x.yaml", Broken("no holder", paths=True))
    with pytest.raises(Invalid):
        begun.of(JO).claim([parse_resource("docs/")])
    assert begun.of(JO).claim([parse_resource("F003")]).status == "claimed"
