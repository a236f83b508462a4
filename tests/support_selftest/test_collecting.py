"""A run collects no file in vain, and its workers collect the same tests in the same order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import collecting
from support.tiers import TIERS

pytestmark = pytest.mark.default

NAMED = "@pytest.mark.{0}\ndef test_x(): pass\n"
SLOW = "pytestmark = pytest.mark.slow\n"
LISTED = "pytestmark = [\n    pytest.mark.skipif(x, reason='y'),\n    pytest.mark.slow,\n]\n"


def config(tier: str, source: str = "TESTPATHS") -> Any:
    asked = SimpleNamespace(markexpr=tier)
    return SimpleNamespace(option=asked, args_source=pytest.Config.ArgsSource[source])


@pytest.mark.parametrize(
    ("text", "tiers"),
    [
        ("def test_x(): pass\n", {"default", "slow", "nightly"}),
        (NAMED.format("slow"), {"default", "slow", "nightly"}),
        (SLOW, {"slow"}),
        (LISTED, {"slow"}),
        (SLOW + NAMED.format("nightly"), {"slow", "nightly"}),
        (SLOW + NAMED.format("default('a')"), {"default", "slow"}),
        ("pytestmark = pytest.mark.default\n", {"default"}),
    ],
)
def test_a_file_without_tests_of_the_tier_is_passed_over(
    text: str, tiers: set[str], tmp_path: Path
) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(text, encoding="utf-8")
    assert {x for x in TIERS if not collecting.is_in_vain(file, config(x))} == tiers
    for asked in ("", "slow or nightly"):
        assert not collecting.is_in_vain(file, config(asked))


def test_a_file_that_is_named_is_read(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(SLOW, encoding="utf-8")
    assert not collecting.is_in_vain(file, config("default", "ARGS"))


def test_each_worker_begins_elsewhere_and_all_end_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [SimpleNamespace(path=Path(f"/x/test_{letter}.py")) for letter in "abcdef"]
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    firsts = []
    for worker in ("gw0", "gw1", "gw2"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        report: Any = SimpleNamespace(result=files)
        collecting.begin_elsewhere(report)
        firsts.append(report.result[0].path.stem[-1])
        collecting.in_order(report.result)
        assert report.result == files
    assert firsts == ["a", "c", "e"]
