"""Every module belongs to one mechanism of the table in CONTRIBUTING, whose sizes are current."""

from __future__ import annotations

from collections import Counter

from support.mechanisms import mechanisms, modules
from support.recording import how_to_record


def test_every_module_belongs_to_exactly_one_mechanism() -> None:
    named = Counter(x for mechanism in mechanisms() for x in mechanism.modules)
    assert sorted(modules() - named.keys()) == [], "name them in a row of Mechanisms"
    assert sorted(named.keys() - modules()) == [], "they are gone"
    assert [x for x, times in named.items() if times > 1] == []


def test_the_modules_of_a_mechanism_lie_in_its_part() -> None:
    for row in mechanisms():
        folders = {x.partition("/")[0] for x in row.modules if "/" in x}
        assert folders <= {row.part}, row.name


def test_sizes_of_mechanisms_are_current() -> None:
    outdated = [row.name for row in mechanisms() if not row.is_current]
    assert outdated == [], how_to_record("mechanisms")
