"""Lines of leases: nothing that may matter is passed over, and only that becomes a value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel.rules.test_pattern import PATHS, PATTERNS
from kernel.rules.values import JO, KIM, lease
from support.snapshots import raises

from gitlease.guard.reports import reach_of
from gitlease.kernel.rules.errors import Invalid, UsageError
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import Lease, State
from gitlease.kernel.rules.lease_rows import LeaseRows, Reach, row_of
from gitlease.kernel.rules.resources import fold, overlap, parse, path_resource
from gitlease.kernel.rules.viewpoint import Cover, Touched

FOLDED = st.sampled_from(["", "", "Straße/", "STRASSE/", "é/", "É/", "A/", r"\[x/", "İ/"])
PATTERN = st.builds(lambda top, rest: top + rest.lstrip("/"), FOLDED, PATTERNS)
TOUCHED = st.builds(
    lambda top, path, folder, tasks: Touched(top.lstrip("\\") + path, tasks, folder),
    FOLDED,
    PATHS,
    st.booleans(),
    st.frozensets(st.sampled_from(["f001", "f002"])),
)


def of_paths(patterns: list[str], *, named: bool) -> Lease:
    """A lease of these patterns: of a task with paths, or of the first of them and no more."""
    if named:
        return lease(resource="F001", paths=tuple(patterns))
    try:
        return replace(lease(), resource=path_resource(patterns[0]))
    except UsageError:
        return lease(resource="F001", paths=tuple(patterns))


@given(st.lists(PATTERN, min_size=1, max_size=3), st.lists(PATTERN, min_size=1), st.booleans())
def test_whatever_shares_a_file_is_met(theirs: list[str], mine: list[str], named: bool) -> None:
    held = of_paths(theirs, named=named)
    meet = any(overlap(parse(a), parse(b)) for a in mine for b in held.patterns)
    assert LeaseRows.of([held]).near(Reach.of_patterns(mine)) or not meet


@given(st.lists(PATTERN, max_size=3), st.lists(TOUCHED), st.booleans())
def test_whatever_covers_a_change_is_near(
    theirs: list[str], touched: list[Touched], named: bool
) -> None:
    held = of_paths(theirs, named=named) if theirs else lease()
    covered = any(Cover([held]).matching(one) for one in touched)
    assert LeaseRows.of([held]).near(*reach_of(touched)) == [held] or not covered


def test_what_lies_elsewhere_is_passed_over() -> None:
    near = ["src/", "src/a/", "src/a/b.py", "SRC/A/*.py", "src/*/b.py", "*.md", "F002"]
    far = ["src/a/b.py/c", "src/ab/", "src/b/", "srca/", "docs/**", "F001"]
    reach, tasks = reach_of([Touched("src/a/b.py", frozenset({"f002"}))])
    for held in near + far:
        found = LeaseRows.of([lease(resource=held)]).near(reach, tasks)
        assert bool(found) is (held in near), held
    rows = LeaseRows.of([lease(resource=f"vendor/{x}") for x in ("lib/a.c", "library/", "l/")])
    reach, _ = reach_of([Touched("vendor/lib", folder=True)])
    assert [str(x.resource) for x in rows.near(reach)] == ["vendor/lib/a.c"]


def test_a_lease_comes_back_as_it_was() -> None:
    odd = replace(lease(resource="größe/**", paths=("a\u00a0b",)), reason='"\t\n\x1e', host=None)
    every = [odd, lease(state=State.COMPLETED), replace(lease(holder=KIM), session="ci", edge=True)]
    assert list(LeaseRows(map(row_of, every))) == every
    held = lease()
    rows = LeaseRows([row_of(held, "leases/aa/x.yaml")])
    assert rows.file_of(held) == ""
    assert rows.of_person(JO.holder) == [held]
    assert rows.file_of(held) == "leases/aa/x.yaml", "once it was built"


def test_leases_are_found_by_their_person() -> None:
    loud = replace(lease(resource="F003"), holder="JO@example.com")
    rows = LeaseRows.of([loud, lease(holder=KIM, resource="F009"), lease(resource="F001")])
    assert [str(x.resource) for x in rows.of_person(JO.holder)] == ["F001", "F003"]
    assert rows.has_others(JO.holder)
    assert not LeaseRows.of([loud, lease()]).has_others(JO.holder)
    assert fold(loud.holder) == JO.holder


@pytest.mark.parametrize("told", ["", "null", "[1]", "{", "[" * 100_000])
def test_a_line_that_tells_no_lease_is_refused_with_a_way_out(told: str) -> None:
    head = row_of(lease()).rpartition("\t")[0]
    with raises(Invalid):
        list(LeaseRows([f"{head}\t{told}"]))
    with raises(Invalid):
        LeaseRows([told])
