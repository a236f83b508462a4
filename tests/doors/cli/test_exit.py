"""How the program ends: as Python does, with the command's status, even if its reader has left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.fences import clean_env
from support.running import ROOT

pytestmark = pytest.mark.default

# A command that leaves text in the buffer, and something to be done at the interpreter's exit.
PROGRAM = """\
import atexit, os, sys
import gitlease.__main__ as program
def status(argv, prog):
    atexit.register(open, sys.argv[1], "x")
    print("answer")
    if len(argv) > 1:
        sys.stdout.close()
    return 3
program._status = status
program.main()
"""


def ended(done: Path, *words: str, reads: bool) -> tuple[int, str, str]:
    begin, end = os.pipe()
    if not reads:
        os.close(begin)
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(done), *words],
        env=clean_env({"PYTHONPATH": ROOT}),
        stdout=end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(end)
    if not reads:
        return process.returncode, "", process.stderr
    with open(begin, encoding="utf-8") as read:
        return process.returncode, read.read(), process.stderr


@pytest.mark.parametrize(
    ("words", "reads"),
    [((), True), ((), False), (("closed",), True)],
    ids=["read", "unread", "closed"],
)
def test_status_stays_and_what_is_left_is_done(
    tmp_path: Path, words: tuple[str, ...], reads: bool
) -> None:
    done = tmp_path / "done"
    assert ended(done, *words, reads=reads) == (3, "answer\n" if reads else "", "")
    assert done.exists()
