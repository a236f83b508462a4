"""That the tests can fail: faults that are put into gitlease on purpose are caught."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from mutants.catalogue import CHANGES, MUTANTS, ROOT, Mutant
from mutants.nets import is_there, runs_by_default
from mutants.run import judged
from mutants.sample import TABLE, Sample
from mutants.workshop import Workshop

PROMISES = {*(f"S{n}" for n in range(1, 11)), *(f"L{n}" for n in range(1, 4))}
SAMPLE, SEED = 5, 13  # tests/mutants/run.py tries them all


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_can_be_put_in(mutant: Mutant) -> None:
    source = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert mutant.applied(source) != source
    assert is_there(mutant.net, ROOT)
    assert runs_by_default(mutant.net, ROOT)


def test_the_table_has_each_once_and_some_for_every_safety() -> None:
    assert sorted(mutant.name for mutant in MUTANTS) == sorted(CHANGES)
    promises = {mutant.promise for mutant in MUTANTS}
    assert {f"S{n}" for n in range(1, 11)} <= promises <= PROMISES


def test_nine_of_ten_drawn_mutants_are_caught_and_the_table_says_by_what() -> None:
    sample = Sample.read()
    assert len(sample.drawn) >= 300
    assert sample.fates["killed"] >= 0.9 * len(sample.drawn)
    assert TABLE.read_text(encoding="utf-8") == sample.table()
    missing = [x.by for x in sample.drawn if x.fate == "killed" and not is_there(x.by, ROOT)]
    assert missing == []
    killers = {x.by for x in sample.drawn if x.fate == "killed"}
    assert [x for x in killers if not runs_by_default(x, ROOT)] == []


@pytest.mark.slow
def test_a_sample_of_them_is_caught(tmp_path: Path) -> None:
    chosen = random.Random(SEED).sample(MUTANTS, SAMPLE)
    workshop = Workshop(tmp_path)
    whole = workshop.run(list(dict.fromkeys(mutant.net for mutant in chosen)))
    assert whole.code == 0, whole.said
    why = {mutant.name: judged(workshop.run_with(mutant)) for mutant in chosen}
    assert {name: said for name, said in why.items() if said} == {}
