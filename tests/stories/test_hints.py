"""Every command that a story says to type next can be typed as it is printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.hints import FILE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STORIES = (
    *("agent_leases", "landing", "session_stories", "dispatch_stories", "run_stories"),
    *("hook_stories", "hook_commits"),
)
LONG = 3_600  # seconds
VERBS = {"claim", "dispatch", "done", "next", "release", "renew", "show", "wait"}


@pytest.mark.parametrize(
    "which", ["default", pytest.param("default or slow", marks=pytest.mark.nightly)]
)
def test_every_hint_of_a_story_is_accepted(tmp_path: Path, which: str) -> None:
    file = tmp_path / "hints"
    stories = [f"tests/stories/test_{name}.py" for name in STORIES]
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-n0",
        "-p",
        "support.hints",
        "-m",
        which,
        # Without a folder of its own, its end would delete what older runs left in the shared one.
        f"--basetemp={tmp_path / 'its'}",
        *stories,
    ]
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    env = {**os.environ, FILE: str(file), "PYTHONPATH": path}
    done = subprocess.run(
        words,
        cwd=ROOT,
        env=env,
        capture_output=True,
        encoding="utf-8",
        timeout=LONG,
        check=False,
    )
    # Whether a story holds its own run tells: here it only has to print what it has to say.
    assert done.returncode in (0, 1), done.stdout[-4_000:]
    typed = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    refused = [one for one in typed if not one["accepted"]]
    assert not refused, json.dumps(refused, indent=1)
    assert {one["command"].split()[1] for one in typed} >= VERBS
