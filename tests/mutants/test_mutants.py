"""That the tests can fail: faults that are put into gitlease on purpose are caught."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest
from mutants.catalogue import MUTANTS
from mutants.mutant import ROOT, Mutant
from mutants.run import judged, selected
from mutants.workshop import Workshop

PROMISES = {*(f"S{n}" for n in range(1, 11)), *(f"L{n}" for n in range(1, 4))}
SAMPLE, SEED = 5, 13  # tests/mutants/run.py tries them all


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_can_be_put_in(mutant: Mutant) -> None:
    source = (ROOT / mutant.path).read_text(encoding="utf-8")
    assert mutant.applied(source) != source
    file, _, test = mutant.net.partition("::")
    name = re.split(r"::|\[", test)[-1 if "[" not in test else -2]
    assert f"def {name}(" in _tests_of(ROOT / file)


def _tests_of(file: Path) -> str:
    """The text of a file of tests, with the suite that it takes its tests from."""
    suite = file.parent / "suite.py"
    return file.read_text("utf-8") + (suite.read_text("utf-8") if suite.exists() else "")


def test_there_are_enough_of_them_for_every_promise() -> None:
    counted = Counter(mutant.promise for mutant in MUTANTS)
    assert counted.keys() <= PROMISES
    assert {f"S{n}" for n in range(1, 11)} <= counted.keys()
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 60


def test_the_table_has_them_all() -> None:
    lines = (ROOT / "tests" / "mutants" / "TABLE.md").read_text("utf-8").splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| ")][2:]
    assert [(name[2:], file, promise, net) for name, file, promise, net, _ in rows] == [
        (x.name, f"`{x.file}`", x.promise, f"`{x.net.removeprefix('tests/')}`") for x in MUTANTS
    ]


def test_what_cannot_be_put_in_is_refused() -> None:
    mutant = Mutant("odd", "core/odd.py", "a", "b", "S1", "tests/core/test_odd.py")
    for source in ("", "a = a\n"):
        with pytest.raises(ValueError, match="not once"):
            mutant.applied(source)
    with pytest.raises(SystemExit, match="no fault has 'no such fault' in its name"):
        selected(["no such fault"])


@pytest.mark.slow
def test_a_sample_of_them_is_caught(tmp_path: Path) -> None:
    chosen = random.Random(SEED).sample(MUTANTS, SAMPLE)
    workshop = Workshop(tmp_path)
    whole = workshop.run(list(dict.fromkeys(mutant.net for mutant in chosen)))
    assert whole.code == 0, whole.said
    why = {mutant.name: judged(mutant, workshop.run_with(mutant)) for mutant in chosen}
    assert {name: said for name, said in why.items() if said} == {}
