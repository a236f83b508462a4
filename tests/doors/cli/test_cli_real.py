"""The command line as people start it: two clones, a bare remote, real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import run_program, typed
from support.fences import clean_env
from support.running import ask
from support.snapshots import check_words

pytestmark = pytest.mark.nightly

ROOT = str(Path(__file__).parents[3])
Clones = Callable[..., list[Path]]


@pytest.mark.default
def test_one_wins_and_the_other_is_told_by_whom(clones: Clones) -> None:
    one, two = clones(2)
    assert ask(one, "claim", "F001", "--ttl", "1h", "--reason", "why")["status"] == "claimed"
    error = ask(two, "claim", "F001", expect=1)["error"]
    assert (error["holder"], error["resource"]) == ("w1@example.com", "F001")
    assert error["lease"]["reason"] == "why"
    assert error["next"] == [
        "gitlease wait F001 --timeout 1h1m",
        "gitlease claim F001 --wait 1h1m",
    ]
    (theirs,) = ask(two, "list")["leases"]
    (mine,) = ask(one, "list", "--mine")["leases"]
    assert (theirs["mine"], mine["mine"], mine["token"]) == (False, True, theirs["token"])
    assert ask(two, "renew", "F001", expect=3)["error"]["code"] == "not_holder"
    assert ask(one, "extend", "F001", "1w")["capped_to_max"] is True
    assert ask(one, "release", "F001", "--note", "over to you")["status"] == "released"
    claimed = ask(two, "claim", "F001")
    check_words(claimed["notes"][0]["text"])
    assert claimed["lease"]["token"] > mine["token"]
    assert ask(two, "done", "F001")["lease"]["state"] == "completed"
    assert ask(one, "claim", "F001", expect=6)["error"]["code"] == "policy"
    kinds = [event["kind"] for event in ask(one, "log", "F001")["events"]]
    assert kinds == ["completed", "claimed", "released", "extended", "claimed"]


def test_the_hinted_commands_work_as_they_stand(clones: Clones) -> None:
    one, _ = clones(2)
    (one / "src").mkdir()
    steps = ask(one, "-C", "src", "claim", "auth/", "-x", "--session", "s 1", expect=2)
    assert steps["error"]["code"] == "usage"
    claim = ("-C", "src", "claim", "--session", "s 1", "--", "auth/", "-x")
    document = json.loads(typed(one, "--json", *claim).stdout)
    for step in document["next"]:
        done = subprocess.run(
            step.replace("gitlease", f"{sys.executable} -m gitlease", 1),
            shell=True,
            cwd=one,
            env=clean_env({"PYTHONPATH": ROOT}),
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (step, done)
    assert ask(one, "list")["leases"] == []


@pytest.mark.slow
def test_git_lease_is_the_same_command(clones: Clones, tmp_path: Path) -> None:
    (one,) = clones(1)
    script = tmp_path / "bin" / "git-lease"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nfrom gitlease.__main__ import main\nmain()\n")
    script.chmod(0o755)
    env = {"PYTHONPATH": ROOT, "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}"}
    done = run_program(["git", "lease", "claim", "F001"], one, env)
    assert done.returncode == 0, done
    check_words(done.stderr)


@pytest.mark.default("--help | true-141")
@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("--help | true", "141"),
        ("list --json | true", "141"),
        ("list --json >&-", "0"),
        ("list --json 2>&-", "0"),
    ],
)
def test_nobody_who_listens_is_no_fault(clones: Clones, line: str, status: str) -> None:
    (one,) = clones(1)
    words, _, reader = line.partition("|")
    command = f"sleep 0.2; '{sys.executable}' -m gitlease {words}; echo $? >&3"
    done = run_program(
        ["bash", "-c", f"exec 3>&1; ({command}) | {reader or 'cat >/dev/null'}"],
        one,
        {"PYTHONPATH": ROOT},
    )
    assert done.stdout.splitlines()[-1] == status, done
    assert done.stderr == ""
