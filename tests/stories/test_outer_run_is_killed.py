"""The death of an outer run, or of a guardian, gives nothing away that somebody works under."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import pytest
from support.running import LONG, Desk, lives, number_in, sleeper, until

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="orphans are adopted on Linux"),
    pytest.mark.slow,
]


@pytest.mark.parametrize("layer", ["global", "team"])
def test_a_nested_run_keeps_what_it_works_under(
    jo: Desk, kim: Desk, tmp_path: Path, layer: str
) -> None:
    file = tmp_path / "pid"
    claims = shlex.join(jo.words("claim", "more", "--layer", layer))
    works = ["sh", "-c", f"{claims} >/dev/null; exec {shlex.join(sleeper(file))}"]
    nested = shlex.join(jo.words("run", "F002", "--layer", layer, "--", *works))
    run = jo.start("run", "F001", "--", "sh", "-c", f"{nested}; sleep 100")
    child = number_in(file)
    record = _record_of(jo, "F001")
    run.kill()
    run.wait(LONG)
    until(record.with_suffix(".over").exists, "the end of all but the nested run")
    told = jo.ask("claim", "last")
    assert (told.returncode, told.stderr.count("no longer holds it")) == (0, 1), told
    assert "F001: session" in told.stderr
    assert lives(child)
    for words in (("F002",), ("more",)):
        refused = kim.ask("claim", *words, "--layer", layer)
        assert refused.returncode == 1, refused
    # What its session is left with ends once the nested run has.
    os.kill(child, signal.SIGTERM)
    until(lambda: "F002" not in _held(kim, layer), "the release of the nested run")
    told = jo.ask("claim", "later")
    assert (told.returncode, "more: session" in told.stderr) == (0, True), told
    assert not record.exists()


def test_a_nested_run_keeps_what_it_joined(jo: Desk, kim: Desk, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    nested = shlex.join(jo.words("run", "F001", "--", *sleeper(file)))
    run = jo.start("run", "F001", "--", "sh", "-c", f"{nested}; sleep 100")
    child = number_in(file)
    over = next(x for x in _alive(jo) if '"alone": true' in x.read_text()).with_suffix(".over")
    run.kill()
    run.wait(LONG)
    until(over.exists, "the end of all but the nested run")
    told = jo.ask("claim", "last")
    assert (told.returncode, "no longer holds it" in told.stderr) == (0, False), told
    assert (kim.ask("claim", "F001").returncode, lives(child)) == (1, True)
    os.kill(child, signal.SIGTERM)
    until(lambda: not lives(child), "the end of the nested run")


def _alive(desk: Desk) -> list[Path]:
    return sorted((desk.clone / ".git" / "gitlease" / "alive").glob("*.json"))


def _record_of(desk: Desk, resource: str) -> Path:
    return next(x for x in _alive(desk) if resource in x.read_text())


def _held(desk: Desk, layer: str) -> list[str]:
    leases = desk.document("list", "--layer", layer)["leases"]
    return [x["resource"] for x in leases if x["state"] == "active"]
