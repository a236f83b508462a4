"""Verbs that may last for months collect their garbage, which a short call goes without."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.commands import run_gitlease
from support.fences import clean_env
from support.remotes import Remote
from support.repos import make_clone
from support.running import ROOT
from support.terminals import played

pytestmark = pytest.mark.slow

COLLECTS = 40  # the exit status of a verb that does, and one more of one that does not
# What a verb comes to, which tells instead.
LASTING = {
    "serve": (["serve"], "gitlease.gateway.app", "serve"),
    "mcp": (["mcp"], "gitlease.mcp.stdio", "serve"),
    "board": (["board"], "gitlease.board.live", "LiveBoard"),
    "wait": (["wait", "F001"], "gitlease.cli.output", "aside"),
    "watch": (["watch", "F001"], "gitlease.cli.output", "aside"),
    "claim --wait": (["claim", "F001", "--wait", "1h"], "gitlease.cli.output", "aside"),
    "run": (["run", "F001", "--", "true"], "gitlease.runs.verbs", "run_claimed"),
    "work": (["work", "--", "true"], "gitlease.runs.pool", "work"),
}


@pytest.mark.default("serve")
@pytest.mark.parametrize(
    ("argv", "module", "name"), [pytest.param(*x, id=verb) for verb, x in LASTING.items()]
)
def test_what_lasts_collects_its_garbage(
    argv: Sequence[str], module: str, name: str, path_remote: Remote, tmp_path: Path
) -> None:
    clone = make_clone(path_remote, tmp_path / "clone", "ada@example.com", "Ada")
    if "F001" in argv and "run" not in argv:
        other = make_clone(path_remote, tmp_path / "other", "bob@example.com", "Bob")
        assert run_gitlease(["claim", "F001"], other, {"PYTHONPATH": ROOT}).returncode == 0
    told = f"import gc, os, {module} as m; m.{name} = lambda *_, **__: os._exit"
    words = [sys.executable, "-c", f"{told}({COLLECTS + 1} - gc.isenabled()); "]
    words[-1] += "from gitlease.__main__ import main; main()"
    env = clean_env({"PYTHONPATH": ROOT, "TERM": "xterm-256color"})
    with played([*words, *argv], clone, env, columns=100) as terminal:
        assert terminal.ended() == COLLECTS, terminal.written.decode()
