"""Sessions that share a work tree, and those that do not: what one may not do to the other."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.clock import ManualClock
from support.fences import clean_env
from support.repos import commit_file, git
from support.running import LONG, Desk, number_in, sleeper
from support.shell_texts import ALLOWED_TEXTS, DENIED_TEXTS, texts_in
from support.typed import Agent, Typist

from gitlease.guard import presence
from gitlease.guard.presence import PRESENT, RECENT
from gitlease.kernel.git.files import notes_of
from gitlease.kernel.ledger.answers import Answer
from gitlease.kernel.rules.frozen import JSON, replace
from gitlease.runs.records import record_of, remember, runs_of

pytestmark = pytest.mark.slow

Clones = Callable[..., list[Path]]
STASH = "npm test && git stash -u"


@pytest.fixture
def one(clones: Clones) -> Agent:
    """An agent at work in a clone."""
    (clone,) = clones(1)
    agent = Agent(Typist(clone, ManualClock()))
    agent.at.ok("agent claude install")
    commit_file(clone, "a", "a")
    agent.sends("session-start")
    return agent


@pytest.fixture
def other(one: Agent) -> Agent:
    """Another one in the same work tree."""
    agent = Agent(one.at, session="89abcdef-1111")
    agent.sends("session-start")
    return agent


def runs(agent: Agent, command: str = STASH, **data: str) -> str:
    """What an agent is told before a shell runs a command."""
    return agent.sends("before-shell", tool_name="Bash", tool_input={"command": command}, **data)


@pytest.mark.default
def test_what_another_session_works_on_is_not_thrown_away(one: Agent, other: Agent) -> None:
    assert runs(one, agent_id="a9e83d51c0ffee00").startswith("deny")
    assert "session claude:5b1f0c2e" in runs(other, "git reset --hard")
    assert runs(one, "git status; git commit -m 'git stash'") == ""
    assert runs(one, "git stash list && git stash create") == ""
    assert "session claude:89abcdef" in runs(one, "git checkout -- a")


def test_the_table_of_texts_is_held_to(one: Agent, other: Agent) -> None:
    wrong = [text for text in texts_in(DENIED_TEXTS) if not runs(one, text).startswith("deny")]
    wrong += [text for text in texts_in(ALLOWED_TEXTS) if runs(one, text)]
    assert wrong == []
    other.sends("session-end")
    assert [text for text in texts_in(DENIED_TEXTS) if runs(one, text)] == []


@pytest.mark.nightly
def test_the_way_out_works_as_it_is_printed(one: Agent, other: Agent) -> None:
    for session in (one, other):
        told = runs(session, "git reset --hard")
        command = told.rpartition("to get your own work tree: ")[2]
        assert command.startswith("git -C ")
        subprocess.run(
            shlex.split(command), cwd="/", env=clean_env(), check=True, capture_output=True
        )
        mine = command.split()[-1]
        assert (Path(mine) / "a").read_text() == "a"
        assert runs(session, "git reset --hard", cwd=mine) == ""
        assert runs(session, f"cd {mine} && git checkout -f") == ""
        again = runs(session, "git clean -fd")
        assert again.endswith(f"{mine}-2")  # there it is taken


def test_linked_work_trees_are_apart(one: Agent, other: Agent) -> None:
    linked = one.at.clone.parent / "linked"
    git(one.at.clone, "worktree", "add", "-q", str(linked))
    third = Agent(one.at, session="77777777-2222")
    third.sends("session-start", cwd=str(linked))
    assert runs(third, "git reset --hard", cwd=str(linked)) == ""
    back = f"cd {one.at.clone} && git reset --hard"
    assert "claude:89abcdef" in runs(third, back, cwd=str(linked))
    assert "77777777" not in runs(one, "git reset --hard")
    for path in (str(linked), "../linked"):
        assert "77777777" in runs(one, f"git worktree remove --force {path}"), path


def test_a_linked_tree_that_is_worked_in_is_not_deleted(one: Agent) -> None:
    linked = one.at.clone.parent / "trees" / "linked"
    git(one.at.clone, "worktree", "add", "-q", str(linked))
    third = Agent(one.at, session="77777777-2222")
    third.sends("session-start", cwd=str(linked))
    assert "session claude:77777777" in runs(one, "rm -rf ../trees")
    assert "session claude:77777777" in runs(one, f"rm -rf {linked}/*")
    assert "session claude:77777777" in runs(one, f"rm -rf {linked}/build")
    assert runs(one, "rm -rf build") == ""
    third.sends("session-end", cwd=str(linked))
    assert runs(one, f"rm -rf {linked}") == ""


def test_stashes_are_refused_while_another_tree_is_worked_in(one: Agent) -> None:
    linked = one.at.clone.parent / "linked"
    git(one.at.clone, "worktree", "add", "-q", str(linked))
    assert runs(one, "git stash pop") == ""
    third = Agent(one.at, session="77777777-2222")
    third.sends("session-start", cwd=str(linked))
    for verb in ("", "pop", "drop"):
        assert "session claude:77777777" in runs(one, f"git stash {verb}")
        assert runs(third, f"git stash {verb}", cwd=str(linked)).startswith("deny")
    third.sends("session-end", cwd=str(linked))
    assert runs(one, "git stash pop") == ""


@pytest.mark.default("a kill")
@pytest.mark.nightly
@pytest.mark.parametrize("ends", ["silence", "a kill"])
def test_a_session_that_is_over_is_in_nobodys_way(one: Agent, other: Agent, ends: str) -> None:
    if ends == "silence":
        one.at.clock.advance(RECENT - 1)
        assert "89abcdef" in runs(one)
        one.at.clock.advance(1)
    else:
        git_dir = str(one.at.clone / ".git")
        name = presence._name(git_dir, f"claude {other.session}")
        found = next(x for _, x, _ in presence._notes([git_dir]) if "89ab" in x.session)
        now = one.at.clock.wall_ms / 1_000
        gone = replace(found, pid=2**22 - 1, started="1", proven=True)
        notes_of(git_dir).put(PRESENT, name, JSON.dump(replace(gone, proven=False)), at=now)
        assert "89abcdef" in runs(one)  # seen once: it may have been started for one event
        notes_of(git_dir).put(PRESENT, name, JSON.dump(gone), at=now)
    assert runs(one) == ""
    other.uses_a_tool()
    assert "89abcdef" in runs(one)


def test_a_run_counts_as_long_as_it_lasts(one: Agent) -> None:
    space = one.at.open(".", session="run-7")
    record = record_of(space, Answer(status="claimed"))
    remember(space, record)
    one.at.clock.advance(10 * RECENT)
    assert "session run-7" in runs(one)
    one.at.env["GITLEASE_SESSION"] = "run-7"  # what runs under it is not another
    assert runs(one) == ""
    del one.at.env["GITLEASE_SESSION"]
    runs_of(space).retire(record)
    assert runs(one) == ""


def test_it_is_the_runner_that_is_present_not_its_command(one: Agent, tmp_path: Path) -> None:
    desk = Desk(one.at.clone)
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = desk.start("run", "api", "--any", "--", *sleeper(tmp_path / "pid"), **quiet)
    number_in(tmp_path / "pid")
    present = presence.others([str(one.at.clone / ".git")], (), now=time.time())
    assert [x.pid for x in present if x.by == "run"] == [run.pid]
    run.terminate()
    run.wait(LONG)
