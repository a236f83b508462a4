"""One person's sessions: runs that bind, workers that are told apart, and ends that keep edges."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from support.fences import clean_env
from support.remotes import Remote
from support.repos import git
from support.running import LONG, Desk, desks_in, number_in, sleeper, until
from support.snapshots import check_words, cleaned, raises

import gitlease

pytestmark = [pytest.mark.sampled(2)]

Clones = Callable[..., list[Path]]
JO = "jo@example.com"
TASK = "---\nid: {name}\ntitle: The {name}\nstatus: todo\nassigned: []\n---\n"


@pytest.fixture
def three(path_remote: Remote, clones: Clones) -> Iterator[tuple[Desk, Desk, Desk]]:
    """Two clones of Jo's, and Kim's, with two tasks."""
    laptop, desk, other = made = clones(3)
    for clone in (laptop, desk):
        git(clone, "config", "user.email", JO)
    (laptop / "tasks").mkdir()
    for name in ("F001", "F002"):
        (laptop / "tasks" / f"{name}.md").write_text(TASK.format(name=name), encoding="utf-8")
    git(laptop, "add", "tasks")
    git(laptop, "commit", "-q", "-m", "tasks")
    git(laptop, "push", "-q", "origin", "HEAD:main", env=path_remote.env)
    for clone in (desk, other):
        git(clone, "pull", "-q", "origin", "main", env=path_remote.env)
    with desks_in(made) as opened:
        yield opened[0], opened[1], opened[2]


def elsewhere(desk: Desk, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in another terminal: of another session of the machine's."""
    return subprocess.run(
        desk.words(*words),
        cwd=desk.clone,
        env=clean_env(desk.env),
        capture_output=True,
        encoding="utf-8",
        timeout=LONG,
        check=False,
        start_new_session=True,
    )


def session_of(desk: Desk, name: str = "F001") -> str | None:
    """The session that a lease is bound to."""
    (lease,) = desk.document("show", name)["leases"]
    session: str | None = lease["session"]
    return session


def unbound(desk: Desk) -> bool:
    """Whether the person holds the task live, and no session does."""
    (lease,) = desk.document("show", "F001")["leases"]
    return lease["session"] is None and lease["state"] == "active"


# --- a run binds ----------------------------------------------------------------------------------


def test_of_two_runs_of_what_its_person_holds_only_one_is_started(
    three: tuple[Desk, Desk, Desk], tmp_path: Path
) -> None:
    laptop, desk, _ = three
    laptop.document("claim", "F001")
    first = laptop.document("dispatch", "F001", "--", *sleeper(tmp_path / "pid"))
    number_in(tmp_path / "pid")
    run = first["run"]["session"]
    assert first["lease"]["session"] == run
    for other in (laptop, desk):
        for words in (("dispatch", "F001", "--", "true"), ("run", "F001", "--", "true")):
            done = other.ask(*words)
            assert done.returncode == (1 if words[0] == "dispatch" else 75), done
            assert f"(session {run} on {socket.gethostname().partition('.')[0]}" in done.stderr
            assert "ask them" not in done.stderr
            assert "release" not in done.stderr
    assert laptop.document("dispatch", "--stop", "F001")["status"] == "stopped"
    assert unbound(laptop)
    assert f"assigned: [{JO}]" in (laptop.clone / "tasks" / "F001.md").read_text(encoding="utf-8")
    assert desk.ask("run", "F001", "--", "true").returncode == 0
    assert unbound(desk)


def test_a_refusal_says_which_process_runs_it(
    three: tuple[Desk, Desk, Desk], tmp_path: Path
) -> None:
    laptop, desk, _ = three
    laptop.document("claim", "F001")
    run = laptop.start("run", "F001", "--", *sleeper(tmp_path / "pid"))
    number_in(tmp_path / "pid")
    for verb in ("run", "dispatch", "claim"):
        said = desk.ask(verb, "F001", *(() if verb == "claim" else ("--", "true"))).stderr
        said = said.replace(f"{session_of(desk)}", "SESSION").replace(f"pid {run.pid}", "pid PID")
        check_words(cleaned(said))
    run.send_signal(signal.SIGTERM)
    assert run.wait(LONG) != 0
    assert unbound(laptop), "however it ends"


@pytest.mark.parametrize("claimed", [True, False], ids=["bound", "granted"])
def test_what_a_killed_run_had_is_let_go_by_the_next_command_of_its_clone(
    three: tuple[Desk, Desk, Desk], tmp_path: Path, claimed: bool
) -> None:
    laptop, desk, _ = three
    if claimed:
        laptop.document("claim", "F001")
    at_once = 'echo $$ >"$0"; kill -9 $PPID; while :; do sleep 0.1; done'
    run = laptop.start("run", "F001", "--", "sh", "-c", at_once, str(tmp_path / "pid"))
    child = number_in(tmp_path / "pid")
    assert run.wait(LONG) == -signal.SIGKILL
    dead = session_of(desk)
    until(lambda: not os.path.exists(f"/proc/{child}"), "the end of the command")
    said = desk.ask("claim", "F001").stderr
    said = said.replace(f"{dead}", "SESSION").replace(f"pid {run.pid}", "pid PID")
    check_words(cleaned(said))  # its process has ended on this very machine
    assert "process ended" in desk.ask("list").stdout
    told = f"F001: session {dead} is dead, and no longer holds it"
    until(lambda: told in laptop.ask("claim", "F002").stderr, "the end of its whole group")
    (lease,) = laptop.document("show", "F001")["leases"]
    assert (lease["session"], lease["state"]) == (None, "active" if claimed else "expired")
    assert laptop.ask("run", "F001", "--", "true").returncode == 0


def test_a_hold_binds_for_its_block(three: tuple[Desk, Desk, Desk]) -> None:
    laptop, desk, _ = three
    laptop.document("claim", "F001")
    with gitlease.hold("F001", directory=str(laptop.clone), environ={}) as held:
        assert session_of(desk) == held.session
        assert desk.ask("run", "F001", "--", "true").returncode == 75
        with (
            pytest.raises(gitlease.LeaseHeld),
            gitlease.hold("F001", directory=str(desk.clone), environ={}),
        ):
            pass
    assert unbound(desk)


# --- one worker is one session --------------------------------------------------------------------


def test_a_claim_of_what_is_held_in_another_terminal_says_so(
    three: tuple[Desk, Desk, Desk],
) -> None:
    laptop, desk, _ = three
    first = elsewhere(laptop, "claim", "F001")
    assert first.returncode == 0, first.stderr
    again = elsewhere(desk, "claim", "F001")
    assert again.returncode == 0
    check_words(cleaned(re.sub(r"pid \d+", "pid PID", again.stderr)))
    again = elsewhere(desk, "claim", "F001", "--json")
    assert "another terminal" in " ".join(json.loads(again.stdout)["warnings"])
    desk.document("claim", "F002")
    assert "another terminal" not in desk.ask("claim", "F002").stderr


def test_who_wants_it_for_itself_is_refused_what_its_person_holds(
    three: tuple[Desk, Desk, Desk],
) -> None:
    laptop, desk, _ = three
    laptop.document("claim", "F001", "--new")
    for where in (laptop, desk):
        refused = where.document("claim", "F001", "--new", expect=1)
        assert refused["error"]["code"] == "held"
        assert refused["error"]["next"] == ["gitlease show F001"], "nobody waits for themselves"
        check_words(cleaned(where.ask("claim", "F001", "--new").stderr))


def test_the_next_task_is_never_one_that_its_person_holds(three: tuple[Desk, Desk, Desk]) -> None:
    laptop, desk, _ = three
    laptop.document("claim", "F001")
    assert desk.document("next", "--claim")["lease"]["resource"] == "F002"
    assert desk.document("next", "--claim", expect=1)["error"]["code"] == "nothing_left"
    worker = laptop.document("next", "--claim", "--session", "w1", expect=1)
    assert worker["error"]["code"] == "nothing_left"


# --- the end of a session -------------------------------------------------------------------------

ID = "aaaabbbb-0000-4000-8000-000000000000"
AGENT = "claude:aaaabbbb"


def agent(desk: Desk, event: str, **fields: str) -> None:
    """Send an event of a coding agent, as its host does."""
    data = {"session_id": ID, "cwd": str(desk.clone), **fields}
    done = desk.ask("agent", "claude", event, input=json.dumps(data))
    assert (done.returncode, done.stderr) == (0, "")


def _is_over(desk: Desk, layer: str) -> bool:
    leases = desk.document("list", "--all", "--layer", layer)["leases"]
    return all(x["state"] == "expired" for x in leases)


def test_an_agent_that_ends_leaves_its_tasks_to_its_person(three: tuple[Desk, Desk, Desk]) -> None:
    laptop, desk, kim = three
    for words in (("F001",), ("port-80", "--any"), ("F002", "--layer", "team")):
        laptop.document("claim", *words, "--session", AGENT)
    for reason in ("clear", "resume", "compact"):
        agent(laptop, "session-end", reason=reason)
    assert desk.document("list")["leases"][0]["session"] == AGENT
    agent(laptop, "session-end", reason="logout")
    for layer in ("global", "team"):
        until(partial(_is_over, laptop, layer), f"the end in layer {layer}")
    for layer, name in (("global", "F001"), ("team", "F002")):
        left = desk.document("list", "--all", "--layer", layer)["leases"]
        assert [(x["resource"], x["state"], x["session"]) for x in left] == [
            (name, "expired", None)
        ]
        refused = kim.document("claim", name, "--layer", layer, expect=1)
        assert refused["error"]["holder"] == JO, "its edge was never pushed, and is respected"
    text = (laptop.clone / "tasks" / "F001.md").read_text(encoding="utf-8")
    assert f"assigned: [{JO}]" in text
    assert desk.document("claim", "F001")["status"] == "claimed"
    done = desk.document("release", "F001")
    assert done["edge"] == "removed"
    assert kim.document("claim", "F001")["status"] == "claimed"


def test_a_session_ends_in_every_layer_and_gives_back_only_where_asked(
    three: tuple[Desk, Desk, Desk],
) -> None:
    laptop, _, kim = three
    laptop.document("claim", "F001", "--session", "build-7")
    laptop.document("claim", "F002", "--session", "build-7", "--layer", "team")
    (listed,) = laptop.document("session", "list")["sessions"]
    assert (listed["session"], listed["leases"]) == ("build-7", 2)
    said = laptop.ask("session", "end", "build-7", "--release")
    assert said.stdout.splitlines()[0] == "released F001"
    check_words(said.stdout)
    assert "assigned: []" in (laptop.clone / "tasks" / "F001.md").read_text(encoding="utf-8")
    assert kim.document("claim", "F001")["status"] == "claimed"
    assert laptop.document("session", "list")["sessions"] == []


def test_every_session_of_a_person_ends_and_nobody_else_s(three: tuple[Desk, Desk, Desk]) -> None:
    laptop, desk, kim = three
    laptop.document("claim", "F001", "--session", "build-7")
    desk.document("claim", "port-80", "--any", "--session", "night", "--layer", "team")
    laptop.document("claim", "port-81", "--any")
    kim.document("claim", "F002", "--session", "build-7")
    laptop.ask("list", "--layer", "team")
    ended = laptop.document("session", "end", "--all", "--release")
    assert ended["sessions"] == [
        {"session": "build-7", "leases": 1},
        {"session": "night", "leases": 1},
    ]
    assert "assigned: []" in (laptop.clone / "tasks" / "F001.md").read_text(encoding="utf-8")
    left = {x["resource"] for x in kim.document("list")["leases"]}
    assert left == {"F002", "port-81"}
    assert kim.document("list", "--layer", "team")["leases"] == []
    assert laptop.document("session", "end", "--all")["sessions"] == []


def test_a_program_takes_over_only_from_whom_it_expects(three: tuple[Desk, Desk, Desk]) -> None:
    laptop, desk, kim = three
    with gitlease.open(str(laptop.clone), environ={}) as jo:
        jo.claim("F001", new=True)
    with gitlease.open(str(desk.clone), environ={}) as jo, pytest.raises(gitlease.LeaseHeld):
        jo.claim("F001", new=True)
    file = kim.clone / "tasks" / "F002.md"
    file.write_text(TASK.format(name="F002").replace("[]", f"[{JO}]"), encoding="utf-8")
    with gitlease.open(str(kim.clone), environ={}) as other:
        with raises(gitlease.LeaseHeld):
            other.claim("F002", takeover=True, reason="gone", expect_holder="lee@example.com")
        taken = other.claim("F002", takeover=True, reason="gone", expect_holder=JO)
    assert taken.mine
