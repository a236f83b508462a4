"""The live board on real terminals, in clones of real remotes in which others are at work."""

from __future__ import annotations

import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.cells import cell_len
from support.fences import clean_env
from support.remotes import Remote
from support.running import LONG, ROOT, Desk, hurried, until
from support.terminals import PlayedTerminal, played

pytestmark = pytest.mark.slow

LEFT = b"\x1b[?25h\x1b[?1049l"  # the cursor is back, and the screen of before
BOARD = [sys.executable, "-m", "gitlease", "board"]
# A picture counts once the next one begins, and what others do is seen with the next look.
HURRIED = hurried({"gitlease.board.live.TICK": 0.2, "gitlease.kernel.ledger.watch.LOOK": 0.5})


@contextmanager
def looking(
    clone: Path,
    *words: str,
    columns: int = 100,
    lines: int = 30,
    leads: bool = True,
    **more: str,
) -> Iterator[PlayedTerminal]:
    env = clean_env({"PYTHONPATH": ROOT, "TERM": "xterm-256color", **more})
    for name in ("COLUMNS", "LINES"):
        env.pop(name, None)
    size = {"columns": columns, "lines": lines}
    with played([*HURRIED, "board", *words], clone, env, **size, leads=leads) as terminal:
        yield terminal


@contextmanager
def shell(clone: Path) -> Iterator[PlayedTerminal]:
    bash = shutil.which("bash")
    assert bash is not None
    env = clean_env({"PYTHONPATH": ROOT, "TERM": "xterm-256color", "PS1": "prompt> "})
    with played([bash, "--norc", "-i"], clone, env, columns=100) as terminal:
        terminal.until(lambda _: b"prompt> " in terminal.written, "the shell")
        yield terminal


def seconds_left(shown: str, name: str) -> int:
    """What a picture says how long a lease still has; it has less than an hour."""
    found = re.search(rf"{name}\b.*?(?:(\d+)m )?(\d+)s left", shown)
    assert found is not None, shown
    return int(found[1] or 0) * 60 + int(found[2])


@pytest.mark.slow("60")
@pytest.mark.nightly
@pytest.mark.parametrize("columns", [60, 100, 200])
def test_what_others_do_comes_in(clone: Path, kim: Desk, columns: int) -> None:
    with looking(clone, columns=columns) as terminal:
        terminal.until(lambda shown: "FREE 2" in shown, "the tasks")
        kim.document("claim", "F001", "--session", "build-7", "--reason", "rate limits")
        shown = terminal.until(lambda shown: "HELD 1" in shown, "the claim")
        assert "kim@example.com" in shown
        left = seconds_left(shown, "F001")
        shown = terminal.until(lambda x: "HELD" in x and seconds_left(x, "F001") < left, "the time")
        assert "claimed F001" in shown
        kim.document("claim", "deploy", "--any", "--ttl", "6s")
        terminal.until(lambda shown: "lost deploy by kim@example.com" in shown, "the loss")
        kim.document("release", "F001", "--session", "build-7", "--note", "half done")
        shown = terminal.until(lambda shown: "released F001" in shown, "the release")
        assert "EXPIRED 1" in shown
        for line in terminal.lines():
            assert cell_len(line) <= columns
        terminal.type("\x03")
        assert terminal.ended() == 130
    assert b"Traceback" not in terminal.written


def test_it_takes_no_keys(clone: Path, kim: Desk) -> None:
    with looking(clone, lines=12) as terminal:
        shown = terminal.until(lambda shown: "FREE 2" in shown, "the board")
        assert "gitlease board --web" in shown
        terminal.type("q/j\x1b[B\n")
        kim.document("claim", "F001")
        terminal.until(lambda shown: "HELD 1" in shown, "what others do")
        terminal.type("\x03")
        assert terminal.ended() == 130


@pytest.mark.slow("2-130")
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("\x03", 130),
        (signal.SIGINT, 130),
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGHUP, -signal.SIGHUP),
    ],
)
def test_however_it_ends_the_terminal_is_as_it_was(
    clone: Path, how: str | signal.Signals, code: int
) -> None:
    with looking(clone) as terminal:
        terminal.until(lambda shown: "FREE 2" in shown, "the board")
        played_with = terminal.modes()
        if isinstance(how, str):
            terminal.type(how)
        else:
            terminal.process.send_signal(how)
        assert terminal.ended() == code
        assert terminal.modes() == played_with
        assert terminal.written.endswith(LEFT)


@pytest.mark.parametrize("leads", [True, False], ids=["by a signal", "by an error"])
def test_a_terminal_that_is_closed_ends_it_quietly(clone: Path, leads: bool) -> None:
    with looking(clone, leads=leads) as terminal:
        terminal.until(lambda shown: "FREE 2" in shown, "the board")
        terminal.hang_up()
        assert terminal.ended() == -signal.SIGHUP


def test_a_signal_ends_it_though_nobody_reads(clone: Path) -> None:
    with looking(clone, columns=500, lines=300) as terminal:
        until(lambda: not terminal.takes_more(), "the terminal is full")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(LONG) == -signal.SIGTERM
        terminal.ended()
        assert terminal.written.endswith(LEFT)


@pytest.mark.nightly
def test_it_can_be_stopped_and_continued(clone: Path) -> None:
    with shell(clone) as terminal:
        terminal.type(f"{' '.join(BOARD)}\n")
        terminal.until(lambda shown: "FREE 2" in shown, "the board")
        terminal.type("\x1a")
        terminal.until(lambda _: b"Stopped" in terminal.written, "the shell")
        assert LEFT in terminal.written
        terminal.written = b""
        terminal.type("fg\n")
        terminal.until(lambda shown: "FREE 2" in shown, "the board again")
        terminal.written = b""
        terminal.type("\x1a")
        terminal.until(lambda _: b"Stopped" in terminal.written, "the shell")
        bash_id = terminal.process.pid
        children = Path(f"/proc/{bash_id}/task/{bash_id}/children")
        assert children.read_text().split()
        terminal.type("kill %1\n")
        until(lambda: not children.read_text().split(), "its end in the background")


def test_a_remote_that_is_away_is_said_and_waited_for(clone: Path, path_remote: Remote) -> None:
    away = path_remote.bare.with_name("away.git")
    path_remote.bare.rename(away)
    with looking(clone) as terminal:
        shown = terminal.until(lambda shown: "out of date:" in shown, "the trouble")
        assert "still trying" in shown
        assert "FREE 2" in shown
        assert "live" not in shown
        assert "asking the remote" not in shown
        away.rename(path_remote.bare)
        terminal.until(lambda shown: "live" in shown and "out of date" not in shown, "an answer")


@pytest.mark.default
def test_a_refusal_is_told_on_the_terminal_as_it_was(clone: Path) -> None:
    with looking(clone, "--layer", "nowhere") as terminal:
        assert terminal.ended() == 7
    assert b"there is no layer nowhere" in terminal.written
    assert b"\x1b[?1049h" not in terminal.written


@pytest.mark.slow("60")
def test_messages_of_the_look_before_the_board_stay_on_the_terminal(
    clone: Path, path_remote: Remote, kim: Desk
) -> None:
    ada = Desk(clone, env=path_remote.env)
    ada.document("claim", "deploy", "--any", "--layer", "art")
    kim.document("note", "deploy", "main is red", "--to-holder", "--layer", "art")
    with looking(clone, "--layer", "art") as terminal:
        terminal.until(lambda shown: "HELD 1" in shown, "the board")
        before, _, _ = terminal.written.partition(b"\x1b[?1049h")
        terminal.type("\x03")
        assert terminal.ended() == 130
    assert b'note on deploy by kim@example.com: "main is red"' in before
