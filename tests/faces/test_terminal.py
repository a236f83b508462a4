"""What a real terminal shows, however narrow it is."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import struct
import termios
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from faces.fake import make_desks
from rich.cells import cell_len
from support.commands import status_of
from support.repos import commit_file
from support.terminals import all_written

from gitlease.faces.cli import output

Clones = Callable[..., list[Path]]
NOTE = "the parser is half done: src/parser/grammar.py wants its tests, 日本語の言葉🎉 " * 4
TASK = f"---\nid: T7\ntitle: {'many words of a title ' * 4}\nstatus: todo\n---\n"
# Every verb that tells a person something, in an order in which each has something to tell.
VERBS = (
    *("init", "claim T7 --reason 'a reason of more words than a line has'", "renew T7"),
    *("extend T7 1h", "note T7 {note}", "claim deep/{deep}/x --path other/{deep}/", "brief"),
    *("show T7", "show deep/{deep}/x", "list", "status", "log", "whoami", "queue --all"),
    "board --once",
    *(
        "queue --mine",
        "next",
        "fence T7 1",
        "check --stale",
        "verify",
        "config",
        "config lease.ttl",
    ),
    *("config lease.ttl 20m", "config --ledger", "hooks install", "hooks status"),
    *("hooks uninstall", "agent claude install", "agent claude status", "agent claude uninstall"),
    *("session list", "session end", "park T7 --for 1h", "claim T7", "release T7 --note {note}"),
    *("start T7", "set T7 todo", "done T7", "wait T9 --any", "watch T9 --any --timeout 1s"),
    *(
        "run R1 --any -- echo ok",
        "dispatch R2 --any -- true",
        "dispatch --list",
    ),
    *("work -- true", "push --dry-run", "revoke T9 --reason why", "server status .", "version"),
    *("serve token add {deep}@example.com --name ci", "serve token list", "serve token revoke ci"),
    *("claim T7", "renew T7", "lock", "uninstall --dry-run", "help recipes"),
)

COPIED = re.compile(
    "^hint: .*git|^  next: |: git push origin |^glt_"
)  # lines with a command or a token, which stays in one piece


def seen(cwd: Path, words: list[str], columns: int) -> str:
    """What a terminal of so many columns shows of a command, without colours."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    with ThreadPoolExecutor(1) as pool, open(os.devnull, "rb") as nothing:
        written = pool.submit(all_written, master)
        status_of(words, cwd, {"TERM": "xterm-256color"}, [nothing.fileno(), slave, slave])
        os.close(slave)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.result()).replace("\r\n", "\n")


@pytest.mark.one_in(3)  # each starts many real processes
@pytest.mark.parametrize("columns", [40, 80, pytest.param(200, marks=pytest.mark.nightly)])
def test_no_verb_writes_wider_than_the_terminal(clones: Clones, columns: int) -> None:
    (one,) = clones(1)
    commit_file(one, "tasks/T7.md", TASK)
    found = []
    for line in VERBS:
        words = shlex.split(line.format(note=shlex.quote(NOTE), deep="/".join(["deep"] * 20)))
        shown = seen(one, words, columns)
        assert shown.strip(), line
        assert "Traceback" not in shown, shown
        found += [
            (line, one)
            for one in shown.split("\n")
            if cell_len(one) > columns and not COPIED.search(one)
        ]
    assert not found


def test_a_long_note_is_folded_and_all_of_it_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    ada, _ = make_desks()
    ada.ok("claim", "F001")
    ada.ok("note", "F001", NOTE + "\n  an indented line of it, " + "folded as well " * 5)
    for words in (["show", "F001"], ["brief"], ["claim", "F001"]):
        out = ada.ok(*words, terminal=True).out
        assert max(map(cell_len, out.split("\n"))) <= 40
        told = re.sub(r"\s+", "", out)
        assert told.count(re.sub(r"\s+", "", NOTE)) == (words != ["brief"])
        assert f"{'foldedaswell' * 5}" in told or words == ["brief"]
    assert re.sub(r"\s+", " ", NOTE).strip() in re.sub(r"\s+", " ", ada.ok("show", "F001").out)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("short  and   as is", "short  and   as is"),
        ("  F001      a row of a list", "  F001      a row\n    of a list"),
        ("exactly-twenty-wide!", "exactly-twenty-wide!"),
        ("a " + "deep/" * 5, "a\n  " + "deep/" * 3 + "dee\n  p/deep/"),
        ("日本語の言葉日本語の言葉", "日本語の言葉日本語\n  の言葉"),
        ("one\n  two words of a second line", "one\n  two words of a\n    second line"),
    ],
)
def test_lines_are_folded_at_blanks_and_keep_their_indentation(text: str, expected: str) -> None:
    assert output._fitted(text, 20) == expected
