"""What ties a lease to more than its person: the run that bound it, and the edge of a task."""

from __future__ import annotations

from mutants.mutant import Mutant

TIES = (
    Mutant(
        "a run that binds nothing",
        "core/moves/holding.py",
        "replace(lease, session=op.actor.session, host=where",
        "replace(lease, host=where",
        "S3",
        "tests/core/test_sessions.py::test_a_run_binds_what_its_"
        "person_holds_and_a_second_one_is_refused",
    ),
    Mutant(
        "a run bound to what another one shares",
        "core/moves/holding.py",
        "how is Relation.MINE and claiming.fits_session(state, lease, op.actor, moment)",
        "how is Relation.MINE",
        "S2",
        "tests/core/test_sessions.py::test_what_shares_work_with_another_run_is_not_bound",
    ),
    Mutant(
        "unbound by any run",
        "core/moves/holding.py",
        "return lease.same_holder(actor) and actor.session in (None, lease.session)",
        "return lease.same_holder(actor)",
        "S7",
        "tests/simulation/test_exhaustive.py::test_nothing_is_found_where_all_rules_are_on",
    ),
    Mutant(
        "a session's end that gives up its edges",
        "core/moves/holding.py",
        "isinstance(op, ops.RunOut) and lease.edge",
        "isinstance(op, ops.RunOut) and lease.parked",
        "S2",
        "tests/core/test_sessions.py::test_what_has_an_edge_runs_out_now_and_stays",
    ),
    Mutant(
        "a lease that outlives its session",
        "core/moves/holding.py",
        "replace(lease, renewed_at=now, expires_at=now)",
        "replace(lease, renewed_at=now)",
        "S2",
        "tests/simulation/test_exhaustive.py::test_nothing_is_found_where_all_rules_are_on",
    ),
    Mutant(
        "an edge abandoned as its lease lapses",
        "core/lease.py",
        "until is not None and moment.now.wall_ms > until",
        "until is not None",
        "S2",
        "tests/simulation/test_exhaustive.py::test_nothing_is_found_where_all_rules_are_on",
    ),
    Mutant(
        "an edge abandoned without a margin",
        "core/lease.py",
        "(after + margin) * MS",
        "after * MS",
        "S2",
        "tests/simulation/test_exhaustive.py::test_nothing_is_found_where_all_rules_are_on",
    ),
)
