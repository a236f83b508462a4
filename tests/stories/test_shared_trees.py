"""Sessions that share a work tree, and those that do not: what one may not do to the other."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.clock import ManualClock
from support.fences import clean_env
from support.repos import commit_file, git
from support.running import LONG, Desk, number_in, sleeper
from support.snapshots import check_words, cleaned
from support.typed import Agent, Typist

from gitlease.core import replace
from gitlease.faces.agents import handling
from gitlease.git import discover, notes_of, short_host
from gitlease.guard import PRESENT, RECENT, Present, forget_run, note_run, presence

Clones = Callable[..., list[Path]]
EVENTS = Path(__file__).parents[1] / "faces" / "agent_events"
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


def test_what_another_session_works_on_is_not_thrown_away(one: Agent, other: Agent) -> None:
    check_words(cleaned(runs(one)))
    assert "session claude:5b1f0c2e" in runs(other, "git reset --hard")
    assert runs(one, "git status; git commit -m 'git stash'") == ""
    assert runs(one, "git stash list && git stash create") == ""
    assert "session claude:89abcdef" in runs(one, "git checkout -- a")


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


def test_alone_there_is_no_refusal(one: Agent) -> None:
    assert runs(one) == ""
    assert runs(one, agent_id="a9e83d51c0ffee00") == ""  # its sub-agents are a part of it


def test_linked_work_trees_are_apart(one: Agent, other: Agent) -> None:
    linked = one.at.clone.parent / "linked"
    git(one.at.clone, "worktree", "add", "-q", str(linked))
    third = Agent(one.at, session="77777777-2222")
    third.sends("session-start", cwd=str(linked))
    assert runs(third, "git reset --hard", cwd=str(linked)) == ""
    back = f"cd {one.at.clone} && git reset --hard"
    assert "claude:89abcdef" in runs(third, back, cwd=str(linked))
    assert "77777777" not in runs(one, "git reset --hard")
    for name in (str(linked), "../linked", "linked", f"{linked.parent.name}/linked"):
        assert "77777777" in runs(one, f"git worktree remove --force {name}"), name
        assert "77777777" in runs(one, f"git worktree remove {name} -f"), name


@pytest.mark.parametrize(
    "command",
    [
        *("git --git-dir={0}/.git stash", "git -C {0} stash", "GIT_DIR={0}/.git git stash"),
        *("git --git-dir {0}/.git --work-tree {0} reset --hard", "git -C {0}/sub clean -fd"),
        *(
            "rm -rf {0}",
            "cd .. && rm -r clone-1",
            "rm -rf {0}/*",
            "rm -fr {0}/../",
            "rm -r {0}/.git",
        ),
    ],
)
def test_another_tree_is_kept_by_any_name(one: Agent, other: Agent, command: str) -> None:
    (one.at.clone / "sub").mkdir()
    linked = one.at.clone.parent / "linked"
    git(one.at.clone, "worktree", "add", "-q", str(linked))
    third = Agent(one.at, session="77777777-2222")
    third.sends("session-start", cwd=str(linked))
    line = command.format(one.at.clone).replace("clone-1", one.at.clone.name)
    assert "deny" in runs(third, line, cwd=str(linked)), line
    other.sends("session-end")
    one.sends("session-end")
    if "stash" not in line:
        assert runs(third, line, cwd=str(linked)) == ""


def test_a_linked_tree_that_is_worked_in_is_not_deleted(one: Agent) -> None:
    linked = one.at.clone.parent / "trees" / "linked"
    git(one.at.clone, "worktree", "add", "-q", str(linked))
    third = Agent(one.at, session="77777777-2222")
    third.sends("session-start", cwd=str(linked))
    for line in (f"rm -rf {linked}", "rm -rf ../trees", f"cd {linked.parent}; rm -r linked"):
        assert "session claude:77777777" in runs(one, line), line
    assert runs(one, f"rm -rf {linked}/build; rm -rf build") == ""
    third.sends("session-end", cwd=str(linked))
    assert runs(one, f"rm -rf {linked}") == ""


@pytest.mark.parametrize(
    ("setting", "command"),
    [
        ("rebase.autoStash", "git pull --rebase"),
        ("rebase.autoStash", "git rebase main"),
        ("rebase.autoStash", "git pull"),
        ("merge.autoStash", "git pull"),
        ("merge.autoStash", "git merge main"),
    ],
)
def test_a_configured_autostash_is_refused(
    one: Agent, other: Agent, setting: str, command: str
) -> None:
    assert runs(one, command) == ""
    git(one.at.clone, "config", setting, "true")
    assert "session claude:89abcdef" in runs(one, command)
    assert runs(one, f"{command} --no-autostash") == ""
    other.sends("session-end")
    assert runs(one, command) == ""


@pytest.mark.parametrize("verb", ["", "push -m x", "pop", "apply", "drop", "clear"])
def test_stashes_are_refused_while_another_tree_is_worked_in(one: Agent, verb: str) -> None:
    linked = one.at.clone.parent / "linked"
    git(one.at.clone, "worktree", "add", "-q", str(linked))
    assert runs(one, f"git stash {verb}") == ""
    third = Agent(one.at, session="77777777-2222")
    third.sends("session-start", cwd=str(linked))
    told = runs(one, f"git stash {verb}")
    assert told.startswith("deny")
    assert "session claude:77777777" in told
    assert runs(third, f"git stash {verb}", cwd=str(linked)).startswith("deny")
    third.sends("session-end", cwd=str(linked))
    assert runs(one, f"git stash {verb}") == ""


def test_the_name_of_a_linked_work_tree_makes_nobody_the_same(one: Agent) -> None:
    place = one.at.clone.parent / "linked"
    git(one.at.clone, "worktree", "add", "-q", str(place))
    names = ("77777777-2222", "88888888-3333")
    for session in names:
        Agent(one.at, session=session).sends("session-start", cwd=str(place))
    git_dir = git(place, "rev-parse", "--absolute-git-dir")
    host = short_host() or ""
    both = presence.others([git_dir], (), host, now=one.at.clock.wall_ms / 1e3)
    assert len(both) == 2
    shared = set(both[0].names) & set(both[1].names)
    assert all(name.startswith("worktree:") for name in shared)
    told = runs(Agent(one.at, session=names[0]), cwd=str(place))
    assert "claude:88888888" in told


@pytest.mark.parametrize("ends", ["session-end", "silence", "a kill"])
def test_a_session_that_is_over_is_in_nobodys_way(one: Agent, other: Agent, ends: str) -> None:
    if ends == "session-end":
        other.sends("session-end", reason="clear")  # leases stay then, but the session does not
    elif ends == "silence":
        one.at.clock.advance(RECENT - 1)
        assert "89abcdef" in runs(one)
        one.at.clock.advance(1)
    else:
        git_dir, key = str(one.at.clone / ".git"), f"claude {other.session}"
        found = next(x for _, x, _ in presence._notes([git_dir]) if "89ab" in x.session)
        now = one.at.clock.wall_ms / 1_000
        gone = of_process(found, 2**22 - 1, "1")
        presence.arrive(git_dir, key, of_process(found, gone.pid, "1", proven=False), now=now)
        assert "89abcdef" in runs(one)  # seen once: it may have been started for one event
        presence.arrive(git_dir, key, gone, now=now)
    assert runs(one) == ""
    other.uses_a_tool()
    assert "89abcdef" in runs(one)


def of_process(present: Present, pid: int, started: str, *, proven: bool = True) -> Present:
    return replace(present, pid=pid, started=started, proven=proven)


def test_the_end_of_a_session_takes_its_note_along(one: Agent, other: Agent) -> None:
    notes = notes_of(str(one.at.clone / ".git"))
    assert len(notes.of(PRESENT)) == 2
    one.sends("session-end")
    other.sends("session-end")
    assert not notes.of(PRESENT)


@pytest.mark.parametrize("mode", ["warn", "off"])
def test_the_guard_can_be_told_to_warn_or_to_be_silent(one: Agent, other: Agent, mode: str) -> None:
    (one.at.clone / ".gitlease.yaml").write_text(f"guard: {{mode: {mode}}}\n")
    told = runs(one)
    assert "deny" not in told
    assert ("89abcdef" in told) == (mode == "warn")


def test_a_run_counts_as_long_as_it_lasts(one: Agent) -> None:
    repository = discover(str(one.at.clone))
    actor = one.at.open(".", session="run-7").identity.actor
    note_run(repository, "7", actor, now=one.at.clock.wall_ms / 1_000)
    one.at.clock.advance(10 * RECENT)
    assert "session run-7" in runs(one)
    one.at.env["GITLEASE_SESSION"] = "run-7"  # what runs under it is not another
    assert runs(one) == ""
    del one.at.env["GITLEASE_SESSION"]
    forget_run(repository, "7")
    assert runs(one) == ""


def test_it_is_the_runner_that_is_present_not_its_command(one: Agent, tmp_path: Path) -> None:
    desk = Desk(one.at.clone)
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = desk.start("run", "api", "--any", "--", *sleeper(tmp_path / "pid"), **quiet)
    number_in(tmp_path / "pid")
    present = [x for _, x in notes_of(str(one.at.clone / ".git")).of(PRESENT).values()]
    assert [x["pid"] for x in present if x["by"] == "run"] == [run.pid]
    run.terminate()
    run.wait(LONG)


@pytest.mark.parametrize("name", ["claude", "codex", "cursor"])
def test_every_host_is_told_in_its_own_shape(one: Agent, name: str) -> None:
    data = (EVENTS / f"{name}-before-shell.json").read_text(encoding="utf-8")
    root, now = str(one.at.clone), one.at.clock.wall_ms / 1_000
    sent = data.replace("/repo", root).replace("5b1f0c2e", "0ther000").encode()
    answer, _ = handling.handle((name, "before-shell"), sent, opener=one._open, now=lambda: now)
    assert answer is not None
    said = answer if name == "cursor" else answer["hookSpecificOutput"]
    decision, why = (
        ("permission", "agent_message")
        if name == "cursor"
        else ("permissionDecision", "permissionDecisionReason")
    )
    assert said[decision] == "deny"
    assert "session claude:5b1f0c2e" in said[why]
    assert "\nto " in said[why]
