"""The soak of tests/soak.py for as long as continuous integration can spare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from soak import judged, soak
from support.soak.gateway import Transport

pytestmark = pytest.mark.slow

MINUTES = 0.75  # of each; tests/soak.py plays as long as is wanted


@pytest.mark.parametrize("transport", ["path", pytest.param("http", marks=pytest.mark.nightly)])
def test_real_faults_on_real_git_leave_a_ledger_that_agrees_with_all_answers(
    transport: Transport, tmp_path: Path
) -> None:
    log = tmp_path / "journal.jsonl"
    report = soak(
        transport, minutes=MINUTES, workers=2, seed=1, folder=tmp_path, log=log, keep=True
    )
    assert not report.violations, report.text()
    assert report.counts["operations"] > 20, report.text()
    assert report.counts["commits"] > 10, report.text()
    assert sum(report.counts.values()) > 50, report.text()
    (bare,) = tmp_path.glob("server-disk*/origin.git")
    assert judged(bare, log) == []
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    granted = [x for x in lines if x.get("verb") == "claim" and _status(x) == "claimed"]
    granted[0]["answer"]["leases"][0]["token"] += 1
    granted[1]["answer"] = {"ok": False, "error": {"code": "held"}}
    granted[2]["client"] = "nobody"
    lines.append({**granted[2], "client": "somebody else"})
    log.write_text("".join(json.dumps(x) + "\n" for x in lines), encoding="utf-8")
    rules = {said.split(": ")[1] for said in judged(bare, log)}
    assert rules >= {"answer", "unheard", "twice"}, "a log that is doctored does not agree"


def _status(call: dict[str, Any]) -> str | None:
    return (call["answer"] or {}).get("status")
