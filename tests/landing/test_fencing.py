"""The fenced push over a store in memory, under a manual clock and every kind of fault.

S5: no work of an older grant lands after a newer one was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import pytest
from kernel.rules.values import F001, JO, KIM
from support.memory import Fault, MemoryRemote
from support.session import MemoryWorld
from support.snapshots import check_words, raises

from gitlease.guard.reports import PushedCommit, PushedWork
from gitlease.guard.whose import Makers
from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.rules.errors import (
    Denied,
    GitleaseError,
    LeaseHeld,
    LeaseLost,
    NotHolder,
    Unavailable,
    UnknownOutcome,
)
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.resources import Resource, parse_resource
from gitlease.kernel.rules.viewpoint import Touched
from gitlease.kernel.rules.work import Became, WorkPush, WorkRef
from gitlease.landing.fenced_push import UNFENCED, FencedPush, PushAnswer, PushRefused
from gitlease.landing.fenced_push import fence as fenced_token
from gitlease.landing.plan import GitWork, PlannedPush, PushRequest

MAIN = "refs/heads/main"
API, DOCS = parse_resource("src/api/"), parse_resource("docs/")
TTL = 900
LOGIN = "src/api/login.py"


class FakeWork:
    """A repository whose push moves main from what the remote has to another commit."""

    def __init__(self, remote: MemoryRemote, new: str, touched: Sequence[str]) -> None:
        self.remote, self.new, self.touched = remote, new, touched
        self.landed: list[str] = []
        self.followed = 0
        self.reason = ""

    def plan(self, wish: PushRequest, tell: Callable[[str], None]) -> PlannedPush:
        old = self.remote.work.get(MAIN, "")
        became = Became.UPDATED if old else Became.CREATED
        became = Became.UP_TO_DATE if old == self.new else became
        became = Became.REJECTED if self.reason else became
        one = WorkRef(MAIN, MAIN, old, self.new, became, self.reason)
        refs = (one,) if one.moves else ()
        return PlannedPush(
            push=WorkPush(folder="/", remote="origin", url="/r", refs=refs),
            refs=(one,),
            remote="origin",
        )

    def carried(self, plan: PlannedPush) -> Sequence[PushedCommit]:
        return [PushedCommit("1" * 40, self.brought(plan).touched)]

    def brought(self, plan: PlannedPush) -> PushedWork:
        return PushedWork(tuple(Touched(path) for path in self.touched if plan.push.refs))

    def note_grant(self, commits: Sequence[str], trailer: str) -> None:
        """Nothing is kept from one push to the next."""

    def makers(self, emails: Iterable[str]) -> Makers:
        return Makers()

    def land(self, push: WorkPush) -> tuple[str, ...]:
        self.landed += [x.new for x in push.refs]
        self.remote.work |= {x.ref: x.new for x in push.refs}
        return ()

    def follow(self, plan: PlannedPush) -> None:
        self.followed += 1


class World(MemoryWorld):
    """One remote, one clock, and a clone for each person."""

    def __init__(self) -> None:
        super().__init__()
        self.pushed = 0

    def work(self, *touched: str) -> FakeWork:
        self.pushed += 1
        return FakeWork(self.remote, f"commit-{self.pushed}", touched)

    def fencing(self, who: Actor, work: FakeWork, *, layer: str = "global") -> FencedPush:
        git_work = cast("GitWork", work)
        return FencedPush(self.of(who, layer=layer).session, git_work, layers=["global"])

    def push(
        self,
        who: Actor,
        work: FakeWork | None = None,
        *,
        require: Sequence[Resource] = (),
        layer: str = "global",
    ) -> PushAnswer:
        fencing = self.fencing(who, work or self.work(LOGIN), layer=layer)
        return fencing.push(PushRequest(), require=require)

    @property
    def main(self) -> str:
        return self.remote.work.get(MAIN, "")

    def once(self, kind: str, act: Callable[[], object]) -> None:
        """Do something in the middle of the next request of this kind, and of that one only."""

        def during(which: str) -> None:
            if which == kind:
                self.remote.during = lambda _kind: None
                act()

        self.remote.during = during


@pytest.fixture
def world() -> World:
    """Jo holds src/api, and both have met the ledger."""
    made = World()
    made.of(JO).claim([API], ClaimOptions(ttl=TTL))
    made.of(KIM).read()
    made.asked()
    return made


def take_over(world: World) -> None:
    """Kim gets what Jo held: Jo let go of it elsewhere."""
    world.of(JO, clone="jo elsewhere").release([API])
    world.of(KIM).claim([API])


def lapse(world: World) -> None:
    world.clock.advance(TTL + 61)


def test_work_and_lease_move_in_one_push(world: World) -> None:
    world.clock.advance(100)
    answer = world.push(JO)
    assert world.main == "commit-1"
    assert world.asked() == ["push"]
    assert (answer.status, answer.fenced) == ("pushed", True)
    (lease,) = answer.leases
    assert (lease.resource, lease.expires_in, lease.renewals) == ("src/api", TTL, 1)


def test_work_of_no_lease_is_pushed_plainly_and_says_so(world: World) -> None:
    work = world.work("docs/guide.md")
    answer = world.push(JO, work)
    assert work.landed == ["commit-1"]
    assert (answer.fenced, answer.leases) == (False, ())
    assert UNFENCED in answer.warnings
    assert world.asked() == ["fetch"]


def test_a_lost_lease_of_either_layer_refuses_both(world: World) -> None:
    world.of(JO, layer="team").claim([DOCS])
    world.asked()
    answer = world.push(JO, world.work(LOGIN, "docs/guide.md"), layer="team")
    leases = {(x.layer, x.resource) for x in answer.leases}
    assert leases == {("global", "src/api"), ("team", "path:docs")}
    assert world.asked() == ["push"], "both move together"
    take_over(world)
    before = world.remote.refs["team"]
    main = world.main
    with pytest.raises(LeaseLost):
        world.push(JO, world.work(LOGIN, "docs/guide.md"), layer="team")
    assert world.main == main
    assert world.remote.refs["team"] == before


# --- what is refused ------------------------------------------------------------------------------


def refused(world: World, error: type[GitleaseError], **words: list[Resource]) -> GitleaseError:
    """Push, and see that neither the work nor the ledger moves."""
    ledger = world.remote.refs.get("global")
    with pytest.raises(error) as caught:
        world.push(JO, **words)  # type: ignore[arg-type]
    assert world.main == ""
    assert world.remote.refs.get("global") == ledger
    return caught.value


@pytest.mark.parametrize(("change", "word"), [(take_over, KIM.holder), (lapse, "expired")])
def test_a_lease_that_was_taken_over_or_ran_out_refuses_the_work(
    world: World, change: Callable[[World], None], word: str
) -> None:
    change(world)
    lost = refused(world, LeaseLost)
    assert word in lost.message
    assert "commit 1111111111" in lost.message


def test_whoever_holds_it_again_vouches_for_what_they_push(world: World) -> None:
    """By the present lease, whatever this clone believed before, and the same each time."""
    take_over(world)
    world.of(KIM).release([API])
    world.of(JO, clone="jo elsewhere").claim([API])
    for _ in range(3):
        (lease,) = world.push(JO).leases
        assert lease.token == 3


def test_what_is_required_and_not_held_is_refused(world: World) -> None:
    check_words(refused(world, LeaseLost, require=[F001]).message)
    world.of(KIM).claim([F001])
    assert "kim@example.com" in refused(world, NotHolder, require=[F001]).message


def test_what_another_holds_is_refused_and_what_a_run_of_ones_own_does_warned_of(
    world: World,
) -> None:
    run = Actor(JO.holder, session="build-7", session_explicit=True)
    world.of(run).claim([DOCS])
    answer = world.push(JO, world.work("docs/guide.md"))
    assert any("build-7" in text for text in answer.warnings)
    world.of(JO).release([API])
    world.of(KIM).claim([API], ClaimOptions(reason="mine now"))
    main = world.main
    with pytest.raises(LeaseHeld) as caught:
        world.push(JO)
    assert world.main == main
    check_words(caught.value.message)
    assert caught.value.views[0].reason == "mine now"
    assert caught.value.free_at is not None


def test_a_change_of_the_lease_between_decision_and_push_refuses_the_work(world: World) -> None:
    world.of(JO).claim([F001])
    world.once("push", lambda: world.of(KIM).claim([DOCS]))
    with pytest.raises(LeaseHeld):
        world.push(JO, world.work("docs/guide.md"), require=[F001])
    world.once("push", lambda: take_over(world))
    work = world.work(LOGIN)
    with pytest.raises(LeaseLost):
        world.push(JO, work)
    assert world.main == ""
    assert work.landed == []


def test_an_unrelated_change_in_between_means_to_push_again(world: World) -> None:
    world.once("push", lambda: world.of(KIM).claim([F001]))
    answer = world.push(JO)
    assert answer.fenced
    assert world.main == "commit-1"
    assert world.asked() == ["push", "push", "fetch", "look", "push"]


# --- faults ---------------------------------------------------------------------------------------


def test_a_rejected_ref_leaves_the_ledger_as_it_is(world: World) -> None:
    before = world.remote.refs["global"]
    work = world.work(LOGIN)
    work.reason = "[rejected] (non-fast-forward)"
    with pytest.raises(PushRefused, match="non-fast-forward"):
        world.push(JO, work)
    assert world.asked() == [], "it is never sent"
    world.once("push", lambda: world.remote.work.update({MAIN: "of another"}))
    with pytest.raises(PushRefused) as caught:
        world.push(JO)
    check_words(caught.value.message)
    assert isinstance(caught.value, Denied)
    assert [x.ref for x in caught.value.refs] == [MAIN]
    assert world.remote.refs["global"] == before


@pytest.mark.parametrize("fault", [Fault.UNANSWERED, Fault.BUSY, Fault.LOST, Fault.LATE])
def test_a_push_that_is_not_answered_is_read_back(world: World, fault: Fault) -> None:
    world.remote.pushes.append(fault)
    answer = world.push(JO)
    world.remote.arrive()
    assert answer.status == "pushed"
    assert world.main == "commit-1"
    assert len(world.of(KIM).read().leases) == 1


def test_a_push_that_cannot_be_found_out_about_says_so(world: World) -> None:
    world.remote.pushes.append(Fault.UNANSWERED)
    world.remote.fetches.append(Fault.UNREACHABLE)
    with pytest.raises(UnknownOutcome):
        world.push(JO)
    assert world.main == "commit-1"
    check_words(world.push(JO).warnings)


def test_a_server_that_ended_between_the_two_gets_the_work_again(world: World) -> None:
    """The ledger moved and the work did not: its lease is known to be held, so it is sent again."""

    def half(_kind: str) -> None:
        world.remote.during = lambda _kind: None
        world.remote.work[MAIN] = ""

    world.remote.pushes.append(Fault.UNANSWERED)
    world.remote.during = lambda kind: half(kind) if kind == "look" else None
    assert world.push(JO).fenced
    assert world.main == "commit-1"
    assert world.asked().count("push") == 2


def test_work_that_lands_after_its_lease_ran_out_has_landed(world: World) -> None:
    """Nobody took it over: the ledger itself let it pass."""

    def slowly(kind: str) -> None:
        world.clock.advance(TTL if kind == "push" else 0)

    world.remote.during = slowly
    answer = world.push(JO)
    assert world.main == "commit-1"
    assert answer.leases[0].state == "expired"
    check_words(answer.warnings)


def test_a_late_push_of_a_holder_that_lost_its_lease_never_lands(world: World) -> None:
    """S5: it is held back on its way, until another was granted the same."""
    world.remote.pushes.append(Fault.LATE)
    world.remote.late_by = 1_000
    world.remote.fetches += [Fault.UNREACHABLE] * 9
    with pytest.raises(UnknownOutcome):
        world.push(JO)
    world.remote.fetches.clear()
    lapse(world)
    world.of(KIM).claim([API])
    world.remote.arrive()
    assert world.main == ""


def test_work_refused_after_an_unanswered_try_lands_no_more(world: World) -> None:
    """S6: the branch had moved on at the second try, and is back where the first one expects it."""
    world.remote.pushes.append(Fault.LATE)
    world.remote.late_by = 1_000
    world.once("look", lambda: world.remote.work.update({MAIN: "another's"}))
    with raises(Unavailable):
        world.push(JO)
    del world.remote.work[MAIN]
    world.remote.arrive()
    assert world.main == ""


def test_nothing_to_push_asks_no_ledger(world: World) -> None:
    work = world.work(LOGIN)
    world.push(JO, work)
    world.asked()
    again = world.fencing(JO, work).push(PushRequest())
    assert (again.status, again.fenced) == ("up_to_date", False)
    assert world.asked() == []
    assert work.followed == 2


# --- the check of a token -------------------------------------------------------------------------


def fence(world: World, who: Actor, token: int, *, scope: str | None = None) -> int:
    return fenced_token(world.of(who).session, API, token, scope=scope).leases[0].token


def test_a_token_that_is_live_passes_for_anyone(world: World) -> None:
    assert fence(world, JO, 1) == fence(world, KIM, 1) == 1
    assert world.asked() == ["fetch", "fetch"], "it is never answered from what is known"
    world.remote.fetches.append(Fault.UNREACHABLE)
    with pytest.raises(Unavailable):
        fence(world, JO, 1)


def test_a_token_of_another_grant_is_lost(world: World) -> None:
    with raises(LeaseLost):
        fence(world, JO, 2)
    take_over(world)
    with raises(LeaseLost):
        fence(world, JO, 1)


def test_a_token_of_what_ended_or_ran_out_is_lost(world: World) -> None:
    world.clock.advance(TTL)
    for who in (JO, KIM):
        with raises(LeaseLost):
            fence(world, who, 1)
    world.of(JO).release([API])
    with raises(LeaseLost):
        fence(world, JO, 1)
    with raises(LeaseLost):
        fenced_token(world.of(JO).session, F001, 1)


def test_what_is_parked_is_nobody_s_token(world: World) -> None:
    world.of(JO).park([API])
    for token in (1, 2):
        with raises(LeaseLost):
            fence(world, JO, token)
    assert not world.push(JO).fenced
    with pytest.raises(LeaseLost):
        world.push(JO, require=[API])
