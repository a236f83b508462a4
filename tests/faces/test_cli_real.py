"""The command line as people start it: two clones, a bare remote, real processes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.commands import run_gitlease
from support.documents import held_to_schema
from support.fences import clean_env
from support.remotes import Remote
from support.repos import assert_untouched, commit_file, git, snapshot
from support.snapshots import check_words
from support.terminals import all_written

pytestmark = pytest.mark.sampled(3)  # each starts real processes

ROOT = str(Path(__file__).parents[2])
Clones = Callable[..., list[Path]]


def gitlease(
    cwd: Path, *argv: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder."""
    return run_gitlease(argv, cwd, env)


def ask(cwd: Path, *argv: str, expect: int = 0) -> Any:
    """Run it with --json; the document."""
    done = gitlease(cwd, *argv, "--json")
    assert done.returncode == expect, done
    return held_to_schema(json.loads(done.stdout))


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


def test_claim_of_an_edge_that_head_has_asks_for_no_commit(
    clones: Clones, path_remote: Remote
) -> None:
    (one,) = clones(1)
    commit_file(one, "tasks/T-1.md", "---\nid: T-1\nstatus: todo\n---\n")
    gitlease(one, "claim", "T-1", "--commit")
    gitlease(one, "release", "T-1")  # its edit is not committed
    claimed = gitlease(one, "claim", "T-1", "--commit")
    assert git(one, "status", "--porcelain") == ""
    check_words(claimed.stdout.splitlines()[1])


def test_the_hinted_commands_work_as_they_stand(clones: Clones) -> None:
    one, _ = clones(2)
    (one / "src").mkdir()
    steps = ask(one, "-C", "src", "claim", "auth/", "-x", "--session", "s 1", expect=2)
    assert steps["error"]["code"] == "usage"
    claim = ("-C", "src", "claim", "--session", "s 1", "--", "auth/", "-x")
    document = json.loads(gitlease(one, "--json", *claim).stdout)
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


def test_init_writes_the_file_and_makes_the_ledger_and_can_be_repeated(
    clones: Clones, path_remote: Remote
) -> None:
    one, two = clones(2)
    first = ask(one, "init")
    assert Path(first["settings_file"]).is_file()
    again = ask(one, "init")
    assert (again["settings_file"], again["ledger"]["id"]) == (None, first["ledger"]["id"])
    assert ask(two, "init")["ledger"]["id"] == first["ledger"]["id"]
    assert git(path_remote.bare, "rev-parse", "refs/gitlease/global")


def test_init_without_its_remote_writes_the_file_and_warns(
    clones: Clones, path_remote: Remote
) -> None:
    (one,) = clones(1)
    path_remote.bare.rename(path_remote.bare.with_name("away.git"))
    done = gitlease(one, "init")
    assert (done.returncode, (one / ".gitlease.yaml").is_file()) == (0, True)
    assert "warning: " in done.stderr
    assert ask(one, "claim", "F001", expect=5)["error"]["code"] == "unavailable"
    assert "Traceback" not in done.stderr


def test_a_ttl_that_the_ledger_will_refuse_is_set_with_a_warning(clones: Clones) -> None:
    (one,) = clones(1)
    assert gitlease(one, "config", "lease.ttl", "9h").stderr == "", "no ledger is known"
    gitlease(one, "claim", "F001", "--ttl", "1h")
    assert gitlease(one, "config", "lease.ttl", "8h").stderr == ""
    for admins in ("", "w1@example.com"):
        if admins:
            gitlease(one, "config", "--ledger", "admins", admins)
        said = gitlease(one, "config", "lease.ttl", "9h").stderr
        warning, _, typed = said.rstrip("\n").partition("hint: to change that: ")
        check_words(warning)
        check_words(typed)
    assert "10s" in gitlease(one, "config", "lease.ttl", "5s").stderr
    assert gitlease(one, "claim", "F002").returncode == 6
    assert gitlease(one, *typed.split()[1:]).returncode == 0
    assert gitlease(one, "config", "lease.ttl", "9h").stderr == ""
    assert gitlease(one, "claim", "F002").returncode == 0


def test_a_token_of_what_one_parked_is_told_with_how_to_resume_it(clones: Clones) -> None:
    one, two = clones(2)
    parked = str(ask(one, "claim", "F001", "--scope", "parser")["lease"]["token"])
    gitlease(one, "park", "F001")
    ran = gitlease(one, "fence", "F001", parked)
    assert ran.returncode == 3
    check_words(ran.stderr)
    token = ask(one, "claim", "F001", "--scope", "parser")["lease"]["token"]
    assert gitlease(one, "fence", "F001", str(token)).returncode == 0
    gitlease(one, "park", "F001")
    said = gitlease(two, "fence", "F001", str(token)).stderr
    check_words(said.splitlines()[1:])


def test_a_name_that_is_also_a_file_is_pointed_out(clones: Clones) -> None:
    (one,) = clones(1)
    commit_file(one, "Makefile", "all:\n")
    (one / "NOTES").write_text("not added yet")
    ask(one, "claim", "Makefile", "NOTES", "--any")
    warnings = ask(one, "renew", "Makefile", "NOTES")["warnings"]
    told = "{0} is a name here; for the file, write path:{0}"
    assert warnings == [told.format("Makefile"), told.format("NOTES")]
    assert ask(one, "claim", "path:Makefile")["warnings"] == []


def test_without_an_email_it_says_how_to_set_one(clones: Clones) -> None:
    (one,) = clones(1)
    git(one, "config", "--unset", "user.email")
    done = gitlease(one, "claim", "F001")
    assert (done.returncode, done.stdout) == (7, "")
    check_words(done.stderr)


def test_git_lease_is_the_same_command(clones: Clones, tmp_path: Path) -> None:
    (one,) = clones(1)
    script = tmp_path / "bin" / "git-lease"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nfrom gitlease.__main__ import main\nmain()\n")
    script.chmod(0o755)
    env = {"PYTHONPATH": ROOT, "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["git", "lease", "claim", "F001"],
        cwd=one,
        env=clean_env(env),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done
    check_words(done.stderr)


def test_the_repository_of_the_user_is_not_touched(clones: Clones) -> None:
    (one,) = clones(1)
    before = snapshot(one)
    for argv in (("claim", "F001"), ("list",), ("log",), ("release", "F001"), ("list", "--cached")):
        assert gitlease(one, *argv).returncode == 0
    assert_untouched(before, snapshot(one))


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
    done = subprocess.run(
        ["bash", "-c", f"exec 3>&1; ({command}) | {reader or 'cat >/dev/null'}"],
        cwd=one,
        env=clean_env({"PYTHONPATH": ROOT}),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == status, done
    assert done.stderr == ""


def test_shells_can_complete(clones: Clones) -> None:
    (one,) = clones(1)
    env = {"COMP_WORDS": "gitlease re", "COMP_CWORD": "1", "_GITLEASE_COMPLETE": "bash_complete"}
    done = gitlease(one, env=env)
    assert done.stdout.split() == ["plain,renew", "plain,release", "plain,revoke"]


@pytest.mark.parametrize("plain", [False, True], ids=["colour", "NO_COLOR"])
def test_a_real_terminal(clones: Clones, plain: bool) -> None:
    (one,) = clones(1)
    gitlease(one, "claim", "F001")
    master, slave = pty.openpty()
    env = {"PYTHONPATH": ROOT, "TERM": "xterm-256color", "COLUMNS": "150"}
    done = subprocess.Popen(
        [sys.executable, "-m", "gitlease", "list"],
        cwd=one,
        env=clean_env(env | ({"NO_COLOR": "1"} if plain else {})),
        stdout=slave,
        stderr=subprocess.DEVNULL,
    )
    os.close(slave)
    shown = all_written(master)
    assert done.wait(60) == 0
    assert "RESOURCE" in shown
    assert "w1@example.com" in shown
    assert ("\x1b[32m" in shown) is not plain


def test_a_ttl_beyond_the_limits_names_the_setting_that_asked_for_it(clones: Clones) -> None:
    (one,) = clones(1)
    env = {"GITLEASE_TTL": "5d"}
    for words in (("claim", "F001"), ("run", "F001", "--", "true")):
        ran = gitlease(one, *words, env=env)
        check_words(ran.stderr)
    by_flag = gitlease(one, "claim", "F001", "--ttl", "4d", env=env)
    assert (by_flag.returncode, by_flag.stderr[:6]) == (6, "ttl 4d")
