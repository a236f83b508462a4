"""The invariants of the protocol over random lives: races, faults, wrong clocks, killed commands.

Every run is repeatable from its seed. ``pytest -m slow`` spends a larger budget of seeds, and
``run.py`` as many as are wanted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from ledger_checker import beliefs
from ledger_checker.beliefs import Checker
from ledger_checker.moves import Broken
from simulation import run
from simulation.lives import life
from simulation.server import Server
from simulation.weather import Weather
from simulation.world import World
from support.memory import MemoryRemote

from gitlease.core import (
    MOVES,
    Actor,
    Bind,
    EndSession,
    Fate,
    Header,
    Invalid,
    Lease,
    Ledger,
    Moment,
    Outcome,
    Policy,
    RunOut,
    Standing,
    State,
    Unbind,
    abandoned_at,
    replace,
)
from gitlease.core import lease as lease_rules
from gitlease.core.moves import claiming, holding
from gitlease.engine import Swapped
from gitlease.store import Move, RefLedgerStore

FAIR = Weather(faults=0.1, kills=0.0, disturbed=0.0)
FOUL = Weather(faults=0.4, kills=0.1, disturbed=0.1, lagging=0.1, rollbacks=0.003)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("observed", [False, True], ids=["wall", "observed"])
def test_the_invariants_hold_in_a_faulty_world(seed: int, observed: bool) -> None:
    world = life(seed, observed=observed, weather=FOUL, steps=120)
    assert world.done > 240
    assert world.checker.held > 0


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(6))
def test_the_invariants_hold_where_most_requests_fail(seed: int) -> None:
    life(seed, weather=Weather(faults=0.8), steps=120)


def test_two_commands_of_one_clone_do_not_take_two_pasts_for_the_newest() -> None:
    """One learnt a ledger that had been rolled back while the other's fetch was under way."""
    life(38, weather=replace(FOUL, rollbacks=0.01), steps=150)


def test_a_life_is_repeatable() -> None:
    one, again = (life(42, weather=FOUL, steps=60) for _ in range(2))
    assert one.true == again.true
    assert one.remote.requests == again.remote.requests
    assert one.outcomes == again.outcomes
    assert [*one.remote.steps.values()] == [*again.remote.steps.values()]


@pytest.mark.slow
def test_a_world_has_something_of_everything() -> None:
    faults, outcomes, ties = Counter[str](), set[str](), Counter[str]()
    for seed in range(8):
        world = life(seed, weather=FOUL)
        faults += world.faults
        ties += world.checker.ties.counted
        outcomes |= set(world.outcomes.values())
    assert outcomes >= {"ok", "held", "lost", "not_holder", "rollback", "killed", "policy"}
    assert outcomes >= {"unknown_outcome", "unavailable", "denied", "wait_timeout"}
    assert faults.keys() >= {
        *(f"killed {when} a {what}" for when in ("before", "after") for what in ("push", "fetch")),
        *(f"killed {when} known is written" for when in ("before", "after")),
        *(f"killed {when} a change is noted" for when in ("before", "after")),
        *(f"killed {when} a note is removed" for when in ("before", "after")),
        *(f"push {kind}" for kind in ("lost", "unanswered", "late", "refused", "busy")),
        *(f"reboot, {kind}" for kind in ("lost write", "torn write", "nothing lost")),
        *("clock set", "suspended machine", "lagging replica", "rollback", "fetch unreachable"),
        "killed run",
    }
    assert ties.keys() == {
        *("bound", "unbound", "renewed along"),
        *("edge kept by a session end", "abandoned edge claimed"),
    }
    assert min(ties.values()) >= 10


# --- that each rule can be broken, and is noticed -------------------------------------------------


def broken(weather: Weather = FAIR, first: int = 0, **given: Any) -> str:
    """The first rule that lives break; ``first`` is the seed of the first of thirty."""
    for seed in range(first, first + 30):
        try:
            life(seed, weather=weather, steps=100, **given)
        except Broken as found:
            return found.rule
    return "none"


def test_a_move_that_looks_at_no_expectation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def force(self: MemoryRemote, moves: Sequence[Move]) -> bool:
        self.refs |= {move.layer: move.new for move in moves}
        return True

    monkeypatch.setattr(MemoryRemote, "_move", force)
    assert broken() == "S1"


def test_an_allowance_that_is_too_small_is_noticed() -> None:
    assert broken(observed=False, skew="0s") == "S2"


def test_a_lapse_that_is_judged_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_rules, "standing", lambda *_: Standing.LAPSED)
    assert broken() == "S2"


@pytest.mark.slow
def test_two_who_believe_in_one_lease_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checker, "_check_displaced", lambda *_: None)
    assert broken(observed=False, skew="0s") == "S3"


def test_a_token_given_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "count_token", lambda header: header)
    assert broken() == "S4"


def test_work_with_an_old_token_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    grant = claiming.new_lease

    def with_the_first_token(*given: Any, **named: Any) -> tuple[Ledger, Lease]:
        ledger, lease = grant(*given, **named)
        return ledger, replace(lease, token=1)

    monkeypatch.setattr(claiming, "new_lease", with_the_first_token)
    monkeypatch.setattr(beliefs, "check_tokens", lambda *_: None)
    assert broken(first=1) == "S5"  # that of the seed 0 confuses edges first


def test_an_operation_applied_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Header, "entry", lambda *_: None)
    assert broken() == "S6"


def test_a_success_that_never_happened_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    push = Server.push

    def says_done(self: Server, *given: Any) -> Swapped:
        push(self, *given)
        return Swapped(fate=Fate.APPLIED)

    monkeypatch.setattr(Server, "push", says_done)
    assert broken() == "S6"


def test_a_renewal_of_anothers_lease_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def also_anothers(lease: Lease, actor: Actor) -> bool:
        return not lease.same_holder(actor) or lease.session in (None, actor.session)

    monkeypatch.setattr(Lease, "answers_to", also_anothers)
    assert broken() == "S7"


def test_a_bound_lease_that_another_run_believes_in_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Lease, "answers_to", Lease.same_holder)
    assert broken() == "S3"


def test_a_run_that_binds_what_is_anothers_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bind_anything(ledger: Ledger, op: Bind, moment: Moment) -> tuple[Ledger, Outcome]:
        state, bound = ledger, list[Lease]()
        for lease in (x for r in op.resources for x in ledger.leases_of(r)):
            if lease.same_holder(op.actor) and lease.state is State.ACTIVE:
                bound.append(replace(lease, session=op.actor.session, operation=op.id))
                state = state.put(bound[-1])
        at, by = moment.now.wall_ms, op.actor.holder
        said = tuple(claiming.event("bound", op.id, at, by, x) for x in bound)
        return state, Outcome(
            operation=op.id, status="bound", leases=tuple(bound), events=said, changed=bool(bound)
        )

    monkeypatch.setitem(cast(Any, MOVES), Bind, bind_anything)
    assert broken() == "S7"


def test_an_unbinding_that_gives_nothing_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def does_nothing(ledger: Ledger, op: Unbind, _: Moment) -> tuple[Ledger, Outcome]:
        return ledger, Outcome(operation=op.id, status="unbound", changed=False)

    monkeypatch.setitem(cast(Any, MOVES), Unbind, does_nothing)
    assert broken() == "S6"


def test_an_unbinding_that_releases_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def releases(ledger: Ledger, op: Unbind, moment: Moment) -> tuple[Ledger, Outcome]:
        end = EndSession(id=op.id, actor=op.actor, grants=op.grants)
        return holding.end_session(ledger, end, moment)

    monkeypatch.setitem(cast(Any, MOVES), Unbind, releases)
    assert broken() == "S7"


@pytest.mark.slow
def test_a_session_whose_end_gives_up_its_edges_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def releases(ledger: Ledger, op: RunOut, moment: Moment) -> tuple[Ledger, Outcome]:
        end = EndSession(id=op.id, actor=op.actor, grants=op.grants)
        return holding.end_session(ledger, end, moment)

    monkeypatch.setitem(cast(Any, MOVES), RunOut, releases)
    assert broken() == "edge"


@pytest.mark.slow
def test_a_session_whose_end_leaves_its_leases_live_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    last = holding._last

    def lives_on(lease: Lease, *given: Any) -> tuple[str, Lease]:
        how, ended = last(lease, *given)
        return how, replace(ended, expires_at=lease.expires_at + 1_000)

    monkeypatch.setattr(holding, "_last", lives_on)
    assert broken() == "edge"


@pytest.mark.slow
@pytest.mark.parametrize("observed", [False, True], ids=["wall", "observed"])
def test_an_edge_that_is_called_abandoned_too_early_is_noticed(
    observed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_early(lease: Lease, policy: Policy) -> int | None:
        return abandoned_at(lease, replace(policy, abandoned_after=policy.abandoned_after // 2))

    monkeypatch.setattr(lease_rules, "abandoned_at", too_early)
    assert broken(observed=observed) == "edge"


def test_a_change_that_is_pending_for_ever_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = RefLedgerStore.settle

    def forgets_to_settle(self: RefLedgerStore, pending: Any, head: Any) -> Any:
        fate = settle(self, pending, head)
        self.state(pending.layer).add_pending(pending, abandoned=True)
        return fate

    monkeypatch.setattr(RefLedgerStore, "settle", forgets_to_settle)
    assert broken(Weather(kills=0.2, disturbed=0.0)) == "L3"


def test_a_kill_that_needs_repair_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: Any) -> Any:
        raise Invalid("a lock was left behind")

    monkeypatch.setattr(RefLedgerStore, "settle", cannot)
    assert broken(Weather(kills=0.2, disturbed=0.0)) == "S8"


def test_an_older_head_taken_for_the_newest_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RefLedgerStore, "_check", lambda *_: None)
    assert broken(Weather(rollbacks=0.02, disturbed=0.0)) == "rollback"


# --- the command ----------------------------------------------------------------------------------


def test_a_run_goes_on_where_its_journal_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played: list[int] = []

    def short(seed: int) -> run.Entry:
        played.append(seed)
        return play(seed, steps=3)

    play, journal = run.play, tmp_path / "journal"
    monkeypatch.setattr(run, "play", short)
    assert run.main(["--seeds", "0-1", "--journal", str(journal)]) == 0
    with journal.open("a") as opened:
        opened.write('{"seed": 2, "oper')  # killed while it wrote
    capsys.readouterr()
    assert run.main(["--seeds", "0-2", "--journal", str(journal)]) == 0
    assert played == [0, 1, 2]
    assert json.loads(capsys.readouterr().out)["seeds"] == 3


@pytest.mark.slow
def test_a_run_stops_at_the_first_violation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(self: World) -> None:
        raise Broken("S3: two believe")

    monkeypatch.setattr(World, "settle", fails)
    journal = tmp_path / "journal"
    assert run.main(["--seeds", "7-9", "--journal", str(journal)]) == 1
    assert capsys.readouterr().err == "seed 7: S3: two believe\n"
    assert [entry["rule"] for entry in run.read_journal(journal)] == ["S3"]


@pytest.mark.parametrize("words", ["--seeds=4-2", "--seeds=x", "--seeds=1 --jobs=0"])
def test_a_run_refuses_what_it_cannot_do(words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(words.split())
    assert ended.value.code == 2


@pytest.mark.slow
@pytest.mark.parametrize("operations", [10_000, pytest.param(50_000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1, 6))]
)
def test_the_invariants_hold_for_long(part: int, operations: int) -> None:
    entries, seed = list[run.Entry](), 100_000 * (part + 1)
    while sum(entry["operations"] for entry in entries) < operations:
        entries.append(run.play(seed))
        assert "rule" not in entries[-1], entries[-1]
        seed += 1
