"""The soak of tests/soak.py for as long as continuous integration can spare."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak import soak
from support.soak.gateway import Transport

pytestmark = pytest.mark.slow

MINUTES = 1.25  # of each; with the judging after it they take three minutes in all


@pytest.mark.parametrize("transport", ["path", "http"])
def test_real_faults_on_real_git_leave_a_ledger_that_agrees_with_all_answers(
    transport: Transport, tmp_path: Path
) -> None:
    report = soak(
        transport,
        minutes=MINUTES,
        workers=2,
        seed=1,
        folder=tmp_path,
        log=tmp_path / "journal.jsonl",
    )
    assert not report.violations, report.text()
    assert report.counts["operations"] > 20, report.text()
    assert report.counts["commits"] > 10, report.text()
    assert sum(report.counts.values()) > 50, report.text()
