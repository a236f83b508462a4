"""``release --keep`` by the service: the lease ends, and the task waits for its owner."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel.rules.values import F001, JO, KIM
from support.memory import Fault
from support.session import LeaseService, MemoryWorld
from support.snapshots import check_words, raises
from support.tasks import task

from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.ledger.keeping import DOUBTED, LossDetector, holds_of
from gitlease.kernel.rules.errors import LeaseHeld, LeaseLost, Loss, NothingLeft, UsageError
from gitlease.kernel.rules.lease import Actor, Lease
from gitlease.kernel.rules.ledger import WAITS, is_kept, setback
from gitlease.kernel.rules.resources import parse_resource
from gitlease.tasks.queue import Carried, WhyNot

pytestmark = pytest.mark.default

F002, F003 = parse_resource("F002"), parse_resource("F003")
HOUR, DAY = 3_600, 86_400
ONE, TWO = (replace(JO, session=name, session_explicit=True) for name in ("one", "two"))
POOL = replace(JO, session="work-0123456789ab")
PICKS = ClaimOptions(picked=True)


class World(MemoryWorld):
    def __init__(self) -> None:
        super().__init__(task("F001"), task("F002"), task("F003"))

    def record(self) -> Lease:
        (found,) = (x for x in self.leases() if x.resource == F001)
        return found

    def why_not(self, who: Actor) -> WhyNot | None:
        entries = self.queue(who).queue().entries
        return next(x.why_not for x in entries if x.task.resource == F001)


@pytest.fixture
def world() -> World:
    return World()


def kept(world: World, who: Actor = ONE, note: str | None = "which colour?") -> LeaseService:
    world.of(who).claim([F001])
    service = world.of(who)
    service.keep([F001], note=note)
    return service


def test_it_is_one_push_and_leaves_the_task_file_alone(world: World) -> None:
    world.of(ONE).claim([F001, F002])
    world.asked()
    answer = world.of(ONE).keep([F001, F002], note="half done")
    assert world.asked() == ["push"]
    assert (answer.status, answer.edge, answer.written) == ("kept", "kept", ())
    assert answer.edge_in == ("record", "file")
    for view in answer.leases:
        assert (view.state, view.session, view.assigned) == ("expired", None, True)
    assert world.files[JO.holder]["F001"].assigned == (JO.holder,)


def test_any_session_of_its_owner_resumes_it_and_nobody_else_does(world: World) -> None:
    kept(world)
    world.clock.advance(DAY)
    with pytest.raises(LeaseHeld):
        world.of(KIM).claim([F001])
    answer = world.of(TWO, clone="b").claim([F001])
    assert (answer.status, answer.leases[0].session, answer.leases[0].token) == (
        "claimed",
        "two",
        2,
    )
    assert [note.text for note in answer.notes] == ["which colour?"]
    with pytest.raises(LeaseHeld):
        world.of(ONE).claim([F001])


def test_once_it_is_abandoned_anyone_may_have_it(world: World) -> None:
    kept(world)
    world.clock.advance(8 * DAY)
    assert world.why_not(KIM) is WhyNot.FAILED, "but nothing hands it out"
    assert world.of(KIM).claim([F001]).status == "taken_over"


def test_next_and_pools_skip_it(world: World) -> None:
    kept(world)
    assert world.why_not(JO) is WhyNot.FAILED
    assert world.queue(JO).queue().carried[0].state is Carried.WAITING
    names = [world.queue(who).claim_next(PICKS)[1].resource for who in (TWO, POOL)]
    assert names == [F002, F003]
    with pytest.raises(NothingLeft):
        world.queue(JO).claim_next(ClaimOptions())


@pytest.mark.parametrize("who", [JO, TWO])
def test_a_claim_by_name_ends_its_waiting(world: World, who: Actor) -> None:
    kept(world)
    world.of(who).claim([F001], ClaimOptions(ttl=60))
    world.clock.advance(HOUR)
    assert world.why_not(JO) is None
    assert world.queue(POOL).claim_next(PICKS)[1].resource == F001


def test_a_release_and_a_word_of_a_person_end_its_waiting(world: World) -> None:
    kept(world)
    world.of(JO).release([F001], note="blue")
    assert world.why_not(KIM) is None
    kept(world)
    world.of(TWO).note(F001, "a guess of mine")
    assert world.why_not(JO) is WhyNot.FAILED, "the word of an agent is not a person's"
    world.of(KIM).note(F001, "blue")
    assert world.why_not(JO) is None


def test_without_a_note_it_waits_all_the_same(world: World) -> None:
    kept(world, note=None)
    assert world.why_not(JO) is WhyNot.FAILED
    assert is_kept(world.record())


def test_what_a_pool_picked_is_its_person_s_from_then_on(world: World) -> None:
    """A picked lease would go back to the queue at its lapse."""
    world.queue(POOL).claim_next(PICKS)
    assert world.record().picked
    world.asked()
    answer = world.of(POOL).keep([F001], note="which colour?")
    assert world.asked() == ["push"]
    assert [view.resource for view in answer.leases] == ["F001"]
    record = world.record()
    assert (record.picked, record.edge, record.session, record.token) == (False, True, None, 1)
    world.clock.advance(DAY)
    with pytest.raises(LeaseHeld):
        world.of(KIM).claim([F001])


def test_its_person_keeps_what_a_run_of_theirs_has(world: World) -> None:
    world.queue(POOL).claim_next(PICKS)
    answer = world.of(JO).keep([F001])
    assert not world.record().picked
    assert answer.leases[0].resource == "F001"
    check_words(world.of(POOL).read().warnings)


def test_a_picked_lease_that_ran_out_is_lost(world: World) -> None:
    world.queue(POOL).claim_next(PICKS)
    world.clock.advance(HOUR)
    with pytest.raises(LeaseLost):
        world.of(POOL).keep([F001])
    assert world.record().picked


def test_another_s_task_nothing_and_what_is_no_task_are_refused(world: World) -> None:
    world.of(KIM).claim([F001])
    world.of(ONE).claim([parse_resource("src/")])
    with raises(LeaseHeld):
        world.of(ONE).keep([F001])
    with raises(LeaseLost):
        world.of(ONE).keep([F002])
    with raises(UsageError):
        world.of(ONE).keep([parse_resource("src/")])
    world.of(ONE).claim([F003])
    with pytest.raises(LeaseHeld):
        world.of(ONE).keep([F003, F001])
    assert {x.resource for x in world.leases() if is_kept(x)} == set(), "all or none"


def test_no_refusal_is_given_from_old_knowledge(world: World) -> None:
    world.of(ONE).read()
    world.of(ONE, clone="b").claim([F001])
    assert world.of(ONE).keep([F001]).status == "kept"
    world.of(ONE, clone="b").read()
    world.of(ONE).claim([F001])
    assert world.of(ONE, clone="b").keep([F001]).leases[0].token == 2


def test_kept_again_it_waits_with_the_new_note(world: World) -> None:
    kept(world)
    world.of(JO).note(F001, "blue")
    world.of(TWO).keep([F001], note="which blue?")
    found = world.queue(JO).queue().left_alone
    assert [x.setback.last.text for x in found if x.setback] == ["which blue?"]


def test_only_its_own_scope_is_kept(world: World) -> None:
    world.of(ONE).claim([F001], ClaimOptions(scope="api"))
    world.of(ONE).claim([F001], ClaimOptions(scope="ui"))
    answer = world.of(ONE).keep([F001], scope="api")
    assert [view.scope for view in answer.leases] == ["api"]
    assert {x.scope: is_kept(x) for x in world.leases()} == {"api": True, "ui": False}


def test_a_lost_answer_is_settled(world: World) -> None:
    world.of(ONE).claim([F001])
    world.remote.pushes.append(Fault.UNANSWERED)
    assert world.of(ONE).keep([F001], note="once").status == "kept"
    assert len(world.of(ONE).read(resource=F001).notes) == 1


@pytest.mark.parametrize("who", [ONE, JO])
def test_whoever_relies_on_the_lease_learns_that_it_ended(world: World, who: Actor) -> None:
    holds = holds_of(world.of(who).claim([F001]))
    sight = LossDetector(lambda _limit: world.of(Actor(JO.holder)).session)
    world.of(who).keep([F001])
    found = [lost for _ in range(DOUBTED + 1) for lost in sight.lost(holds)]
    assert [lost.loss for lost in found] == [Loss.RELEASED_ELSEWHERE]
    assert found[0].by_own, "by its own session, so a command goes on until it ends"


# --- what older versions wrote --------------------------------------------------------------------


def test_a_parked_record_reads_as_its_owner_s_lease_until_its_time_is_over(world: World) -> None:
    world.of(ONE).claim([F001])
    world.of(ONE).park([F001], seconds=2 * HOUR)
    (view,) = world.of(TWO).read().leases
    assert (view.state, view.session, view.mine) == ("active", None, True)
    assert world.why_not(JO) is WhyNot.YOURS
    assert world.why_not(KIM) is WhyNot.HELD
    with raises(LeaseLost):
        world.of(TWO).renew([F001])
    assert world.of(TWO).claim([F001]).leases[0].token == 2, "as older versions go on with it"
    world.of(TWO).park([F001], seconds=2 * HOUR)
    assert world.why_not(KIM) is WhyNot.HELD
    world.clock.advance(3 * HOUR)
    assert world.of(JO).read().leases[0].state == "expired"
    assert world.why_not(JO) is None
    assert world.why_not(KIM) is WhyNot.ASSIGNED


def test_what_an_older_worker_parked_for_a_person_waits(world: World) -> None:
    world.of(ONE).claim([F001])
    world.of(ONE).park([F001], seconds=HOUR, note="which colour?", mark=WAITS)
    world.clock.advance(2 * HOUR)
    assert world.why_not(JO) is WhyNot.FAILED
    world.of(JO).claim([F001], ClaimOptions(ttl=60))
    world.clock.advance(HOUR)
    assert world.why_not(JO) is None


def test_older_versions_leave_it_alone_by_its_note(world: World) -> None:
    """They know nothing of the record's operation, and decide by the notes alone."""
    kept(world)
    ledger = world.of(JO).session.known_ledger() or world.of(JO).look().head.ledger
    assert ledger is not None
    found = setback(ledger.notes(F001), ("",))
    assert found is not None
    assert found.waits
