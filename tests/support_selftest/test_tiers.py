"""When a test runs is said by its nearest mark, and by nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.fences import clean_env

TESTS = Path(__file__).parents[1]
CONFTEST = """\
import pytest
from support import tiers

pytest_configure = tiers.describe


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    tiers.sort_out(items)
    for item in items:
        (tier,) = (mark.name for mark in item.iter_markers() if mark.name in tiers.TIERS)
        print(item.name, "is", tier)
"""
FILE = """\
import pytest

pytestmark = pytest.mark.slow


def test_of_the_file(): pass


@pytest.mark.nightly
def test_of_its_own(): pass


@pytest.mark.default
class TestClass:
    def test_of_the_class(self): pass

    @pytest.mark.nightly
    def test_nearer(self): pass


@pytest.mark.default("a")
@pytest.mark.nightly("b")
@pytest.mark.parametrize("x", ["a", "b", "c"])
def test_named(x): pass


@pytest.mark.default
@pytest.mark.parametrize("x", ["a", pytest.param("b", marks=pytest.mark.nightly)])
def test_marked(x): pass
"""
EXPECTED = {
    "test_of_the_file": "slow",
    "test_of_its_own": "nightly",
    "test_of_the_class": "default",
    "test_nearer": "nightly",
    "test_named[a]": "default",
    "test_named[b]": "nightly",
    "test_named[c]": "slow",
    "test_marked[a]": "default",
    "test_marked[b]": "nightly",
    "test_plain": "default",
}


@pytest.mark.slow
def test_the_nearest_mark_says_when_a_test_runs(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_some.py").write_text(FILE, encoding="utf-8")
    (tmp_path / "test_others.py").write_text("def test_plain(): pass\n", encoding="utf-8")
    words = ["-q", "--collect-only", "-p", "no:xdist", "-p", "no:hypothesispytest", "-m", "default"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        env=clean_env({"PYTHONPATH": str(TESTS)}),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    told = [x.split(" is ") for x in ran.stdout.splitlines() if " is " in x]
    assert dict(told) == EXPECTED
    listed = {x.rpartition("::")[2] for x in ran.stdout.splitlines() if "::" in x}
    assert listed == {name for name, tier in EXPECTED.items() if tier == "default"}
