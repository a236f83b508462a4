"""The play of ``gitlease demo``: what it shows, where it shows it, and when it pauses."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from support.commands import run_program
from support.repos import commit_file
from support.snapshots import check_words

from gitlease.cli.app import run
from gitlease.cli.setup import demo
from gitlease.cli.setup.demo import NEXT, DemoScene

ROOT = str(Path(__file__).parents[2])
SAID = (
    "ada$ gitlease next --claim",
    "claimed F002 until",
    "F001 is held by ada@example.com",
    "src/auth/login.py is held by ada@example.com",
    "capped to the ledger's maximum of 8h",
    "claimed after the lapsed lease of ada@example.com",
    "src/pay is held by bob@example.com",
    "bob@example.com was granted it later, with token 5",
    "released F001",
    "by ada@example.com at",
    "remote$ git show refs/gitlease/global:leases/",
    "every step behaved as expected",
    *(f"gitlease {words}  # {why}" for words, why in NEXT),
)


def played(cwd: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """The demo as a pipe gets it; settings of the user's that it must not see are there."""
    env = {"TMPDIR": str(cwd), "GITLEASE_LAYER": "elsewhere", "GITLEASE_TTL": "rubbish"}
    return run_program(
        [sys.executable, "-m", "gitlease", "demo", *argv], cwd, {"PYTHONPATH": ROOT, **env}
    )


@pytest.mark.slow
def test_it_keeps_its_folder_on_request_and_speaks_json(tmp_path: Path) -> None:
    done = played(tmp_path, "--keep", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"], done.stderr) == (0, True, "")
    assert {"steps", "folder", "seconds"} <= set(document)
    ends = {step["command"]: step["exit"] for step in document["steps"]}
    assert all(step["exit"] == step["expected"] for step in document["steps"])
    assert ends["git commit -a -m 'log out'"] == 1
    assert (ends["gitlease renew src/pay/"], ends["gitlease push"]) == (3, 3)
    assert document["seconds"] > 0
    folder = Path(document["folder"])
    assert {"origin.git", "ada", "bob"} <= {path.name for path in folder.iterdir()}
    shutil.rmtree(folder)


@pytest.mark.slow
def test_it_plays_to_the_end_without_a_program_and_cleans_up(tmp_path: Path) -> None:
    """Its hooks find the gitlease that plays; the user's settings are not seen."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(os.path.realpath(sys.executable))
    (tmp_path / "of the play").mkdir()
    path = os.pathsep.join(
        folder
        for folder in os.environ["PATH"].split(os.pathsep)
        if not os.path.exists(os.path.join(folder, "gitlease"))
    )
    packages = os.pathsep.join([ROOT, *filter(None, sys.path)])
    env = {"PYTHONPATH": packages, "PATH": path, "TMPDIR": str(tmp_path / "of the play")}
    env |= {"GITLEASE_LAYER": "elsewhere", "GITLEASE_TTL": "rubbish"}
    done = run_program([str(python), "-m", "gitlease", "demo"], None, env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [said for said in SAID if said not in done.stdout] == []
    assert "\x1b" not in done.stdout
    assert list((tmp_path / "of the play").iterdir()) == []


def test_it_fails_when_something_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "PLAY", (DemoScene("ada", "gitlease whoami", 3),))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run(["demo", "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    check_words(error["message"])
    assert list(tmp_path.iterdir()) == []
    assert run(["demo", "--layer", "x"]) == 2


def test_a_terminal_shows_it_in_colour_and_no_wider_than_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = DemoScene("ada", "gitlease whoami", says="holder", about="a part of more words " * 4)
    monkeypatch.setattr(demo, "PLAY", (scene,))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name, value in (("TERM", "xterm-256color"), ("COLUMNS", "40")):
        monkeypatch.setenv(name, value)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", terminal)
    assert run(["demo", "--fast"]) == 1, "its end misses a ledger"
    shown = terminal.getvalue()
    assert "\x1b[1;36mada$ gitlease whoami" in shown
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert max(map(cell_len, lines)) <= 40


def test_nobody_who_watches_is_no_fault(tmp_path: Path) -> None:
    done = run_program(
        ["bash", "-c", f"exec 3>&1; ('{sys.executable}' -m gitlease demo; echo $? >&3) | true"],
        tmp_path,
        {"PYTHONPATH": ROOT, "TMPDIR": str(tmp_path)},
    )
    assert (done.stdout, done.stderr) == ("141\n", "")
    assert list(tmp_path.iterdir()) == []


def test_what_it_says_to_type_next_works_as_printed(clones: Callable[..., list[Path]]) -> None:
    (one,) = clones(1)
    commit_file(one, "tasks/F001.md", "---\nid: F001\ntitle: first\nstatus: todo\n---\n")
    commit_file(one, "src/main.py", "pass\n")
    for words, why in NEXT:
        done = run_program(
            [sys.executable, "-m", "gitlease", *shlex.split(f"{words}  # {why}", comments=True)],
            one,
            {"PYTHONPATH": ROOT},
        )
        assert (done.returncode, "warning" in done.stderr) == (0, False), (words, done)
