"""Commands in the background: started, looked after, stopped, killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.fences import clean_env
from support.remotes import Remote
from support.running import LONG, Desk, lives, number_in, sleeper, until
from support.snapshots import check_words, cleaned

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are seen there"),
    pytest.mark.slow,
]


def run_of(desk: Desk, resource: str = "F001") -> Any:
    """The newest run of a resource, as it is listed."""
    runs = desk.document("dispatch", "--list")["runs"]
    return next(x for x in runs if resource in x["resources"])


def ended(desk: Desk, resource: str = "F001") -> Any:
    """The newest run of a resource once it does not run any more."""
    until(lambda: run_of(desk, resource)["state"] != "running", "the end of the run")
    return run_of(desk, resource)


@pytest.mark.default
def test_it_returns_at_once_and_the_command_goes_on_under_its_lease(jo: Desk, kim: Desk) -> None:
    go = jo.clone / "go"
    script = f"echo said; echo aside >&2; env | grep GITLEASE_SE; cat; until test -e '{go}'; do "
    script += "sleep 0.05; done; exit 3"
    answer = jo.document("dispatch", "F001", "--", "sh", "-c", script)
    run = answer["run"]
    assert (answer["status"], run["state"]) == ("dispatched", "running")
    assert run["session"].startswith("dispatch-")
    assert answer["lease"]["session"] == run["session"]
    assert lives(run["pid"])
    assert lives(run["command_pid"])
    log = Path(run["log"])
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    until(lambda: "GITLEASE_SESSION" in log.read_text(), "what it says")
    assert kim.ask("claim", "F001").returncode == 1
    second = jo.ask("dispatch", "F001", "--", "true")
    assert second.returncode == 1
    check_words(cleaned(second.stderr.replace(run["session"], "SESSION")))
    go.touch()
    over = ended(jo)
    assert (over["state"], over["exit"]) == ("ended", 3)
    until(lambda: jo.live() == [], "the release")
    shown = jo.ask("dispatch", "--logs", "F001").stdout
    check_words(shown.replace(run["session"], "SESSION"))
    assert jo.document("dispatch", "--logs", "F001")["text"] == shown


@pytest.mark.nightly
def test_stop_ends_it_in_order_and_waits_for_that(jo: Desk, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    answer = jo.document("run", "--detach", "F001", "--", *sleeper(file))
    assert (answer["command"], answer["status"]) == ("dispatch", "dispatched")
    child = number_in(file)
    refused = jo.document("run", "--detach", "F001", "--", "true", expect=1)
    assert refused["error"]["code"] == "held"
    stopped = jo.document("dispatch", "--stop", "F001")
    assert (stopped["status"], stopped["run"]["state"]) == ("stopped", "stopped")
    assert not lives(child)
    assert jo.live() == []
    again = jo.document("dispatch", "--stop", "F001")
    assert (again["status"], again["run"]["state"]) == ("ended", "stopped")
    assert jo.document("dispatch", "--stop", "F009", expect=7)["error"]["code"] == "not_found"


def test_an_answer_that_cannot_be_written_is_no_refusal(jo: Desk) -> None:
    words = " ".join(f"'{w}'" for w in jo.words("dispatch", "F001", "--", "true"))
    done = subprocess.run(
        ["bash", "-c", f"{words} >/dev/full 2>/dev/full"],
        cwd=jo.clone,
        env=clean_env(jo.env),
        check=False,
    )
    assert done.returncode == 70, "1 would say that it is held"
    assert ended(jo)["state"] == "ended"
    until(lambda: jo.live() == [], "the release")


def test_to_stop_what_has_ended_leaves_its_release_alone(
    path_remote: Remote, jo: Desk, tmp_path: Path
) -> None:
    there, go = tmp_path / "there", tmp_path / "go"
    hook = path_remote.bare / "hooks" / "pre-receive"
    jo.document("dispatch", "F001", "--", "sh", "-c", f"while [ ! -e '{go}' ]; do sleep 0.05; done")
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n[ -e '{there}' ] || {{ touch '{there}'; sleep 2; }}\n")
    hook.chmod(0o755)
    go.touch()
    until(there.exists, "the release at the server")
    assert jo.document("dispatch", "--stop", "F001")["run"]["state"] == "ended"
    assert jo.live() == []
    check_words(jo.ask("dispatch", "--logs", "F001").stdout)


def test_a_run_whose_runner_is_killed_ends_and_is_told_so(
    jo: Desk, kim: Desk, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    answer = jo.document("dispatch", "F001", "--ttl", "6s", "--", *sleeper(file))
    child = number_in(file)
    os.kill(answer["run"]["pid"], signal.SIGKILL)
    until(lambda: not lives(child), "the end of the command")
    assert ended(jo)["state"] == "killed"
    assert kim.ask("claim", "F001", "--wait", "50s").returncode == 0


@pytest.mark.nightly
def test_a_lost_run_says_so(jo: Desk, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    answer = jo.document("dispatch", "F001", "--ttl", "6s", "--", *sleeper(file))
    number_in(file)
    assert jo.ask("release", "F001", "--no-session").returncode == 0
    over = ended(jo)
    assert (over["state"], over["session"]) == ("lost", answer["run"]["session"])
    check_words(over["message"])
    check_words(jo.ask("dispatch", "--logs", "F001", "--follow").stdout)


def test_what_does_not_come_to_run_holds_nothing(jo: Desk, tmp_path: Path) -> None:
    missing = jo.document("dispatch", "F001", "--", "no-such-command", expect=127)
    assert missing["error"]["code"] == "not_found"
    script = jo.clone / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    broken = jo.document("dispatch", "F001", "--", "./script", expect=126)
    assert "interpreter" in broken["error"]["message"]
    assert jo.live() == []
    assert jo.document("dispatch", "--list")["runs"] == []


def test_its_end_is_followed(jo: Desk) -> None:
    go = jo.clone / "go"
    script = f"echo one; until test -e '{go}'; do sleep 0.05; done; echo two"
    assert jo.ask("dispatch", "F001", "--", "sh", "-c", script).returncode == 0
    following = jo.start("dispatch", "--logs", "F001", "--follow")
    assert following.stdout is not None
    assert following.stdout.readline() == "one\n"
    go.touch()
    check_words(following.stdout.read())
    assert following.wait(LONG) == 0


@pytest.mark.parametrize("folder", ["runs", "alive"])
def test_a_file_in_the_place_of_its_folder_is_named_and_mended(jo: Desk, folder: str) -> None:
    (file := jo.clone / ".git/gitlease" / folder).parent.mkdir(exist_ok=True)
    file.write_text("junk")
    refused = jo.ask("dispatch", "F001", "--", "true")
    assert refused.returncode == 7
    check_words(cleaned(refused.stderr.replace(str(jo.clone), "CLONE")))
    assert jo.live() == []
    assert jo.ask("doctor", "--fix").returncode == 0
    assert jo.ask("dispatch", "F001", "--", "true").returncode == 0
