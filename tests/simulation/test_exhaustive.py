"""Small worlds explored whole, and what is found in them when one rule after the other is off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from simulation import exhaustive, shared_state
from simulation.exhaustive import Explorer
from simulation.small_worlds import (
    ABANDONED,
    OBSERVED,
    PATHS,
    RUNS,
    SESSIONS,
    WRONG_CLOCKS,
    World,
    worlds,
)

from gitlease.kernel.ledger import transaction
from gitlease.kernel.ledger.ports import Snapshot, Swapped
from gitlease.kernel.ledger.transaction import Transaction
from gitlease.kernel.rules.errors import Unavailable
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import Lease, Margins, Moment
from gitlease.kernel.rules.ledger import Ledger
from gitlease.kernel.rules.loss import Hold
from gitlease.kernel.rules.moves import claiming, holding
from gitlease.kernel.rules.moves.operations import EndSession, Outcome, Renew, RunOut, Unbind
from gitlease.kernel.rules.moves.transitions import MOVES
from gitlease.landing.fenced_push import PushCase

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch


def small(*programs: str, **fields: Any) -> World:
    chosen = tuple(tuple((verb,) for verb in program.split(", ")) for program in programs)
    given: dict[str, Any] = {"instants": (0, 12), "silences": 0, "crashes": 0, **fields}
    resources = tuple(given.pop("resources", "F001 F001").split())
    return World("small", chosen, resources, **given)


ONE_CLOCK = (shared_state.OwnTime(),) * 2
TWO_CLAIM = small("claim", "claim", silences=1, instants=(0,))
IN_TURN = small("claim, release", "claim", instants=(0,))
RENEWED = small("claim", "extend", instants=(0,), times=ONE_CLOCK)
LAPSE = small("claim", "claim", instants=(0, 6, 12))
LATE = small("claim, note", "note", silences=1, instants=(0,))
PUSHED = small("claim, push", "claim", instants=(0, 12))
STEADY = (("skew", "0s"), ("rule", "observed"), ("drift", "0%"), ("grace", "0s"))
GATEWAY = small("claim for two", "note", instants=(0, 18), policy=STEADY)
SLOW_WALL = small("claim, read", "read, claim", times=WRONG_CLOCKS, policy=OBSERVED)
SLOW_AND_KILLED = small(
    "claim, read", "read, claim", times=WRONG_CLOCKS, policy=OBSERVED, crashes=1
)
TOO_FAST = small("claim", "read, claim", times=WRONG_CLOCKS, policy=OBSERVED, instants=(0, 8, 12))
BY_NAME = tuple(replace(run, session_explicit=True) for run in RUNS)
SHARED: dict[str, Any] = {"instants": (0,), "times": ONE_CLOCK, "actors": BY_NAME}
BOUND = small("claim as the person, bind, unbind", "bind", **SHARED)
NOT_OURS = small("claim as the person, bind", "unbind anybody's", **SHARED)
EXTENDED = small("claim as the person, extend", "claim", **SHARED)
TWO_PATHS = replace(EXTENDED, resources=tuple(PATHS.split()))
SLOW_RUNS = replace(SLOW_WALL, actors=RUNS)
READ_BACK = small("claim, read", "read, claim", times=WRONG_CLOCKS, policy=OBSERVED, silences=1)
DONE = small("claim", "done", instants=(0, 12, 22))
TASK: dict[str, Any] = {"resources": "T001 T001", "policy": ABANDONED}
DAYS = small("claim", "claim", instants=(0, 12, 86_405, 86_435), **TASK)
ALONG = small("keep, claim another, beat", "claim", instants=(0, 6, 8, 17))
LEADER_KILLED = small("keep, claim another, beat", "claim", instants=(0, 6, 17), crashes=1)
TWICE = small("keep, claim another, claim another", "note", instants=(0, 6, 8))
SESSION_ENDS = small("claim, end", "claim", instants=(0, 12, 86_415), actors=SESSIONS, **TASK)


def push_without_expectation(patch: Patch) -> None:
    serve = shared_state.serve

    def forced(request: shared_state.Request, ref: str, work: str) -> tuple[str, str, str]:
        return serve(request._replace(expected=ref), ref, work)

    patch.setattr(exhaustive, "serve", forced)


def keep_the_token(patch: Patch) -> None:
    patch.setattr(claiming, "count_token", lambda header: replace(header, sequence=1))


def without_margins(patch: Patch, **less: Any) -> None:
    widest = Margins.widest
    patch.setattr(Margins, "widest", lambda one, other: replace(widest(one, other), **less))


def ignore_the_skew(patch: Patch) -> None:
    without_margins(patch, skew=0)


def give_up_without_a_barrier(patch: Patch) -> None:
    def give_up(*_: object, **__: object) -> Swapped:
        raise Unavailable("it can no longer land")

    patch.setattr(Transaction, "_give_up", give_up)


def write_no_word_before_a_push(patch: Patch) -> None:
    patch.setattr(shared_state.Disk, "add_pending", lambda *_, **__: None)


def believe_what_comes_late(patch: Patch) -> None:
    patch.setattr(transaction, "check_in_time", lambda *_: None)


def take_every_lease_for_ones_own(patch: Patch) -> None:
    patch.setattr(Lease, "same_holder", lambda lease, actor: True)


def push_work_under_a_lost_lease(patch: Patch) -> None:
    def nothing_to_renew(case: PushCase, head: Snapshot, *_: object) -> Any:
        return case._session.transaction.decided(head, [])

    patch.setattr(PushCase, "_renewal", nothing_to_renew)
    patch.setattr(PushCase, "_required", lambda *_: {})


def release_for(operation: type[Unbind | RunOut]) -> Callable[[Patch], None]:
    def releases(ledger: Ledger, op: Unbind | RunOut, moment: Moment) -> tuple[Ledger, Outcome]:
        end = EndSession(id=op.id, actor=op.actor, grants=op.grants)
        return holding.end_session(ledger, end, moment)

    return lambda patch: patch.setitem(cast(Any, MOVES), operation, releases)


def renew_along_whatever_was_asked_once(patch: Patch) -> None:
    def every(change: Transaction, head: Snapshot, operations: Any) -> Any:
        asked = (
            () if isinstance(operations[0], Renew) else transaction._asked(head, tuple[Hold, ...])
        )
        grants = tuple(x.grant for holds in asked for x in holds)
        return [Renew(id=transaction.fresh_id(), actor=change.actor, grants=grants)][: len(grants)]

    patch.setattr(Transaction, "_along", every)


OFF: Mapping[str, tuple[Callable[[Patch], None], World, str]] = {
    "no expectation": (push_without_expectation, TWO_CLAIM, "S1"),
    "skew ignored": (ignore_the_skew, LAPSE, "S2"),
    "no word before a push": (write_no_word_before_a_push, SLOW_AND_KILLED, "S3"),
    "a late answer believed": (believe_what_comes_late, LAPSE, "S3"),
    "a token kept": (keep_the_token, IN_TURN, "S4"),
    "work without a lease": (push_work_under_a_lost_lease, PUSHED, "S5"),
    "no barrier": (give_up_without_a_barrier, LATE, "S6"),
    "anybody's lease": (take_every_lease_for_ones_own, RENEWED, "S7"),
    "unbinding that releases": (release_for(Unbind), BOUND, "S7"),
    "renewed along again": (renew_along_whatever_was_asked_once, TWICE, "S7"),
    "an edge given up with its session": (release_for(RunOut), SESSION_ENDS, "edge"),
}
# Those in which the faults of `mutants` are found out: most are of the rules that are off above.
SMALL = {
    "two claim": TWO_CLAIM,
    "in turn": IN_TURN,
    "renewed": RENEWED,
    "lapse": LAPSE,
    "late": LATE,
    "pushed": PUSHED,
    "gateway": GATEWAY,
    "slow and killed": SLOW_AND_KILLED,
    "too fast": TOO_FAST,
    "slow wall": SLOW_WALL,
    "bound": BOUND,
    "not ours": NOT_OURS,
    "extended": EXTENDED,
    "two paths": TWO_PATHS,
    "slow runs": SLOW_RUNS,
    "read back": READ_BACK,
    "done": DONE,
    "session ends": SESSION_ENDS,
    "along": ALONG,
    "twice": TWICE,
    "days": DAYS,
    "leader killed": LEADER_KILLED,
}


@pytest.mark.default(
    "no expectation", "a late answer believed", "no barrier", "renewed along again"
)
@pytest.mark.parametrize("rule", OFF)
def test_a_rule_that_is_off_is_found_out(rule: str, monkeypatch: Patch) -> None:
    switch_off, world, invariant = OFF[rule]
    switch_off(monkeypatch)
    result = Explorer(world).explore()
    print(f"{rule}: {result.broken}", *result.trace, sep="\n")
    assert result.broken.startswith(invariant)
    assert result.trace


def explored(*chosen: World) -> int:
    """How many states these worlds have; nothing is wrong in any of them."""
    states = 0
    for world in chosen:
        result = Explorer(world).explore()
        assert not result.broken, "\n".join([world.name, *result.trace, result.broken])
        states += result.states
    return states


# By default those that catch a fault of mutants/, and those that take no time.
@pytest.mark.slow("twice", "leader killed", "read back", "days", "late", "too fast", "slow runs")
@pytest.mark.default
@pytest.mark.parametrize("world", SMALL)
def test_nothing_is_found_where_all_rules_are_on(world: str) -> None:
    assert explored(SMALL[world]) > 10


NIGHTLY = [pytest.param(world, marks=pytest.mark.nightly) for world in worlds(2, 4)[:4]]
LARGE = [*worlds(3, 2)[:3], *NIGHTLY]


@pytest.mark.parametrize("world", LARGE, ids=lambda world: world.name)
def test_all_rules_hold_in_every_state(world: World) -> None:
    assert explored(world) > 50_000


@pytest.mark.parametrize("world", worlds(2, 2), ids=lambda world: world.name)
def test_all_rules_hold_in_every_world_of_two_commands(world: World) -> None:
    assert explored(world) > 5_000
