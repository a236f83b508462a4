"""The guard: what a change touches that another holds, and what is known of that without asking."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from kernel.rules.values import JO, KIM, SKEW, TTL, lease, moment
from support.memory import Broken, Fault, MemoryWatch
from support.session import MemoryWorld
from support.snapshots import check_words

from gitlease.guard.commits import merged
from gitlease.guard.notes import IdleMarker
from gitlease.guard.pushed_work import blocking
from gitlease.guard.reports import PushedCommit
from gitlease.guard.service import GuardedLayers, GuardService, MarkerRules, WatchFolder
from gitlease.kernel.ledger.ports import LedgerStore
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.lease import DEFAULT_POLICY, Actor, Lease, State
from gitlease.kernel.rules.lease_rows import LeaseRows
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.rules.viewpoint import Severity, Touched, Viewpoint
from gitlease.kernel.rules.work import Authorship, Named

LAPSED = TTL + SKEW + 1
JO_CI, JO_OTHER = replace(JO, session="ci"), replace(JO, session="other")
SRC = "src/auth/**"
KEY = parse_resource(SRC).key
LOGIN = Touched("src/auth/login.py")
HIT = "src/auth/login.py src/auth/**"


def severities(*leases: Lease, who: Actor = JO, seconds: float = 10, **more: object) -> list[str]:
    touched = [LOGIN, Touched("tasks/F001.md", tasks=frozenset({"f001"}))]
    found = Viewpoint(who, DEFAULT_POLICY, moment(seconds)).judge(touched, leases)
    return [f"{f.severity.value} {f.path} {f.lease.resource}" for f in found]


@pytest.mark.parametrize(
    ("held", "who", "seconds", "expected"),
    [
        (lease(holder=KIM, resource=SRC), JO, 10, [f"block {HIT}"]),
        (lease(holder=KIM), JO, 10, ["block tasks/F001.md F001"]),
        (lease(holder=KIM, paths=("src",)), JO, 10, ["block src/auth/login.py F001"]),
        (lease(holder=KIM, resource=SRC), JO, TTL + 1, [f"block {HIT}"]),
        (lease(holder=KIM, resource=SRC), JO, LAPSED, [f"warn {HIT}"]),
        (lease(holder=KIM, edge=True), JO, LAPSED, ["warn tasks/F001.md F001"]),
        (lease(resource=SRC), JO, 10, []),
        (lease(resource=SRC), JO, LAPSED, []),
        (lease(holder=JO_CI, resource=SRC), JO_CI, 10, []),
        (lease(holder=JO_CI, resource=SRC), JO, 10, [f"warn {HIT}"]),
        (lease(holder=JO_CI, resource=SRC), JO_OTHER, 10, [f"block {HIT}"]),
        (lease(holder=KIM, resource="f002"), JO, 10, []),
        (lease(holder=KIM, state=State.COMPLETED), JO, 10, []),
    ],
)
def test_what_is_touched_follows_the_table(
    held: Lease, who: Actor, seconds: float, expected: list[str]
) -> None:
    found = severities(held, who=who, seconds=seconds)
    if held.paths and expected:
        expected = [*expected, "block tasks/F001.md F001"]
    assert found == expected


def test_a_submodule_stands_for_all_that_is_in_it() -> None:
    """Whatever its name is, and be it one that no pattern has."""
    for held, name, folder, expected in (
        ("vendor/lib/src/*.c", "vendor/lib", False, 0),
        ("vendor/lib/src/*.c", "vendor/lib", True, 1),
        ("vendor/lib/src/*.c", "vendor/[lib", True, 0),
        ("vendor/*/src/*.c", "vendor/\nlib", True, 1),
        ("vendor/*/src/*.c", "vendor/" + "x" * 600, True, 1),
        ("vendor/*/src/*.c", "other/\nlib", True, 0),
    ):
        touched, leases = Touched(name, folder=folder), [lease(holder=KIM, resource=held)]
        found = Viewpoint(JO, DEFAULT_POLICY, moment(10)).judge([touched], leases)
        assert len(found) == expected, name


@pytest.mark.parametrize(
    ("work", "who", "stops"),
    [
        (Authorship((KIM.holder,)), JO, True),
        (Authorship(("lee@example.com", "KIM@example.com")), JO, True),
        (Authorship(("lee@example.com", JO.holder)), JO, False),
        (Authorship(("lee@example.com",), (Named(SRC, KEY, 1),)), JO, True),
        (Authorship(("lee@example.com",), (Named(SRC, KEY, 2),)), JO, False),
        (Authorship(("lee@example.com",), (Named("src/", "src", 1),)), JO, False),
        (Authorship((KIM.holder,)), replace(KIM, session="other"), False),
        (Authorship((KIM.holder,), (Named(SRC, KEY, 1),)), replace(KIM, session="other"), True),
    ],
)
def test_a_side_that_a_merge_gives_up_concerns_whoever_did_its_work(
    work: Authorship, who: Actor, stops: bool
) -> None:
    """Of the runs of one person only the trailer tells."""
    held = lease(holder=replace(KIM, session="ci"), resource=SRC)

    def judged(*touched: Touched) -> bool:
        found = Viewpoint(who, DEFAULT_POLICY, moment(10)).judge(touched, [held])
        if not found:
            return False
        carried = [PushedCommit("1" * 40, touched)]
        blocks = blocking(found[0], carried, "global", who)
        assert blocks is not None
        assert blocks.place == "src/auth/login.py (commit 1111111111)"
        other = PushedCommit("1" * 40, (replace(LOGIN, lost=(Authorship(("x@example.com",)),)),))
        assert blocking(found[0], [other], "global", who) is None
        return True

    lost = replace(LOGIN, lost=(work,))
    assert judged(lost) == stops
    assert judged(*merged([lost, replace(LOGIN, lost=(Authorship(("x@example.com",)),))])) == stops
    assert judged(*merged([lost, LOGIN]))
    assert judged(*merged([LOGIN, lost]))


# --- how fresh that is --------------------------------------------------------------------------


class World(MemoryWorld):
    """A remote, a clock, and Jo's clone with its hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.watch, self.opened = MemoryWatch(), 0

    def claims(self, who: Actor, name: str = SRC, *, layer: str = "global") -> None:
        self.of(who, layer=layer).claim([parse_resource(name)])

    def guard(
        self,
        who: Actor = JO,
        *,
        layers: tuple[str, ...] = ("global",),
        in_use: tuple[str, ...] = (),
        one_holder: bool = True,
    ) -> GuardService:
        def open_store() -> LedgerStore:
            self.opened += 1
            return self.store(who)

        return GuardService(
            cast(WatchFolder, self.watch),
            open_store,
            clock=self.clock,
            actor=who,
            layers=GuardedLayers(layers, in_use),
            max_age=60,
            marker=MarkerRules(one_holder=one_holder),
        )


@pytest.fixture
def world() -> World:
    return World()


def test_the_first_look_asks_and_the_next_ones_do_not(world: World) -> None:
    world.claims(KIM)
    found = world.guard().check([LOGIN])
    assert [f.severity for f in found.findings] == [Severity.BLOCK]
    assert found.views[found.findings[0].lease.lease_id].holder == KIM.holder
    world.opened = 0
    world.clock.advance(60)
    again = world.guard().check([LOGIN])
    assert (len(again.findings), world.opened) == (1, 0)
    world.clock.advance(0.001)
    world.guard().check([LOGIN])
    assert world.opened == 1


def test_where_there_is_no_ledger_nothing_is_held(world: World) -> None:
    found = world.guard().check([LOGIN])
    assert (found.findings, found.offline, found.warnings) == ((), "", ())
    assert world.watch.idle.clear_until == world.clock.now().wall_ms // 1_000 + 60


def test_offline_it_goes_by_what_it_knows_and_says_how_old_that_is(world: World) -> None:
    world.claims(KIM)
    world.guard().check([LOGIN])
    world.clock.advance(100)
    world.remote.fetches.append(Fault.UNREACHABLE)
    found = world.guard().check([LOGIN])
    assert len(found.findings) == 1
    check_words(found.offline)
    assert found.warnings == ()
    world.remote.fetches.append(Fault.UNREACHABLE)
    strict = world.guard().check([LOGIN], strict=True)
    assert len(strict.findings) == 1
    check_words(strict.offline)


def test_a_remote_that_did_not_answer_is_not_waited_for_again_at_once(world: World) -> None:
    """Not by the next layer, nor by the next hook; a push, which is strict, asks all the same."""
    world.remote.fetches += [Fault.UNREACHABLE] * 4
    for layers in (("global", "team"), ("global",)):
        assert world.guard(layers=layers).check([LOGIN]).offline
    assert len(world.remote.fetches) == 3
    assert world.guard().check([LOGIN], strict=True).offline
    assert len(world.remote.fetches) == 2
    world.clock.advance(61)
    assert world.guard().check([LOGIN]).offline
    assert len(world.remote.fetches) == 1


def test_what_ran_out_or_is_another_persons_now_is_told_once(world: World) -> None:
    world.claims(JO)
    assert world.guard().check([LOGIN]).warnings == ()
    now = world.clock.now().wall_ms // 1_000
    assert world.watch.idle.clear_until == now + 60
    world.clock.advance(TTL - 30)
    world.guard().check([LOGIN])
    assert world.watch.idle.clear_until == now + TTL  # a shim must not pass over its end
    world.clock.advance(31)
    (said,) = world.guard().check([LOGIN]).warnings
    check_words(said)
    assert said.endswith(f"gitlease claim '/{SRC}'")
    assert world.guard().check([LOGIN]).warnings == ()
    world.clock.advance(LAPSED)
    world.claims(KIM)
    world.clock.advance(61)
    (said,) = world.guard().check([LOGIN]).warnings
    check_words(said)
    assert world.guard().check([LOGIN]).warnings == ()


@pytest.mark.parametrize("by", ["takeover", "revoke"])
@pytest.mark.parametrize("layer", ["global", "team"])
def test_a_loss_is_told_by_the_ledger_where_that_was_not_fetched_since(
    world: World, by: str, layer: str
) -> None:
    """Time alone would say that it ran out, and how to claim what another took away."""
    kim = world.of(KIM, layer=layer)
    kim.set_policy({"admins": KIM.holder})
    world.claims(JO, layer=layer)
    world.guard(in_use=(layer,)).refresh()
    if by == "revoke":
        kim.revoke(parse_resource(SRC), reason="on leave")
        expected = f'your claim of {SRC} was revoked by {KIM.holder}: "on leave"'
        world.clock.advance(LAPSED)
    else:
        world.clock.advance(LAPSED)
        kim.claim([parse_resource(SRC)])
        expected = f"{KIM.holder} claimed {SRC}, after your lease lapsed"
    for said in ((expected,), ()):
        guard = world.guard(in_use=(layer,))
        guard.refresh()
        assert guard.lost() == said


def test_a_loss_that_the_remote_does_not_confirm_says_how_old_it_is(world: World) -> None:
    """It is asked once; what it has to say is told when it answers."""
    world.claims(JO)
    world.guard().refresh()
    world.clock.advance(LAPSED)
    world.claims(KIM)
    world.remote.fetches += [Fault.UNREACHABLE] * 2
    (guard := world.guard()).refresh()
    (said,) = guard.lost()
    check_words(said)
    (guard := world.guard()).refresh()
    assert guard.lost() == ()
    assert len(world.remote.fetches) == 1
    world.remote.fetches.clear()
    world.clock.advance(61)
    check_words(world.guard().check([]).warnings)


def test_a_ledger_that_cannot_be_read_is_said_and_what_was_known_holds(world: World) -> None:
    world.claims(KIM)
    world.guard().check([LOGIN])
    world.clock.advance(61)
    guard = world.guard()
    guard._store("global").fetch = lambda *_at: (_ for _ in ()).throw(Invalid("was rolled back"))  # type: ignore[method-assign]
    found = guard.check([LOGIN])
    assert [f.severity for f in found.findings] == [Severity.BLOCK]
    assert found.offline == ""
    check_words(found.warnings)


def test_a_record_that_cannot_be_read_is_said_at_every_look(world: World) -> None:
    world.claims(KIM, "F001")
    world.claims(KIM, "docs/")
    world.remote.damage("paths/aa/x.yaml", Broken("no holder", paths=True))
    for _ in range(2):
        (said,) = world.guard().check([LOGIN]).warnings
        check_words(said)


def test_a_task_is_looked_up_where_too_many_names_are_held_to_keep_them(world: World) -> None:
    world.claims(KIM, "F001")
    world.guard().check([])
    kept = world.watch.kept["global"]
    world.watch.kept["global"] = replace(kept, leases=LeaseRows((), {JO.holder}))
    task = Touched("tasks/F001.md", frozenset({"f001"}))
    assert [x.severity for x in world.guard().check([task]).findings] == [Severity.BLOCK]
    assert world.guard().others_hold()
    assert not world.guard().check([LOGIN]).findings


def test_the_gate_is_clear_only_while_nobody_else_holds_anything(world: World) -> None:
    now = world.clock.now().wall_ms // 1_000
    world.claims(JO, "F001")
    world.guard().check([])
    assert world.watch.idle == IdleMarker(now + 60, now + 300, now + 900)
    world.claims(KIM, "F002")
    world.clock.advance(61)
    world.guard().check([])
    assert world.watch.idle.clear_until == 0


def test_where_others_may_pass_there_is_no_gate(world: World) -> None:
    world.claims(JO, "F001")
    world.guard(one_holder=False).check([])
    assert world.watch.idle == IdleMarker()
