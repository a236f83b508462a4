"""That every fault that was reported from outside is still held by tests that run by day."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mutants.catalogue import ROOT
from mutants.nets import is_there, runs_by_day

TABLE = Path(__file__).with_name("REPORTED.md")
WAY_OUT = (
    "tests/mutants/REPORTED.md names them for faults that were reported from outside. Keep such a "
    "test, by default or slow, or name one in its place that fails with the same fault."
)


@dataclass(frozen=True, slots=True)
class Reported:
    """A row of the table: what was wrong, the tests that hold it, and those that do so again."""

    fault: str
    held_by: tuple[str, ...]
    again_by: tuple[str, ...]


def rows(text: str) -> Iterator[Reported]:
    for line in text.splitlines():
        cells = [x.strip() for x in line.strip().strip("|").split(" | ")]
        if not line.startswith("| ") or cells[0] in ("what was wrong", "---"):
            continue
        assert len(cells) == 3, f"not three cells: {line}"
        fault, held_by, again_by = cells
        yield Reported(fault, _tests_in(held_by), _tests_in(again_by))


def _tests_in(cell: str) -> tuple[str, ...]:
    return tuple(f"tests/{name}" for name in re.findall(r"`([^`]+)`", cell))


REPORTED = list(rows(TABLE.read_text(encoding="utf-8")))
NAMED = sorted({name for row in REPORTED for name in (*row.held_by, *row.again_by)})


def test_every_test_that_holds_a_reported_fault_is_there() -> None:
    gone = [name for name in NAMED if "::" not in name or not _is_there(name)]
    assert gone == [], WAY_OUT


def _is_there(name: str) -> bool:
    return (ROOT / name.partition("::")[0]).exists() and is_there(name, ROOT)


def test_none_of_them_runs_only_at_night() -> None:
    at_night = [name for name in NAMED if _is_there(name) and not runs_by_day(name, ROOT)]
    assert at_night == [], WAY_OUT


def test_no_reported_fault_is_without_a_test() -> None:
    assert len(REPORTED) > 150
    assert [row.fault for row in REPORTED if not row.held_by] == [], WAY_OUT
    faults = [row.fault for row in REPORTED]
    assert sorted(faults) == sorted(set(faults)), "a fault is told twice"


def test_it_is_known_when_a_test_runs(tmp_path: Path) -> None:
    """By the nearest mark, as the run itself decides."""
    file = tmp_path / "test_some.py"
    file.write_text(
        "pytestmark = [pytest.mark.skipif(x), pytest.mark.nightly]\n"
        "def test_night(): pass\n"
        "@pytest.mark.slow\n"
        "def test_slow(): pass\n"
        "@pytest.mark.default('a')\n"
        "@pytest.mark.parametrize('x', 'ab')\n"
        "def test_a_variant(): pass\n"
        "@pytest.mark.parametrize('x', ['a', pytest.param('b', marks=pytest.mark.default)])\n"
        "def test_a_marked_variant(): pass\n"
        "@pytest.mark.default\n"
        "class TestClass:\n"
        "    def test_day(self): pass\n"
        "    @pytest.mark.nightly\n"
        "    def test_late(self): pass\n",
        encoding="utf-8",
    )
    names = ["night", "slow", "a_variant", "a_marked_variant"]
    found = [runs_by_day(f"{file.name}::test_{name}", tmp_path) for name in names]
    assert found == [False, True, True, True]
    inside = [runs_by_day(f"{file.name}::TestClass::test_{x}", tmp_path) for x in ("day", "late")]
    assert inside == [True, False]
