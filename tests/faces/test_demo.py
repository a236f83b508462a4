"""The play of ``gitlease demo``: what it shows, where it shows it, and when it pauses."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from support.fences import clean_env
from support.repos import commit_file
from support.snapshots import check_words
from support.terminals import all_written

from gitlease.faces.cli import NEXT, PLAY, DemoScene, DemoTeller, output, run
from gitlease.faces.cli.setup import demo

ROOT = str(Path(__file__).parents[2])
SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")
SAID = (
    "ada$ gitlease next --claim",
    "claimed F002 until",
    "F001 is held by ada@example.com",
    "src/auth/login.py is held by ada@example.com",
    "capped to the ledger's maximum of 8h",
    "claimed after the lapsed lease of ada@example.com",
    "src/pay is held by bob@example.com",
    "src/pay/card.py falls under src/pay, held by bob@example.com",
    "released F001",
    "by ada@example.com at",
    "remote$ git show refs/gitlease/global:leases/",
    "every step behaved as expected",
    *(f"gitlease {words}  # {why}" for words, why in NEXT),
)


def played(cwd: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """The demo as a pipe gets it; settings of the user's that it must not see are there."""
    env = {"TMPDIR": str(cwd), "GITLEASE_LAYER": "elsewhere", "GITLEASE_TTL": "rubbish"}
    return subprocess.run(
        [sys.executable, "-m", "gitlease", "demo", *argv],
        cwd=cwd,
        env=clean_env({"PYTHONPATH": ROOT, **env}),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def played_on_terminal(cwd: Path, width: int) -> str:
    """What a terminal of so many columns gets of the demo, which must succeed."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    env = {"PYTHONPATH": ROOT, "TMPDIR": str(cwd), "TERM": "xterm-256color"}
    child = subprocess.Popen(
        [sys.executable, "-m", "gitlease", "demo", "--fast"],
        cwd=cwd,
        env={name: x for name, x in clean_env(env).items() if name not in ("COLUMNS", "LINES")},
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    shown = all_written(master)
    assert child.wait(120) == 0, shown
    return shown


class Terminal(io.StringIO):
    """Standard output that a person reads."""

    def isatty(self) -> bool:
        return True


def unwrapped(text: str) -> str:
    """Text without blanks: where lines were broken makes no difference."""
    return "".join(text.split())


@pytest.mark.slow
def test_it_keeps_its_folder_on_request_and_speaks_json(tmp_path: Path) -> None:
    done = played(tmp_path, "--keep", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"], done.stderr) == (0, True, "")
    assert {"steps", "folder", "seconds"} <= set(document)
    ends = {step["command"]: step["exit"] for step in document["steps"]}
    assert all(step["exit"] == step["expected"] for step in document["steps"])
    assert ends["git commit -a -m 'log out'"] == 1
    assert (ends["gitlease renew src/pay/"], ends["gitlease push"]) == (3, 1)
    assert document["seconds"] < 60
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
    done = subprocess.run(
        [str(python), "-m", "gitlease", "demo"],
        env=clean_env(env),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [said for said in SAID if said not in done.stdout] == []
    assert "\x1b" not in done.stdout
    assert list((tmp_path / "of the play").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, pytest.param(80, marks=pytest.mark.nightly), 200])
def test_it_fits_the_terminal_and_loses_nothing(tmp_path: Path, width: int) -> None:
    shown = played_on_terminal(tmp_path, width)
    assert {"\x1b[1;36m", "\x1b[1;35m"} <= set(SEQUENCE.findall(shown)), "a colour for each"
    plain = SEQUENCE.sub("", shown)
    assert "\x1b" not in plain, "a sequence was cut"
    lines = plain.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert [said for said in SAID if unwrapped(said) not in unwrapped(plain)] == []


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


def test_nobody_who_watches_is_no_fault(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"exec 3>&1; ('{sys.executable}' -m gitlease demo; echo $? >&3) | true"],
        cwd=tmp_path,
        env=clean_env({"PYTHONPATH": ROOT, "TMPDIR": str(tmp_path)}),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("141\n", "")
    assert list(tmp_path.iterdir()) == []


def test_what_it_says_to_type_next_works_as_printed(clones: Callable[..., list[Path]]) -> None:
    (one,) = clones(1)
    commit_file(one, "tasks/F001.md", "---\nid: F001\ntitle: first\nstatus: todo\n---\n")
    commit_file(one, "src/main.py", "pass\n")
    for words, why in NEXT:
        done = subprocess.run(
            [sys.executable, "-m", "gitlease", *shlex.split(f"{words}  # {why}", comments=True)],
            cwd=one,
            env=clean_env({"PYTHONPATH": ROOT}),
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        assert (done.returncode, "warning" in done.stderr) == (0, False), (words, done)


# --- pauses ----------------------------------------------------------------------------------


def test_it_pauses_before_each_part_and_not_between_its_commands(tmp_path: Path) -> None:
    pauses: list[float] = []
    (tmp_path / "ada").mkdir()
    stage = demo.Stage(str(tmp_path), DemoTeller(quiet=True), pauses.append)
    for about in ("first", "", "", "second"):
        stage.play(DemoScene("ada", "git --version", says="git version", about=about))
    assert pauses == [demo.PAUSE] * 2
    assert len(stage.steps) == 4


def test_all_pauses_leave_it_within_a_minute() -> None:
    parts = 1 + sum(bool(scene.about) for scene in PLAY)
    assert 15 < parts * demo.PAUSE < 40, "the commands take ten seconds more"


@pytest.mark.parametrize(
    ("terminal", "words", "paced"),
    [
        (True, (), True),
        (True, ("--fast",), False),
        (True, ("--json",), False),
        (False, (), False),
        (False, ("--color", "always"), False),
    ],
)
def test_only_a_person_at_a_terminal_is_given_time(
    terminal: bool, words: tuple[str, ...], paced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[demo.Stage] = []
    monkeypatch.setattr(output, "FORM", output.OutputForm())
    monkeypatch.setattr(sys, "stdout", Terminal() if terminal else io.StringIO())
    monkeypatch.setattr(demo, "_perform", stages.append)
    assert run(["demo", *words]) == 0
    assert [stage.pause is time.sleep for stage in stages] == [paced]


# --- on a terminal ---------------------------------------------------------------------------


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """A short play as a terminal of so many columns shows it."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(output, "FORM", output.OutputForm())

    def show(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        terminal = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            teller = DemoTeller(quiet=False)
            teller.heading("# both")
            teller.command("ada", "git one")
            teller.printed(f"{'x' * 150}\n\n  größe 大きさ \x1b[31m\n", refused=False)
            teller.command("bob", "git two")
            teller.printed("no\nhint: git three\nwarning: old\n", refused=True)
            teller.plain("the end")
        return terminal.getvalue().split("\n")[:-1]

    return show


@pytest.mark.parametrize("width", [40, 80, 201])
def test_lines_are_wrapped_and_not_cut(width: int, shown: Callable[[int], list[str]]) -> None:
    lines = [SEQUENCE.sub("", line) for line in shown(width)]
    assert max(map(cell_len, lines)) <= width
    assert "".join(lines).count("x") == 150 + ("x1b" in "".join(lines))
    assert any("größe 大きさ" in line for line in lines)
    assert "\x1b" not in "".join(lines)
    assert {"ada$ git one", "bob$ git two", "hint: git three"} <= set(lines)
    assert {"# both", "the end"} <= set(lines)


def test_each_worker_has_a_colour_and_a_refusal_is_red(shown: Callable[[int], list[str]]) -> None:
    lines = shown(80)
    for line in (
        "\x1b[1;36mada$ git one\x1b[0m",
        "\x1b[1;35mbob$ git two\x1b[0m",
        "\x1b[31mno\x1b[0m",
        "\x1b[2mhint: git three\x1b[0m",
        "\x1b[33mwarning: old\x1b[0m",
        "the end",
    ):
        assert line in lines


def test_no_color_is_honoured_and_the_option_stands_above_it(
    shown: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    output.FORM.color = "never"
    assert "\x1b" not in "".join(shown(200))
    output.FORM.color = "auto"
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in "".join(shown(200))
    output.FORM.color = "always"
    assert "\x1b[1;36mada$ git one" in "".join(shown(200))


def test_a_dumb_terminal_gets_lines_that_fit(
    shown: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    lines = shown(40)
    assert "\x1b" not in "".join(lines)
    assert max(map(cell_len, lines)) == 40
