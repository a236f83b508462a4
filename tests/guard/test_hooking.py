"""What git's hooks decide: every mode, online and not, and the claims that a commit implies."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from kernel.rules.values import JO, KIM, SKEW, TTL
from support.memory import Fault, MemoryWatch
from support.session import MemoryWorld
from support.snapshots import check_words
from support.tasks import MemoryTasks, task

from gitlease.guard.history import TooMuch
from gitlease.guard.hooks import Hooks, HookWorktree
from gitlease.guard.reports import PushedCommit, PushedWork, StagedChange, Started
from gitlease.guard.service import GuardedLayers, GuardService, WatchFolder
from gitlease.guard.whose import Makers
from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.ports import LedgerStore
from gitlease.kernel.rules.edge import Addresses, Task
from gitlease.kernel.rules.errors import LeaseHeld
from gitlease.kernel.rules.lease import Actor, State
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.rules.viewpoint import Severity, Touched
from gitlease.kernel.rules.work import read_trailer

LAPSED = TTL + SKEW + 1
SRC = "src/auth/**"
LOGIN = Touched("src/auth/login.py")
F001_FILE = Touched("tasks/F001.md", tasks=frozenset({"f001"}))
MODES = ("block", "warn", "off")


@dataclass
class FakeWorktree:
    """A work tree with one staged change, and pushes that are under way."""

    change: StagedChange = field(default_factory=StagedChange)
    push: PushedWork = field(default_factory=PushedWork)
    large: str = ""
    carries: tuple[PushedCommit, ...] | None = None
    asked: list[object] = field(default_factory=list)
    named: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    stale: list[tuple[str, ...]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def staged(self, *, amended: bool | None = False) -> StagedChange:
        self.asked.append(amended)
        return self.change

    def pushed(self, lines: Sequence[str], remote: str) -> PushedWork:
        self.asked.append((tuple(lines), remote))
        if self.large:
            raise TooMuch(self.large)
        return self.push

    def carried(self, lines: Sequence[str], remote: str) -> Sequence[PushedCommit]:
        if self.carries is None:  # one commit of nobody in particular
            return [PushedCommit("1" * 40, self.push.touched)]
        return self.carries

    def makers(self, emails: Iterable[str]) -> Makers:
        return Makers.of(Addresses(), ["Bot@ci.example"])

    def set_trailers(
        self, message_file: str, trailers: Sequence[str], *, stale: Sequence[str] = ()
    ) -> None:
        if trailers:
            self.named.append((message_file, tuple(trailers)))
        if stale:
            self.stale.append(tuple(stale))

    def empty_if_bare(self, message_file: str) -> None:
        self.ended.append(message_file)


class World(MemoryWorld):
    """A remote, a clock, and Jo's clone, which has task files; Kim has another one."""

    def __init__(self) -> None:
        super().__init__()
        self.watch, self.tree = MemoryWatch(), FakeWorktree()
        self.opened = self.served = 0
        self.has(task("F001"), task("F002"))

    def has(self, *tasks: Task) -> None:
        self.files[JO.holder] = MemoryTasks.of(*tasks)

    def claims(self, who: Actor, *names: str, layer: str = "global") -> None:
        resources = [parse_resource(name) for name in names]
        self.of(who, layer=layer).claim(resources, ClaimOptions(any_name=True))

    def hooks(
        self,
        mode: str = "block",
        offline: str = "warn",
        *,
        who: Actor = JO,
        layers: tuple[str, ...] = ("global",),
    ) -> Hooks:
        def open_store() -> LedgerStore:
            self.opened += 1
            return self.store(who)

        def open_session() -> LedgerSession:
            self.served += 1
            return self.of(who, patience=5.0).session

        guard = GuardService(
            cast(WatchFolder, self.watch),
            open_store,
            clock=self.clock,
            actor=who,
            layers=GuardedLayers(layers),
            max_age=60,
        )
        tree = cast("HookWorktree", self.tree)
        return Hooks(tree, guard, open_session, mode=mode, offline=offline)

    def stage(
        self, *touched: Touched, started: Sequence[Started] = (), problems: Sequence[str] = ()
    ) -> None:
        self.tree.change = StagedChange(touched, tuple(started), tuple(problems))

    def cut_off(self, seconds: int = 61) -> None:
        """What is known is too old from now on, and the remote does not answer."""
        self.clock.advance(seconds)
        self.remote.fetches += [Fault.UNREACHABLE] * 8

    def live(self) -> list[str]:
        """The active leases on the remote."""
        return [f"{x.resource} {x.holder}" for x in self.leases() if x.state is State.ACTIVE]


@pytest.fixture
def world() -> World:
    return World()


def held_by_kim(world: World, found: str) -> None:
    """Kim's lease, live or lapsed for long, or none."""
    if found != "nothing":
        world.claims(KIM, SRC)
    if found == "lapsed":
        world.clock.advance(LAPSED)


# --- every mode, online and not, whatever is found ------------------------------------------------

SETTINGS = list(itertools.product(MODES, MODES))


@pytest.mark.parametrize("reached", ["fresh", "old", "blind"])
@pytest.mark.parametrize("found", ["nothing", "live", "lapsed"])
def test_a_commit_is_stopped_only_where_the_settings_say_so(reached: str, found: str) -> None:
    for mode, offline in SETTINGS:
        world = World()
        held_by_kim(world, found)
        world.stage(LOGIN)
        if reached == "old":
            world.hooks().pre_commit()
        if reached != "fresh":
            world.cut_off()
        decision = world.hooks(mode, offline).pre_commit()
        if mode == "off":
            assert (decision.blocked, decision.report.findings) == (False, ())
            continue
        seen = found if reached != "blind" else "nothing"
        severities = [f.severity for f in decision.report.findings]
        cut_off = reached != "fresh"
        live = Severity.WARN if cut_off and offline != "block" else Severity.BLOCK
        expected = {"nothing": [], "live": [live], "lapsed": [Severity.WARN]}
        assert severities == expected[seen]
        stops = Severity.BLOCK in severities or (cut_off and offline == "block")
        assert decision.blocked == (mode == "block" and stops)
        assert len(decision.warnings) == (1 if cut_off and offline != "off" else 0)


@pytest.mark.parametrize("reached", ["fresh", "old", "blind"])
@pytest.mark.parametrize("found", ["nothing", "live", "lapsed"])
def test_a_push_is_stopped_offline_unless_the_settings_let_it_go(reached: str, found: str) -> None:
    for mode, offline in SETTINGS:
        world = World()
        held_by_kim(world, found)
        world.tree.push = PushedWork((LOGIN,))
        if reached == "old":
            world.hooks().pre_push((), "origin")
        if reached != "fresh":
            world.cut_off()
        decision = world.hooks(mode, offline).pre_push((), "origin")
        live = found == "live" and reached != "blind"
        cut_off = reached != "fresh"
        stops = live or (cut_off and offline != "off")
        assert decision.blocked == (mode == "block" and stops)
        assert len(decision.warnings) == (1 if cut_off and mode != "off" else 0)


@pytest.mark.parametrize("offline", ["warn", "off"])
def test_without_the_remote_young_knowledge_of_one_layer_still_stops_a_commit(
    world: World, offline: str
) -> None:
    world.claims(KIM, "src/", layer="team")
    world.stage(LOGIN)
    world.hooks(layers=("team",)).pre_commit()
    world.clock.advance(30)
    world.claims(KIM, SRC)
    world.hooks().pre_commit()
    world.cut_off(31)
    hooks = world.hooks(offline=offline, layers=("team", "global"))
    decision = hooks.pre_commit()
    found = [(f.severity, str(f.lease.resource)) for f in decision.report.findings]
    assert found == [(Severity.BLOCK, SRC), (Severity.WARN, "path:src")]
    assert decision.blocked
    world.clock.advance(30)
    assert not world.hooks(offline=offline, layers=("team", "global")).pre_commit().blocked


def test_ones_own_runs_stop_a_run_and_only_warn_the_person(world: World) -> None:
    world.claims(replace(JO, session="ci"), "F001")
    world.stage(F001_FILE, started=[starting(after=[JO.holder])])
    decision = world.hooks().pre_commit()
    assert (decision.blocked, decision.refused, decision.claimed) == (False, None, ())
    assert world.hooks(who=replace(JO, session="agent")).pre_commit().blocked


# --- claims that a commit implies -----------------------------------------------------------------


def starting(name: str = "F001", before: Sequence[str] = (), after: Sequence[str] = ()) -> Started:
    return Started(parse_resource(name), tuple(before), tuple(after))


def test_a_task_that_is_started_is_claimed_and_only_once(world: World) -> None:
    world.stage(F001_FILE, started=[starting()])
    decision = world.hooks().pre_commit()
    assert not decision.blocked
    assert [x.resource for x in decision.claimed] == ["F001"]
    assert decision.written == ("tasks/F001.md",)
    assert world.live() == [f"F001 {JO.holder}"]
    assert world.files[JO.holder]["F001"].assigned == (JO.holder,)
    assert world.files[JO.holder].commits == []
    token = decision.claimed[0].token
    again = world.hooks().pre_commit()
    assert (again.blocked, again.claimed, again.written) == (False, (), ())
    assert [(x.token, x.renewals) for x in world.leases()] == [(token, 1)]


@pytest.mark.parametrize("held", [True, False], ids=["held", "assigned"])
@pytest.mark.parametrize(("mode", "blocked"), [("block", True), ("warn", False)])
def test_a_task_of_somebody_else_is_refused(
    world: World, mode: str, blocked: bool, held: bool
) -> None:
    world.stage(LOGIN)
    world.hooks().pre_commit()  # Kim claims after that
    if held:
        world.claims(KIM, "F001")
        world.stage(F001_FILE, started=[starting()])
    else:
        world.has(task("F001", KIM.holder))
        world.stage(F001_FILE, started=[starting(before=[KIM.holder], after=[KIM.holder])])
    decision = world.hooks(mode).pre_commit()
    assert (decision.blocked, decision.claimed) == (blocked, ())
    assert isinstance(decision.refused, LeaseHeld)
    assert decision.refused.resource == "F001"
    assert world.live() == ([f"F001 {KIM.holder}"] if held else [])


def test_a_task_that_is_handed_on_is_left_out(world: World) -> None:
    """It is its assignee's to claim; who is one beside others claims."""
    both = [KIM.holder, JO.holder]
    world.has(task("F001", KIM.holder), task("F002", *both))
    handed, shared = starting("F001", after=[KIM.holder]), starting("F002", after=both)
    for started, claimed in (([handed], []), ([handed, shared], ["F002"])):
        world.stage(F001_FILE, started=started)
        decision = world.hooks().pre_commit()
        assert (decision.blocked, decision.refused) == (False, None)
        assert [x.resource for x in decision.claimed] == claimed
    assert world.live() == [f"F002 {JO.holder}"]


def test_a_commit_that_is_stopped_claims_nothing(world: World) -> None:
    world.claims(KIM, SRC)
    world.stage(LOGIN, F001_FILE, started=[starting()])
    assert world.hooks().pre_commit().blocked
    assert world.served == 0
    assert world.live() == [f"{SRC} {KIM.holder}"]
    world.tree.asked.clear()
    world.hooks("off").pre_commit()
    world.hooks("off").pre_push(("a b c d",), "origin")
    assert (world.tree.asked, world.served) == ([], 0), "nobody is asked for anything"
    decision = world.hooks("warn").pre_commit()
    assert (decision.blocked, [x.resource for x in decision.claimed]) == (False, ["F001"])


def test_offline_nothing_is_claimed_and_that_is_said(world: World) -> None:
    world.stage(F001_FILE, started=[starting(), starting("F002")])
    world.cut_off()
    decision = world.hooks().pre_commit()
    assert (decision.blocked, decision.claimed) == (False, ())
    check_words(decision.warnings[1:])
    assert world.served == 0


def test_a_claim_that_fails_stops_nothing_and_says_why(world: World) -> None:
    world.stage(LOGIN)
    world.hooks().pre_commit()
    world.remote.pushes += [Fault.REFUSED] * 8
    world.remote.fetches += [Fault.UNREACHABLE] * 8
    world.stage(F001_FILE, started=[starting()])
    decision = world.hooks().pre_commit()
    assert (decision.blocked, decision.claimed) == (False, ())
    assert [text for text in decision.warnings if text.startswith("not claimed: ")]
    assert world.files[JO.holder]["F001"].assigned == ()


# --- messages -------------------------------------------------------------------------------------


def test_a_message_names_each_lease_that_the_commit_falls_under(world: World) -> None:
    world.claims(JO, SRC, layer="team")
    world.claims(JO, "F001", "docs/")
    world.claims(replace(JO, session="ci"), "lib/")
    layers = ("global", "team")
    world.stage(LOGIN)
    world.hooks(layers=layers).pre_commit()
    world.stage(LOGIN, Touched("src/auth/logout.py"), Touched("lib/x"), F001_FILE)
    world.tree.asked.clear()
    world.remote.fetches += [Fault.UNREACHABLE]  # whoever asked would stumble
    world.clock.advance(100)
    named = world.hooks("off", layers=layers).name_leases("MSG", amended=True)
    assert [text.partition(" token=")[0] for text in named] == ["F001", SRC]
    assert named[1].endswith(" layer=team")
    assert world.tree.named == [("MSG", named)]
    assert world.tree.asked == [True], "whether a commit is replaced is passed on"
    assert list(world.remote.fetches) == [Fault.UNREACHABLE]
    world.clock.advance(TTL)
    assert world.hooks(layers=layers).name_leases("MSG") == ()
    world.hooks().end_message("MSG")
    assert world.tree.ended == ["MSG"]


def test_a_message_is_not_touched_where_nothing_of_ones_own_is(world: World) -> None:
    world.stage(LOGIN)
    assert world.hooks().name_leases("MSG") == ()
    assert world.tree.asked == []  # nothing held: git is not even asked what is staged


# --- pushes of work that is not one's own ---------------------------------------------------------


@pytest.mark.parametrize("unknown", [True, False], ids=["not here", "too much"])
def test_work_that_cannot_be_judged_is_not_pushed_while_others_hold_anything(
    world: World, unknown: bool
) -> None:
    world.tree.push = PushedWork(unknown=("main",)) if unknown else PushedWork()
    world.tree.large = "" if unknown else "this is too much"
    world.claims(JO, "src/auth/")
    assert world.hooks().pre_push((), "origin").refused is None, "nobody else does"
    world.claims(KIM, "docs/")
    decision = world.hooks().pre_push((), "origin")
    assert decision.blocked
    assert decision.refused is not None
    check_words(decision.refused.message)
    assert (decision.refused.hints == ("git fetch origin",)) is unknown
    assert not world.hooks("warn").pre_push((), "origin").blocked


@pytest.mark.parametrize(
    ("named", "author", "stops"),
    [
        ("src/auth token=1", KIM.holder, False),
        ("src/auth token=1", "bot@ci.example", False),
        ("src/auth token=1", "lee@example.com", True),
        ("src/auth token=2", KIM.holder, True),
    ],
)
def test_what_was_made_under_the_lease_is_landed_by_anybody(
    world: World, named: str, author: str, stops: bool
) -> None:
    world.claims(KIM, "src/auth/")
    world.tree.push = PushedWork((LOGIN,))
    trailer_of = read_trailer(named)
    assert trailer_of is not None
    by = {"emails": (author,), "author": author}
    world.tree.carries = (PushedCommit("1" * 40, (LOGIN,), (trailer_of,), **by),)  # type: ignore[arg-type]
    assert world.hooks().pre_push((), "origin").blocked == stops
    early = replace(world.tree.carries[0], recorded=1)
    world.tree.carries += (PushedCommit("1" * 40, (LOGIN,), emails=(author,)),)
    assert world.hooks().pre_push((), "origin").blocked, "one of them is not"
    world.tree.carries = (early,)
    assert world.hooks().pre_push((), "origin").blocked, "it is from before the lease"
    world.tree.carries = ()
    assert not world.hooks().pre_push((), "origin").blocked, "all of it is there already"
    world.tree.push = PushedWork((LOGIN,), (LOGIN,))
    assert world.hooks().pre_push((), "origin").blocked, "what is taken away is nobody's own"


@pytest.mark.parametrize(
    ("named", "stops"),
    [
        ("src/auth token=1", False),
        ("src/auth token=2", True),
        ("src/** token=1", True),
        ("src/auth token=1 layer=team", True),
    ],
)
def test_of_the_runs_of_one_person_the_message_tells_whose_commit_it_is(
    world: World, named: str, stops: bool
) -> None:
    one, other = (replace(JO, session=name) for name in ("one", "other"))
    world.claims(one, "src/auth/")
    world.tree.push = PushedWork((LOGIN,))
    trailer_of = read_trailer(named)
    assert trailer_of is not None
    world.tree.carries = (PushedCommit("1" * 40, (LOGIN,), (trailer_of,)),)
    assert world.hooks(who=other).pre_push((), "origin").blocked == stops


def test_what_a_session_holds_is_open_to_those_that_it_started(world: World) -> None:
    parent = replace(JO, session="claude:1")
    child, odd = replace(JO, session="claude:1/7"), replace(JO, session="claude:17")
    world.claims(parent, "src/auth/")
    world.claims(child, "lib/")
    world.stage(LOGIN, Touched("lib/x"))
    assert not world.hooks(who=child).pre_commit().blocked
    assert world.hooks(who=parent).pre_commit().blocked
    assert world.hooks(who=odd).pre_commit().blocked
    assert world.hooks(who=child).name_leases("MSG") == ("path:lib token=2", "src/auth token=1")


@pytest.mark.default
def test_remote_that_hangs_is_waited_for_once_by_a_commit_that_claims(world: World) -> None:
    """A claim makes several contacts, and each would wait for ``guard.timeout``."""
    # What is known is fresh then, so the guard itself asks nobody, and a claim pushes at once.
    world.stage(F001_FILE, started=[starting("F002")])
    assert world.hooks().pre_commit().claimed
    world.remote.pushes += [Fault.UNREACHABLE] * 8
    world.remote.fetches += [Fault.UNREACHABLE] * 8
    world.stage(F001_FILE, started=[starting()])
    decision = world.hooks().pre_commit()
    assert [text for text in decision.warnings if text.startswith("not claimed: ")]
    assert (len(world.remote.pushes), len(world.remote.fetches)) == (8, 7)
