"""The invariants of the protocol over random lives: races, faults, wrong clocks, killed commands.

Every run is repeatable from its seed. ``pytest -m slow`` spends a larger budget of seeds, and
``run.py`` as many as are wanted.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from ledger_checker import beliefs
from ledger_checker.beliefs import Checker
from ledger_checker.moves import Broken
from simulation.lives import life
from simulation.weather import Weather
from support.memory import MemoryRemote

from gitlease.kernel.ledger import transaction
from gitlease.kernel.rules import lease as lease_rules
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import Actor, Lease, Policy, abandoned_at
from gitlease.kernel.rules.ledger import Header, Ledger
from gitlease.kernel.rules.moves import claiming
from gitlease.kernel.store.git_ledger import RefLedgerStore
from gitlease.kernel.store.storage import Move

pytestmark = pytest.mark.slow

FAIR = Weather(faults=0.1, kills=0.0, disturbed=0.0)
FOUL = Weather(faults=0.4, kills=0.1, disturbed=0.1, lagging=0.1, rollbacks=0.003)


@pytest.mark.default("wall-0")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("observed", [False, True], ids=["wall", "observed"])
def test_the_invariants_hold_in_a_faulty_world(seed: int, observed: bool) -> None:
    world = life(seed, observed=observed, weather=FOUL, steps=120)
    assert world.done > 240
    assert world.checker.held > 0


@pytest.mark.parametrize("seed", range(6))
def test_the_invariants_hold_where_most_requests_fail(seed: int) -> None:
    life(seed, weather=Weather(faults=0.8), steps=120)


@pytest.mark.parametrize("share", [1.0, 0.5], ids=["always", "often"])
def test_the_invariants_hold_where_steps_read_first(share: float, monkeypatch: Patch) -> None:
    dice = random.Random(7)
    monkeypatch.setattr(transaction, "reads_first", lambda *_: dice.random() < share)
    life(5, weather=FOUL, steps=120)


def test_two_commands_of_one_clone_do_not_take_two_pasts_for_the_newest() -> None:
    """One learnt a ledger that had been rolled back while the other's fetch was under way."""
    life(38, weather=replace(FOUL, rollbacks=0.01), steps=150)


def test_a_life_is_repeatable() -> None:
    one, again = (life(42, weather=FOUL, steps=30) for _ in range(2))
    assert one.true == again.true
    assert one.remote.requests == again.remote.requests
    assert one.outcomes == again.outcomes
    assert [*one.remote.steps.values()] == [*again.remote.steps.values()]


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
    assert min(ties.values()) >= 5


# --- that each rule can be broken, and is noticed -------------------------------------------------

Patch = pytest.MonkeyPatch


def look_at_no_expectation(patch: Patch) -> None:
    def force(self: MemoryRemote, moves: Sequence[Move]) -> bool:
        self.refs |= {move.layer: move.new for move in moves}
        return True

    patch.setattr(MemoryRemote, "_move", force)


def look_at_no_displaced_holder(patch: Patch) -> None:
    patch.setattr(Checker, "_check_displaced", lambda *_: None)


def keep_the_token(patch: Patch) -> None:
    patch.setattr(claiming, "count_token", lambda header: header)


def give_the_first_token_again(patch: Patch) -> None:
    grant = claiming.new_lease

    def with_the_first_token(*given: Any, **named: Any) -> tuple[Ledger, Lease]:
        ledger, lease = grant(*given, **named)
        return ledger, replace(lease, token=1)

    patch.setattr(claiming, "new_lease", with_the_first_token)
    patch.setattr(beliefs, "check_tokens", lambda *_: None)


def apply_operations_twice(patch: Patch) -> None:
    patch.setattr(Header, "entry", lambda *_: None)


def renew_anothers_lease(patch: Patch) -> None:
    def also_anothers(lease: Lease, actor: Actor) -> bool:
        return not lease.same_holder(actor) or lease.session in (None, actor.session)

    patch.setattr(Lease, "answers_to", also_anothers)


def call_edges_abandoned_too_early(patch: Patch) -> None:
    def too_early(lease: Lease, policy: Policy) -> int | None:
        return abandoned_at(lease, replace(policy, abandoned_after=policy.abandoned_after // 2))

    patch.setattr(lease_rules, "abandoned_at", too_early)


def settle_and_forget_it(patch: Patch) -> None:
    settle = RefLedgerStore.settle

    def forgets(self: RefLedgerStore, pending: Any, head: Any) -> Any:
        fate = settle(self, pending, head)
        self.state(pending.layer).add_pending(pending, abandoned=True)
        return fate

    patch.setattr(RefLedgerStore, "settle", forgets)


def need_repair_after_a_kill(patch: Patch) -> None:
    def cannot(*_: Any) -> Any:
        raise Invalid("a lock was left behind")

    patch.setattr(RefLedgerStore, "settle", cannot)


def take_any_head_for_the_newest(patch: Patch) -> None:
    patch.setattr(RefLedgerStore, "_check", lambda *_: None)


NO_SKEW: dict[str, Any] = {"observed": False, "skew": "0s"}
KILLS = {"weather": Weather(kills=0.2, disturbed=0.0)}
BACK = {"weather": Weather(rollbacks=0.02, disturbed=0.0)}
OFF: dict[Callable[[Patch], None], tuple[str, dict[str, Any]]] = {
    look_at_no_expectation: ("S1", {}),
    look_at_no_displaced_holder: ("S3", NO_SKEW),
    keep_the_token: ("S4", {}),
    give_the_first_token_again: ("S5", {"first": 2}),  # those before confuse edges first
    apply_operations_twice: ("S6", {}),
    renew_anothers_lease: ("S7", {}),
    need_repair_after_a_kill: ("S8", KILLS),
    settle_and_forget_it: ("L3", KILLS),
    take_any_head_for_the_newest: ("rollback", BACK),
    call_edges_abandoned_too_early: ("edge", {"observed": False}),
}


@pytest.mark.default("look_at_no_expectation")
@pytest.mark.parametrize("off", OFF, ids=lambda off: off.__name__)
def test_a_rule_that_is_off_is_noticed(off: Callable[[Patch], None], monkeypatch: Patch) -> None:
    rule, given = OFF[off]
    off(monkeypatch)
    assert broken(**given) == rule


def test_an_allowance_that_is_too_small_is_noticed() -> None:
    assert broken(**NO_SKEW) == "S2"


def broken(weather: Weather = FAIR, first: int = 0, **given: Any) -> str:
    """The first rule that lives break; ``first`` is the seed of the first of thirty."""
    for seed in range(first, first + 30):
        try:
            life(seed, weather=weather, steps=100, **given)
        except Broken as found:
            return found.rule
    return "none"


@pytest.mark.parametrize("operations", [10_000, pytest.param(50_000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1, 6))]
)
def test_the_invariants_hold_for_long(part: int, operations: int) -> None:
    done, seed = 0, 100_000 * (part + 1)
    while done < operations:
        done += life(seed).done
        seed += 1
