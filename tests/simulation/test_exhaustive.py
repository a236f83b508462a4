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

from gitlease.core import (
    MOVES,
    TABLE,
    EndSession,
    Extend,
    Fate,
    Header,
    Instant,
    Lease,
    Ledger,
    Margins,
    Moment,
    Outcome,
    Policy,
    Relation,
    Renew,
    RunOut,
    Unavailable,
    Unbind,
    Verdict,
    abandoned_at,
    replace,
)
from gitlease.core import lease as lease_rules
from gitlease.core.moves import claiming, holding
from gitlease.engine import Change, Prepared, Snapshot, Swapped, Transaction, transaction
from gitlease.push import PushCase
from gitlease.store import RefLedgerStore

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


def trust_every_push(patch: Patch) -> None:
    def read_back(store: RefLedgerStore, prepared: Prepared, *_: object) -> Swapped:
        return Swapped(fate=Fate.APPLIED, heads=store._adopted(prepared))

    patch.setattr(RefLedgerStore, "_read_back", read_back)


def take_silence_for_a_loss(patch: Patch) -> None:
    def read_back(store: RefLedgerStore, prepared: Prepared, *_: object) -> Swapped:
        heads = {layer: store.fetch(layer) for layer in prepared.changes}
        return Swapped(fate=Fate.LOST, heads=heads)

    patch.setattr(RefLedgerStore, "_read_back", read_back)


def push_without_expectation(patch: Patch) -> None:
    serve = shared_state.serve

    def forced(request: shared_state.Request, ref: str, work: str) -> tuple[str, str, str]:
        return serve(request._replace(expected=ref), ref, work)

    patch.setattr(exhaustive, "serve", forced)


def keep_the_token(patch: Patch) -> None:
    patch.setattr(claiming, "count_token", lambda header: replace(header, sequence=1))


def judge_own_grants_by_sightings(patch: Patch) -> None:
    patch.setattr(Moment, "seen_before", lambda moment, lease: moment.seen(lease))


def without_margins(patch: Patch, **less: Any) -> None:
    widest = Margins.widest
    patch.setattr(Margins, "widest", lambda one, other: replace(widest(one, other), **less))


def ignore_the_skew(patch: Patch) -> None:
    without_margins(patch, skew=0)


def ignore_the_drift(patch: Patch) -> None:
    without_margins(patch, drift=0)


def give_up_without_a_barrier(patch: Patch) -> None:
    def give_up(*_: object, **__: object) -> Swapped:
        raise Unavailable("it can no longer land")

    patch.setattr(Transaction, "_give_up", give_up)


def forget_the_ring(patch: Patch) -> None:
    def fate(header: Header, operations: object, base_revision: int) -> Fate:
        return Fate.LOST if header.revision > base_revision else Fate.UNDECIDED

    patch.setattr(Header, "fate", fate)


def write_no_word_before_a_push(patch: Patch) -> None:
    patch.setattr(shared_state.Disk, "add_pending", lambda *_, **__: None)


def count_from_the_receipt(patch: Patch) -> None:
    def adopt(store: RefLedgerStore, change: Change, version: str, **_: object) -> Snapshot:
        layer = change.base.layer
        return store.learn(layer, version, before=store.load(layer))

    patch.setattr(RefLedgerStore, "adopt", adopt)
    patch.setattr(RefLedgerStore, "_decided", lambda *_: {})


def believe_what_comes_late(patch: Patch) -> None:
    patch.setattr(transaction, "check_in_time", lambda *_: None)


def look_at_the_wall_clock_alone(patch: Patch) -> None:
    patch.setattr(Instant, "elapsed_at_most", lambda now, later: later.wall_ms - now.wall_ms)


def take_every_lease_for_ones_own(patch: Patch) -> None:
    patch.setattr(Lease, "same_holder", lambda lease, actor: True)


def push_work_under_a_lost_lease(patch: Patch) -> None:
    def nothing_to_renew(case: PushCase, head: Snapshot, layer: str) -> Any:
        return case._session.transaction.decided(head, [])

    patch.setattr(PushCase, "_renewal", nothing_to_renew)
    patch.setattr(PushCase, "_required", lambda *_: {})


def take_what_is_read_back_for_new(patch: Patch) -> None:
    patch.setattr(RefLedgerStore, "_decided", lambda *_: {})
    patch.setattr(RefLedgerStore, "credit", lambda _store, _change, head: head)


def finish_what_others_hold(patch: Patch) -> None:
    row = replace(TABLE[Relation.THEIRS], end=Verdict.FREE)
    patch.setitem(cast(Any, TABLE), Relation.THEIRS, row)


def take_any_run_for_the_callers(patch: Patch) -> None:
    patch.setattr(Lease, "answers_to", Lease.same_holder)


def bind_what_another_run_shares(patch: Patch) -> None:
    patch.setattr(claiming, "fits_session", lambda *_: True)


def bind_to_another_run(patch: Patch) -> None:
    def extend(ledger: Ledger, op: Extend, moment: Moment) -> tuple[Ledger, Outcome]:
        return holding.extend(ledger, replace(op, actor=replace(op.actor, session="x")), moment)

    patch.setitem(cast(Any, MOVES), Extend, extend)


def unbind_for_anybody(patch: Patch) -> None:
    patch.setattr(holding, "_may_unbind", lambda *_: True)


def release_for(operation: type[Unbind | RunOut]) -> Callable[[Patch], None]:
    def releases(ledger: Ledger, op: Unbind | RunOut, moment: Moment) -> tuple[Ledger, Outcome]:
        end = EndSession(id=op.id, actor=op.actor, grants=op.grants)
        return holding.end_session(ledger, end, moment)

    return lambda patch: patch.setitem(cast(Any, MOVES), operation, releases)


def live_on_after_the_session(patch: Patch) -> None:
    last = holding._last

    def lives_on(lease: Lease, *given: Any) -> tuple[str, Lease]:
        how, ended = last(lease, *given)
        return how, replace(ended, expires_at=lease.expires_at)

    patch.setattr(holding, "_last", lives_on)


def call_it_abandoned(patch: Patch, early: Callable[[Lease, Policy], int]) -> None:
    """Edges protect for so many seconds less than they should."""

    def at(lease: Lease, policy: Policy) -> int | None:
        until = abandoned_at(lease, policy)
        return None if until is None else until - early(lease, policy) * 1_000

    patch.setattr(lease_rules, "abandoned_at", at)


def count_what_others_renewed_from_now(patch: Patch) -> None:
    along = Transaction._along

    def from_now(change: Transaction, head: Snapshot, asked: Any) -> Any:
        try:
            return along(change, head, asked)
        except transaction._Done as done:
            now = Moment(now=change._clock.now(), seen=head.seen)
            raise transaction._Done(replace(done.args[0], moment=now)) from None

    patch.setattr(Transaction, "_along", from_now)


def renew_along_whatever_was_asked_once(patch: Patch) -> None:
    def every(change: Transaction, head: Snapshot, operations: Any) -> Any:
        asked = head.along.asked() if head.along and not isinstance(operations[0], Renew) else ()
        grants = tuple(x.grant for x in transaction._wanted(asked))
        return [Renew(id=transaction.fresh_id(), actor=change.actor, grants=grants)][: len(grants)]

    patch.setattr(Transaction, "_along", every)


def let_no_edge_outlast_its_lease(patch: Patch) -> None:
    call_it_abandoned(patch, lambda _, policy: policy.abandoned_after)


def abandon_without_a_margin(patch: Patch) -> None:
    call_it_abandoned(patch, lambda lease, _: lease.margins.skew)


OFF: Mapping[str, tuple[Callable[[Patch], None], World, str]] = {
    "a read-back skipped": (trust_every_push, TWO_CLAIM, "S6"),
    "silence taken for a loss": (take_silence_for_a_loss, TWO_CLAIM, "S8"),
    "no expectation": (push_without_expectation, TWO_CLAIM, "S1"),
    "a token kept": (keep_the_token, IN_TURN, "S4"),
    "own grants judged by sightings": (judge_own_grants_by_sightings, GATEWAY, "S2"),
    "skew ignored": (ignore_the_skew, LAPSE, "S2"),
    "drift ignored": (ignore_the_drift, TOO_FAST, "S2"),
    "no barrier": (give_up_without_a_barrier, LATE, "S6"),
    "the ring forgotten": (forget_the_ring, TWO_CLAIM, "S8"),
    "no word before a push": (write_no_word_before_a_push, SLOW_AND_KILLED, "S3"),
    "time counted from the receipt": (count_from_the_receipt, SLOW_WALL, "S3"),
    "a late answer believed": (believe_what_comes_late, LAPSE, "S3"),
    "one clock of two": (look_at_the_wall_clock_alone, SLOW_WALL, "S3"),
    "anybody's lease": (take_every_lease_for_ones_own, RENEWED, "S7"),
    "work without a lease": (push_work_under_a_lost_lease, PUSHED, "S5"),
    "time counted from the read-back": (take_what_is_read_back_for_new, READ_BACK, "S3"),
    "what others hold finished": (finish_what_others_hold, DONE, "S2"),
    "any run of one's person": (take_any_run_for_the_callers, BOUND, "S7"),
    "bound to what another run shares": (bind_what_another_run_shares, TWO_PATHS, "S2"),
    "bound to another run": (bind_to_another_run, EXTENDED, "S7"),
    "unbound by anybody": (unbind_for_anybody, NOT_OURS, "S7"),
    "unbinding that releases": (release_for(Unbind), BOUND, "S7"),
    "a run's time counted from the receipt": (count_from_the_receipt, SLOW_RUNS, "S3"),
    "an edge given up with its session": (release_for(RunOut), SESSION_ENDS, "edge"),
    "a lease that outlives its session": (live_on_after_the_session, SESSION_ENDS, "edge"),
    "another's renewal counted from now": (count_what_others_renewed_from_now, ALONG, "S3"),
    "renewed along again": (renew_along_whatever_was_asked_once, TWICE, "S7"),
    "an edge that its lease takes along": (let_no_edge_outlast_its_lease, DAYS, "edge"),
    "abandoned without a margin": (abandon_without_a_margin, DAYS, "edge"),
}


@pytest.mark.one_in(3)
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


@pytest.mark.slow
def test_nothing_is_found_where_all_rules_are_on() -> None:
    small_worlds = dict.fromkeys(world for _, world, _ in OFF.values())
    assert explored(*small_worlds, LEADER_KILLED) > 5_000


# The rest is in EXHAUSTIVE.md.
NIGHTLY = [pytest.param(world, marks=pytest.mark.nightly) for world in worlds(2, 4)[:4]]
LARGE = [*worlds(3, 2)[:3], *NIGHTLY]


@pytest.mark.slow
@pytest.mark.parametrize("world", LARGE, ids=lambda world: world.name)
def test_all_rules_hold_in_every_state(world: World) -> None:
    assert explored(world) > 50_000


@pytest.mark.slow
@pytest.mark.parametrize("world", worlds(2, 2), ids=lambda world: world.name)
def test_all_rules_hold_in_every_world_of_two_commands(world: World) -> None:
    assert explored(world) > 5_000
