"""A ledger whose ref was deleted, brought back by a clone that has not seen the newest grants."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel.rules.values import F001, JO, KIM, claim, renew
from support.memory import Fault
from support.session import MemoryWorld

from gitlease.kernel.ledger.deleted import restore
from gitlease.kernel.ledger.transaction import SAME_AGAIN, Step, Transaction
from gitlease.kernel.rules.errors import (
    AnotherLedger,
    Invalid,
    LeaseHeld,
    LeaseLost,
    NotHolder,
    PolicyRefused,
    Rollback,
    Unavailable,
    UnknownOutcome,
)
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.moves.operations import Operation
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store.git_ledger import RefLedgerStore

pytestmark = pytest.mark.default

F002, F003 = map(parse_resource, ("F002", "F003"))
LEE = Actor("lee@example.com", host="shed")
WAIT = 87_329  # seconds, by the usual policy


@pytest.fixture
def world() -> MemoryWorld:
    """Jo holds F001, which Kim has seen; Kim holds F002, which nobody else has seen; no ref."""
    world = MemoryWorld()
    world.of(JO).claim([F001])
    world.of(KIM).claim([F002])
    world.remote.force("global", "")
    return world


def lost_without(world: MemoryWorld) -> None:
    """Nothing brings it back by itself."""
    for who in (JO, KIM):
        with pytest.raises(AnotherLedger) as refused:
            world.of(who).claim([F003])
        assert refused.value.gone


def test_whoever_held_a_lease_goes_on_and_nobody_gets_a_second_one(world: MemoryWorld) -> None:
    """S2 and S3: Jo restores without having seen Kim's lease."""
    lost_without(world)
    restore(world.of(JO).session)
    jo, kim = world.of(JO), world.of(KIM)
    for refused in (F002, F003):
        with pytest.raises(PolicyRefused):
            jo.claim([refused])
    assert jo.renew([F001]).leases[0].token == 1
    (lease,) = kim.renew([F002]).leases
    assert lease.token == 2
    with pytest.raises(LeaseHeld):
        jo.claim([F002])
    kim.release([F002])
    jo.extend(F001, 3_600)
    jo.complete(F001)


def test_a_restoration_that_may_have_landed_makes_no_new_ledger(world: MemoryWorld) -> None:
    """S2: a barrier where nothing is would be a ledger that grants at once what Kim holds.

    Another process of the clone has forgotten meanwhile that there was a ledger.
    """
    session = world.of(JO).session
    world.remote.pushes.extend([Fault.LOST] * (SAME_AGAIN + 1))
    store = session.store
    assert isinstance(store, RefLedgerStore)

    def forgotten(request: str) -> None:
        if request == "push":
            store.state("global").forget()

    world.remote.during = forgotten
    with pytest.raises(UnknownOutcome):
        restore(session)
    assert world.remote.fetch("global") is None


def test_it_grants_again_when_every_lease_must_have_lapsed(world: MemoryWorld) -> None:
    """S2: Kim's clone never came back."""
    restore(world.of(JO).session)
    world.clock.advance(WAIT - 1)
    with pytest.raises(PolicyRefused):
        world.of(JO).claim([F002])
    world.clock.advance(1)
    (lease,) = world.of(JO).claim([F002]).leases
    assert lease.token > 2, "S4: above what Kim had"
    with pytest.raises((LeaseLost, NotHolder)):
        world.of(KIM).renew([F002])


def test_a_claim_of_another_puts_back_what_its_clone_had(world: MemoryWorld) -> None:
    """S8: whatever command comes first."""
    restore(world.of(JO).session)
    with pytest.raises(PolicyRefused):
        world.of(KIM).claim([F003])
    with pytest.raises(LeaseHeld):
        world.of(LEE).claim([F002])


@pytest.mark.parametrize("fault", [Fault.UNANSWERED, Fault.LOST, Fault.UNREACHABLE])
def test_a_lost_answer_leaves_no_lease_behind(world: MemoryWorld, fault: Fault) -> None:
    """S6 and S8: what was put back counts once, and what was not is put back next time."""
    restore(world.of(JO).session)
    world.of(KIM).read()
    world.remote.pushes.append(fault)
    try:
        world.of(KIM).renew([F002])
    except Unavailable:
        world.of(KIM).renew([F002])
    assert len([x for x in world.of(LEE).read().leases if x.resource == "F002"]) == 1


def test_what_was_granted_before_the_deletion_lasts_no_longer(world: MemoryWorld) -> None:
    """S3: a holder counts from the grant, however late it is put back."""
    kim = world.of(KIM)
    world.clock.advance(600)
    restore(world.of(JO).session)
    with pytest.raises(PolicyRefused):
        kim.claim([F003])
    (shown,) = [x for x in world.of(LEE).read().leases if x.resource == "F002"]
    assert shown.expires_in <= 300


def test_only_one_of_two_restorations_counts(world: MemoryWorld) -> None:
    """S1: whoever comes second finds it there."""
    done: list[str] = []

    def meanwhile(kind: str) -> None:
        if kind == "push" and not done:
            done.append(kind)
            restore(world.of(KIM).session)

    world.remote.during = meanwhile
    restore(world.of(JO).session)
    kinds = [x.kind for x in world.of(LEE).log().events]
    assert kinds.count("restored") == 1
    again = restore(world.of(LEE).session)
    assert "nothing was restored" in again.warnings[-1]


def test_two_restorations_that_know_nothing_of_each_other_give_no_token_twice(
    world: MemoryWorld,
) -> None:
    """S4: the ref is deleted once more, and a clone that missed the first restoration makes one."""
    world.of(JO).session.store.known("global")
    restore(world.of(JO).session, at_once=True)
    (first,) = world.of(JO).claim([F003]).leases
    world.remote.force("global", "")
    world.clock.advance(120)
    restore(world.of(KIM).session, at_once=True)
    (second,) = world.of(KIM).claim([parse_resource("F004")]).leases
    assert second.token > first.token


def test_an_admin_alone_restores_and_ends_the_wait() -> None:
    world = MemoryWorld()
    world.of(JO).set_policy({"admins": JO.holder})
    world.of(KIM).claim([F002])
    world.of(JO).read()
    world.remote.force("global", "")
    with pytest.raises(PolicyRefused):
        restore(world.of(KIM).session)
    restore(world.of(JO).session)
    with pytest.raises(PolicyRefused):
        restore(world.of(KIM).session, at_once=True)
    restore(world.of(JO).session, at_once=True)
    assert world.of(KIM).claim([F003]).status == "claimed"
    events = world.of(KIM).log().events
    assert [(x.kind, x.by) for x in events if x.kind == "wait_ended"] == [("wait_ended", JO.holder)]


def test_a_ledger_that_is_there_or_was_never_seen_is_not_restored() -> None:
    world = MemoryWorld()
    with pytest.raises(Invalid):
        restore(world.of(JO).session)
    world.of(JO).claim([F001])
    assert "nothing was restored" in restore(world.of(JO).session).warnings[-1]
    assert world.of(KIM).claim([F002]).status == "claimed"


def test_what_is_no_restoration_of_what_was_seen_stays_a_rollback(world: MemoryWorld) -> None:
    """S3: an older state without a wait, and one that somebody restored who may not."""
    tips = list(world.remote.steps)
    world.remote.force("global", tips[0])
    with pytest.raises(Rollback):
        world.of(KIM).renew([F002])
    world.remote.force("global", "")
    ruled = MemoryWorld()
    ruled.of(JO).set_policy({"admins": JO.holder})
    ruled.of(JO).claim([F001])
    ruled.of(KIM).claim([F002])
    ruled.remote.force("global", "")
    restore(ruled.of(JO).session)
    forged = ruled.remote.refs["global"]
    step = ruled.remote.steps[forged]
    events = tuple(event._replace(by=KIM.holder) for event in step.events)
    ruled.remote.force("global", ruled.remote.keep(replace(step, events=events)))
    with pytest.raises(Rollback):
        ruled.of(KIM).renew([F002])


def test_a_new_ledger_in_the_place_of_a_deleted_one_waits_too(world: MemoryWorld) -> None:
    """S2: the leases of the deleted one are in nobody's way there."""
    world.of(JO).confirm(another=True)
    with pytest.raises(PolicyRefused):
        world.of(JO).claim([F002])
    world.clock.advance(WAIT)
    (lease,) = world.of(JO).claim([F002]).leases
    assert lease.token > 2


def test_a_first_ledger_waits_for_nothing() -> None:
    world = MemoryWorld()
    world.of(JO).confirm()
    assert world.of(JO).claim([F001]).status == "claimed"


def test_a_gateway_puts_back_the_leases_of_all_that_it_brought() -> None:
    """L3: nobody of them has a clone."""
    world = MemoryWorld()
    gateway = replace(JO, host="hub")

    def brought(who: Actor, operation: Operation) -> Step:
        store = world.store(gateway, clone="hub")
        at = Transaction(store, clock=world.clock, actor=gateway, layer="global", brings=True)
        return at.carry_out([replace(operation, actor=replace(who, host=None))])

    world.of(LEE).claim([F001])
    lees, kims = claim(LEE, "F002"), claim(KIM, "F003")
    brought(LEE, lees)
    brought(KIM, kims)
    world.remote.force("global", "")
    restore(world.of(LEE).session)
    step = brought(KIM, renew(KIM, "F003"))
    assert step.applied.outcomes[0].status == "renewed"
    assert world.holders() == [f"F001 {LEE.holder}", f"F002 {LEE.holder}", f"F003 {KIM.holder}"]


def test_whoever_comes_second_with_a_restoration_is_told_so(world: MemoryWorld) -> None:
    """S6: also where the other put back as many steps as this clone had seen."""
    session = world.of(KIM).session
    store = session.store
    swap, others = store.swap, [world.of(JO).session]

    def late(*args: object) -> object:
        if others:
            restore(others.pop())
        return swap(*args)  # type: ignore[arg-type]

    store.swap = late  # type: ignore[method-assign,assignment]
    told = restore(session).told
    assert told == ("somebody else has restored the ledger meanwhile",)
    assert world.of(KIM).renew([F002]).status == "renewed"
