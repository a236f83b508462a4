"""git stash in a work tree where an agent works: refused whoever types it, and nothing is lost."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from support.hooked import Pair

from gitlease.core.frozen import replace
from gitlease.git.processes import started_at
from gitlease.git.repository import short_host
from gitlease.guard import presence
from gitlease.guard.presence import Present


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """The process of an agent that is none of ours."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


@pytest.fixture
def present(pair: Pair, process: subprocess.Popen[bytes]) -> Present:
    """An agent that is noted at work in jo's clone, where something is changed."""
    pair.jo.saves("a")
    pair.jo.put("a")
    pair.jo.put("new").rename(pair.jo.root / "untracked")
    pid, now = process.pid, time.time()
    noted = Present(
        holder="kim@example.com",
        session="claude:89abcdef",
        host=short_host() or "",
        since=int(now),
        by="claude",
        names=("claude:89abcdef",),
        pid=pid,
        started=started_at(pid),
        proven=True,
    )
    presence.arrive(str(pair.jo.root / ".git"), "claude 89", noted, now=now)
    return noted


@pytest.mark.parametrize("words", [[], ["-u"], ["push", "-m", "x"], ["save", "x"], ["-k"]])
def test_nobody_stashes_what_an_agent_works_on_and_nothing_is_lost(
    pair: Pair, present: Present, words: list[str]
) -> None:
    before = pair.jo.git("status", "--porcelain"), (pair.jo.root / "a").read_bytes()
    done = pair.jo.run("stash", *words)
    assert done.returncode != 0
    assert "gitlease: git stash: others work in this work tree, too: " in done.stderr
    assert "kim@example.com (session claude:89abcdef on " in done.stderr
    assert (pair.jo.git("status", "--porcelain"), (pair.jo.root / "a").read_bytes()) == before
    assert pair.jo.git("stash", "list") == ""
    way = done.stderr.partition("to get your own work tree: ")[2].splitlines()[0]
    assert pair.jo.run(*shlex.split(way)[1:]).returncode == 0
    assert os.path.isfile(os.path.join(way.split()[-1], "a"))
    assert pair.jo.run("stash", env={"GITLEASE_SKIP": "1"}).returncode == 0


def test_the_agent_itself_and_whoever_is_alone_stash(pair: Pair, present: Present) -> None:
    agent = {"CLAUDE_CODE_SESSION_ID": "89abcdef-1111"}
    assert pair.jo.run("stash", env=agent).returncode == 0
    pair.jo.git("stash", "pop", "-q")
    presence.leave(str(pair.jo.root / ".git"), "claude 89")
    pair.calls()
    assert pair.jo.run("stash").returncode == 0
    assert pair.calls() == []


def test_an_agent_s_own_process_is_not_another(pair: Pair, present: Present) -> None:
    pid = os.getpid()
    own = replace(present, pid=pid, started=started_at(pid))
    presence.arrive(str(pair.jo.root / ".git"), "claude 89", own, now=time.time())
    assert pair.jo.run("stash").returncode == 0


def test_what_else_moves_refs_stash_goes_on(pair: Pair, present: Present) -> None:
    """Stashes that are packed, shown, taken back and dropped, and those of a rebase."""
    jo, skip = pair.jo, {"GITLEASE_SKIP": "1"}
    for text in ("1\n", "2\n"):
        jo.put("a", text)
        jo.git("stash", "-q", env=skip)
    for words in (["pack-refs", "--all"], ["gc", "-q"], ["stash", "drop"], ["stash", "pop"]):
        assert jo.run(*words).returncode == 0, words
    jo.git("checkout", "-q", "-f")
    jo.git("branch", "side")
    jo.saves("a")
    jo.git("checkout", "-q", "side")
    jo.put("a", "in conflict\n")
    done = jo.run("rebase", "-q", "--autostash", "@{-1}")
    assert "cannot store" not in done.stderr
    assert "autostash" in jo.git("stash", "list")


def test_a_gitlease_that_fails_lets_the_stash_pass(pair: Pair, present: Present) -> None:
    (pair.jo.root / ".gitlease.yaml").write_text("guard: {mode: blok}\n")
    done = pair.jo.run("stash")
    assert done.returncode == 0
    assert "this stash is not checked" in done.stderr
