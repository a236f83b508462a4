"""The end of a session by the service: steps counted, over ledgers and task files."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from kernel.rules.values import F001, JO, KIM
from support.memory import Broken, Fault, MemoryWatch
from support.session import MemoryWorld
from support.snapshots import raises
from support.tasks import Killed, MemoryTasks, task

from gitlease.guard.service import GuardedLayers, GuardService, WatchFolder
from gitlease.kernel.ledger import acts
from gitlease.kernel.ledger.answers import MAX_RESOURCES, Answer, ClaimOptions
from gitlease.kernel.ledger.sessions import AT_ONCE
from gitlease.kernel.rules.errors import Denied, LeaseHeld, NothingLeft, UsageError
from gitlease.kernel.rules.lease import Actor, Lease
from gitlease.kernel.rules.moves.operations import Grant
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.rules.viewpoint import Touched
from gitlease.tasks.queue import WhyNot

F002, F003 = parse_resource("F002"), parse_resource("F003")
HOUR, DAY = 3_600, 86_400
ONE, TWO = (replace(JO, session=name, session_explicit=True) for name in ("one", "two"))


class World(MemoryWorld):
    """One remote, one clock, and clones by name, each with task files of its own."""

    patience = 5.0

    def __init__(self) -> None:
        super().__init__(task("F001"), task("F002"), task("F003"))

    def tasks_of(self, who: Actor, clone: str = "") -> MemoryTasks:
        return self.files[clone or who.holder]

    def records(self) -> dict[str, Lease]:
        return {str(x.resource): x for x in self.leases()}


@pytest.fixture
def world() -> World:
    return World()


def test_what_was_ended_on_purpose_is_no_loss_and_what_ran_out_one_of_its_own_session(
    world: World,
) -> None:
    world.of(ONE).claim([F001])
    world.of(JO).end_session("one")
    for who in (TWO, ONE, JO):
        world.of(who).claim([F002])
        assert world.of(who).renew_all().refused == ()
        world.of(who).release([F002])
    world.of(ONE).claim([F001])
    world.clock.advance(HOUR)
    assert world.of(TWO).renew_all().refused == ()
    (lost,) = world.of(ONE).renew_all().refused
    assert (lost.code, lost.resource) == ("lost", "F001")


def test_nobody_renews_what_an_older_version_parked(world: World) -> None:
    """Its owner goes on committing under it: no heartbeat, no name in the message, no block."""
    world.of(ONE).claim([parse_resource("src/"), parse_resource("docs/")])
    world.of(ONE).park([parse_resource("src/")], seconds=HOUR)
    store, watch = world.of(ONE).store, MemoryWatch()
    guard = GuardService(
        cast(WatchFolder, watch),
        lambda: store,
        clock=world.clock,
        actor=ONE,
        layers=GuardedLayers(["global"]),
        max_age=DAY,
    )
    touched = [Touched("src/a.py"), Touched("docs/a.md")]
    world.clock.advance(890)
    assert guard.check(touched).findings == ()
    assert [str(x.resource) for _, x in guard.under(touched)] == ["path:docs"]
    assert guard.due() == ("global",)
    world.clock.advance(20)  # docs ran out
    assert guard.due() == ()
    guard.refresh()
    assert (watch.idle.held_until, watch.idle.renew_at) == (0, 0)
    (lost,) = world.of(ONE).renew_all().refused
    assert lost.resource == "path:docs"
    assert world.records()["path:src"].renewals == 1, "by the parking alone"


def test_next_finds_what_came_free_where_this_clone_knew_of_nothing(world: World) -> None:
    world.of(ONE).claim([F001, F003])
    world.of(KIM).claim([F002])
    world.of(TWO, clone="b").read()
    world.of(KIM).release([F002])
    assert world.queue(TWO, clone="b").claim_next(ClaimOptions())[1].resource == F002
    with pytest.raises(NothingLeft):
        world.queue(TWO, clone="b").claim_next(ClaimOptions())


# --- the end of a session -----------------------------------------------------------------------


def test_a_session_of_fifty_leases_ends_in_one_push(world: World) -> None:
    names = [parse_resource(f"n{number}") for number in range(50)]
    world.of(ONE).claim(names, ClaimOptions(any_name=True))
    for who, name in ((TWO, F002), (JO, F003), (KIM, F001)):
        world.of(who).claim([name])
    world.of(ONE).read()
    world.asked()
    answer = world.of(ONE).end_session(release=True)
    assert world.asked() == ["push"]
    assert (answer.status, len(answer.leases)) == ("released", 50)
    assert set(world.records()) == {"F001", "F002", "F003"}
    again = world.of(ONE).end_session(release=True)
    assert (again.leases, again.changed) == ((), False)
    assert world.asked() == ["fetch"], "that nothing is held is not said from old knowledge"


@pytest.mark.parametrize("verb", ["session end", "release --all"])
def test_a_step_that_cannot_be_made_hides_nothing_of_those_before_it(
    world: World, verb: str
) -> None:
    ends = {"session end": AT_ONCE, "release --all": MAX_RESOURCES}[verb]
    names = [parse_resource(f"n{number}") for number in range(ends + 1)]
    for first in range(0, len(names), MAX_RESOURCES):
        world.of(ONE).claim(names[first : first + MAX_RESOURCES], ClaimOptions(any_name=True))

    def all_of_them() -> Answer:
        if verb == "session end":
            return world.of(ONE).end_session()
        return acts.release_all([world.of(ONE).session])

    world.remote.pushes.extend([Fault.NONE, Fault.REFUSED, Fault.REFUSED])
    answer = all_of_them()
    assert (len(answer.leases), answer.changed) == (ends, True)
    assert [type(x) for x in answer.refused] == [Denied]
    world.remote.pushes.extend([Fault.REFUSED, Fault.REFUSED])
    with pytest.raises(Denied):
        all_of_them()
    assert len(all_of_them().leases) == 1


def test_the_edges_go_with_the_leases_that_are_given_back(world: World) -> None:
    world.of(ONE).claim([F001, F002])
    world.of(ONE).end_session()
    assert world.tasks_of(JO)["F001"].assigned == (JO.holder,)
    world.of(TWO).claim([F001, F002])
    answer = world.of(TWO).end_session(release=True, note="stopped")
    assert (answer.edge, len(answer.written)) == ("removed", 2)
    assert world.tasks_of(JO)["F001"].assigned == world.tasks_of(JO)["F002"].assigned == ()
    assert [n.text for n in world.of(KIM).claim([F001]).notes] == ["stopped"]


def test_unless_told_otherwise_a_session_ends_and_keeps_its_edges(world: World) -> None:
    port = parse_resource("port-80")
    world.of(ONE).claim([F001, port], ClaimOptions(any_name=True))
    world.asked()
    answer = world.of(ONE).end_session(note="stopped")
    assert (answer.status, answer.edge, answer.written) == ("run_out", "none", ())
    assert [(x.resource, x.state) for x in answer.leases] == [
        ("F001", "expired"),
        ("port-80", "released"),
    ]
    assert world.asked() == ["push"]
    assert world.tasks_of(JO)["F001"].assigned == (JO.holder,)
    left = world.records()
    assert [(x.session, x.edge) for x in left.values()] == [(None, True)]
    world.clock.advance(DAY)
    with pytest.raises(LeaseHeld):
        world.of(KIM).claim([F001])
    assert world.of(TWO).claim([F001]).status == "claimed"


def test_by_its_name_any_session_of_ones_own_is_ended(world: World) -> None:
    world.of(ONE).claim([F001])
    world.of(TWO).claim([F002])
    world.of(JO).claim([F003])
    assert [x.resource for x in world.of(TWO).end_session("one", release=True).leases] == ["F001"]
    assert [x.resource for x in world.of(JO).end_session("two", release=True).leases] == ["F002"]
    assert list(world.records()) == ["F003"]
    with raises(UsageError):
        world.of(JO).end_session(release=True)


def test_what_was_claimed_elsewhere_by_the_session_is_found(world: World) -> None:
    """Of what this clone does not know it learns by the step that it takes, or by asking."""
    world.of(ONE).claim([F001])
    world.of(ONE, clone="b").claim([F002])
    world.asked()
    answer = world.of(ONE).end_session(release=True)
    assert {x.resource for x in answer.leases} == {"F001", "F002"}
    assert world.records() == {}
    assert world.asked()[-1] == "push"
    world.of(ONE).claim([F003])
    ended = world.of(ONE, clone="new").end_session(release=True)
    assert [x.resource for x in ended.leases] == ["F003"]


def test_only_what_works_for_it_ends_with_a_session_where_that_is_asked(world: World) -> None:
    below = replace(JO, session="one/agent-1")
    world.of(ONE).claim([F001])
    world.of(below).claim([F002])
    world.of(replace(JO, session="oneself")).claim([F003])
    world.asked()
    assert len(world.of(ONE).end_session(below=True, known=True, release=True).leases) == 2
    assert list(world.records()) == ["F003"]
    assert world.asked() == ["push"]
    world.of(ONE).end_session(below=True, known=True, release=True)
    assert world.asked() == []


def test_a_task_file_that_cannot_be_edited_keeps_only_its_own_lease(world: World) -> None:
    world.of(ONE).claim([F001, F002, F003])
    world.tasks_of(JO).unwritable.add("tasks/F002.md")
    answer = world.of(ONE).end_session(release=True)
    assert {x.resource for x in answer.leases} == {"F001", "F003"}
    assert [error.resource for error in answer.refused] == ["F002"]
    assert list(world.records()) == ["F002"]
    alone = world.of(ONE).end_session(release=True)
    assert (alone.leases, alone.changed, len(alone.refused)) == ((), False, 1)
    assert world.of(ONE).end_session().refused == (), "no file is touched by that"


@pytest.mark.parametrize(
    "step",
    ["before intent", "after intent", "before write", "after write", "before settling"],
)
def test_a_kill_at_any_step_leaves_nothing_to_mend_by_hand(world: World, step: str) -> None:
    world.of(ONE).claim([F001, F002])
    files = world.tasks_of(JO)
    files.killed_at = step
    with pytest.raises(Killed):
        world.of(ONE).end_session(release=True)
    world.of(TWO).read()  # the next command finishes it, or forgets it
    held = {name: bool(files[name].assigned) for name in ("F001", "F002")}
    assert held == {name: name in world.records() for name in held}
    world.of(ONE).end_session(release=True)
    assert (world.records(), files["F001"].assigned, files["F002"].assigned) == ({}, (), ())
    assert not files.intents


def test_a_damaged_record_beside_one_of_the_session_is_told(world: World) -> None:
    world.of(ONE).claim([F001], ClaimOptions(scope="a"))
    world.of(ONE).claim([F002])
    world.remote.damage("leases/f0/broken.yaml", Broken("not YAML", F001))
    answer = world.of(ONE).end_session()
    assert [x.resource for x in answer.leases] == ["F002"]
    assert len(answer.refused) == 1


def test_a_failure_is_one_push_with_note_edge_and_count(world: World) -> None:
    """S8: no kill lies between the release and its count."""
    answer, _ = world.queue(ONE).claim_next(ClaimOptions(picked=True))
    world.asked()
    (x,) = answer.leases
    grant = Grant(F001, x.scope, x.session, x.lease_id, x.token)
    answer = world.of(ONE).give_back([grant], note="exit 3", commit=None, failed=True)
    assert world.asked() == ["push"]
    assert (answer.status, answer.edge) == ("released", "removed")
    entry = world.queue(KIM).queue().entries[0]
    assert (entry.why_not, entry.claimable) == (WhyNot.FAILED, False)
    known = world.queue(ONE).queue(cached=True).entries[0]
    assert known.setback == entry.setback, "its pool need not ask"
    world.of(KIM).note(F001, "the disk was full")
    assert world.queue(KIM).queue().entries[0].claimable


def test_the_list_has_ones_own_sessions_that_hold_anything(world: World) -> None:
    world.of(TWO).claim([F002])
    world.clock.advance(60)
    world.of(ONE).claim([F001])
    world.of(TWO).claim([parse_resource("src/")])
    world.of(JO).claim([F003])
    world.of(replace(KIM, session="three")).claim([parse_resource("docs/")])
    reading = world.of(ONE).sessions()
    assert [(s.session, len(s.leases), s.current) for s in reading.sessions] == [
        ("one", 1, True),
        ("two", 2, False),
    ]
    first, second = reading.sessions
    assert (first.since - second.since).total_seconds() == 60
    assert (first.expires_at - second.expires_at).total_seconds() == 60
    world.of(TWO).end_session()
    assert [s.session for s in world.of(ONE).sessions().sessions] == ["one"]
    world.clock.advance(DAY)
    assert world.of(ONE).sessions(cached=True).sessions == ()
