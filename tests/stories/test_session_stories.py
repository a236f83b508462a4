"""One person's sessions: runs that bind, workers that are told apart, and ends that keep edges."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.hooked import share_tasks
from support.remotes import Remote
from support.repos import git
from support.running import LONG, Desk, desks_in, number_in, sleeper, until

import gitlease

pytestmark = pytest.mark.nightly

Clones = Callable[..., list[Path]]
JO = "jo@example.com"


@pytest.fixture
def three(path_remote: Remote, clones: Clones) -> Iterator[tuple[Desk, Desk, Desk]]:
    """Two clones of Jo's, and Kim's, with two tasks."""
    made = clones(3)
    for clone in made[:2]:
        git(clone, "config", "user.email", JO)
    share_tasks(made, ("F001", "F002"), path_remote.env)
    with desks_in(made) as opened:
        yield opened[0], opened[1], opened[2]


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


@pytest.mark.default
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
    assert laptop.document("dispatch", "--stop", "F001")["status"] == "stopped"
    assert unbound(laptop)
    assert f"assigned: [{JO}]" in (laptop.clone / "tasks" / "F001.md").read_text(encoding="utf-8")
    assert desk.ask("run", "F001", "--", "true").returncode == 0
    assert unbound(desk)


@pytest.mark.slow("granted")
@pytest.mark.parametrize("claimed", [True, False], ids=["bound", "granted"])
def test_what_a_killed_run_had_is_let_go_by_the_next_command_of_its_clone(
    three: tuple[Desk, Desk, Desk], tmp_path: Path, claimed: bool
) -> None:
    laptop, desk, _ = three
    if claimed:
        laptop.document("claim", "F001")
    runner = "$(cut -d' ' -f4 /proc/$PPID/stat)"  # its parent is the guardian
    at_once = f'echo $$ >"$0"; kill -9 {runner}; while :; do sleep 0.1; done'
    run = laptop.start("run", "F001", "--", "sh", "-c", at_once, str(tmp_path / "pid"))
    child = number_in(tmp_path / "pid")
    assert run.wait(LONG) == -signal.SIGKILL
    dead = session_of(desk)
    until(lambda: not os.path.exists(f"/proc/{child}"), "the end of the command")
    assert desk.document("claim", "F001", expect=1)["error"]["code"] == "held"
    assert "process ended" in desk.ask("list").stdout
    assert f"session {dead}, 1 lease, " in (shown := desk.ask("status").stdout)
    assert ", process ended" in shown
    assert re.search(r"^process +ended$", desk.ask("show", "F001").stdout, re.M)
    for words in (["list"], ["show", "F001"], ["status"]):
        assert [x["process_ended"] for x in desk.document(*words)["leases"]] == [True], words
    told = f"F001: session {dead} is dead, and no longer holds it"
    until(lambda: told in laptop.ask("claim", "F002").stderr, "the end of its whole group")
    (lease,) = laptop.document("show", "F001")["leases"]
    assert (lease["session"], lease["state"]) == (None, "active" if claimed else "expired")
    assert laptop.ask("run", "F001", "--", "true").returncode == 0


@pytest.mark.slow
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


# --- the end of a session -------------------------------------------------------------------------

AGENT = "claude:aaaabbbb"


def test_an_agent_that_ends_leaves_its_tasks_to_its_person(three: tuple[Desk, Desk, Desk]) -> None:
    laptop, desk, kim = three

    for words in (("F001",), ("port-80", "--any"), ("F002", "--layer", "team")):
        laptop.document("claim", *words, "--session", AGENT)
    assert desk.document("list")["leases"][0]["session"] == AGENT
    session = "aaaabbbb-0000-4000-8000-000000000000"
    data = {"session_id": session, "cwd": str(laptop.clone), "reason": "logout"}
    done = laptop.ask("agent", "claude", "session-end", input=json.dumps(data))
    assert (done.returncode, done.stderr) == (0, "")
    for layer, name in (("global", "F001"), ("team", "F002")):
        over = [(name, "expired", None)]
        until(lambda: leases_in(laptop, layer) == over, f"the end in layer {layer}")  # noqa: B023
        refused = kim.document("claim", name, "--layer", layer, expect=1)
        assert refused["error"]["holder"] == JO, "its edge was never pushed, and is respected"
    text = (laptop.clone / "tasks" / "F001.md").read_text(encoding="utf-8")
    assert f"assigned: [{JO}]" in text
    assert desk.document("claim", "F001")["status"] == "claimed"
    assert desk.document("release", "F001")["edge"] == "removed"
    assert kim.document("claim", "F001")["status"] == "claimed"


def leases_in(desk: Desk, layer: str) -> list[tuple[str, str, str | None]]:
    leases = desk.document("list", "--all", "--layer", layer)["leases"]
    return [(x["resource"], x["state"], x["session"]) for x in leases]
