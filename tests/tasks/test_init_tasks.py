"""``init`` as people run it: it recognises the tasks that are there, and says so once."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import run_gitlease
from support.fences import clean_env
from support.remotes import Remote
from support.repos import git
from support.snapshots import check_words
from support.terminals import all_written

import gitlease as library
from gitlease.kernel.settings.text import parse_settings

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
Clones = Callable[..., list[Path]]


def gitlease(cwd: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder; it must end well."""
    done = run_gitlease(argv, cwd)
    assert done.returncode == 0, done
    return done


def ask(cwd: Path, *argv: str) -> Any:
    return json.loads(gitlease(cwd, *argv, "--json").stdout)


def setting(cwd: Path, key: str) -> Any:
    (found,) = ask(cwd, "config", key)["settings"]
    return found["value"]


def put(clone: Path, file: str, text: str) -> None:
    (clone / file).parent.mkdir(parents=True, exist_ok=True)
    (clone / file).write_text(text, encoding="utf-8")


@pytest.mark.default
def test_what_was_recognised_is_in_the_document_once(clones: Clones, path_remote: Remote) -> None:
    (one,) = clones(1)
    put(one, "backlog/config.yml", "statuses: [To Do, Odd, Done]\n")
    put(one, "backlog/tasks/task-1 - One.md", "---\nid: TASK-1\n---\n")
    first = ask(one, "init")
    assert list(first)[:5] == ["schema", "ok", "command", "settings_file", "recognised"]
    assert first["recognised"] == {"kind": "backlog.md", "files": 1}
    check_words(first["warnings"])
    written = (one / ".gitlease.yaml").read_bytes()
    again = ask(one, "init")
    assert (again["settings_file"], again["recognised"], again["warnings"]) == (None, None, [])
    assert (one / ".gitlease.yaml").read_bytes() == written


def test_settings_are_proposed_from_keys_and_words(clones: Clones, path_remote: Remote) -> None:
    (one,) = clones(1)
    put(one, ".tasks/1.md", "---\nticket: ABC-1\nname: One\nstate: pending\n---\n")
    put(one, ".tasks/2.md", "---\nticket: ABC-2\nstate: completed\nowner: bob@x.org\n---\n")
    put(one, ".tasks/3.md", "---\nticket: ABC-3\nstate: blocked\n---\n")
    put(one, ".tasks/4.md", "# ABC-4 in a heading alone\n")
    put(one, ".tasks/5.md", "---\nticket: Ärger-5\n---\n")
    put(one, ".github/ISSUE_TEMPLATE/bug.md", "---\nname: Bug\ntitle: x\nstatus: open\n---\n")
    put(one, "docs/adr/1.md", "---\ntitle: Use git\nstatus: accepted\n---\n")
    assert ".gitlease.yaml" not in {x.name for x in one.iterdir()}
    found = ask(one, "init")
    assert found["task_files"]["tasks"] == 3
    assert found["task_files"]["others"] == 1
    (problem,) = found["task_files"]["unreadable"]
    check_words(problem)
    assert found["warnings"][0] == problem
    assert "blocked" in found["warnings"][1]
    assert setting(one, "tasks.files") == [".tasks/**/*.md"]
    fields = setting(one, "tasks.fields")
    assert [fields[x] for x in ("id", "title", "status", "assigned")] == [
        *("ticket", "name", "state", "owner")
    ]
    assert setting(one, "tasks.statuses")["done"] == ["completed", "done", "closed"]
    gitlease(one, "claim", "ABC-1")
    assert run_gitlease(("claim", "ABC-2"), one).returncode == 6


def test_reading_needs_no_email(clones: Clones, path_remote: Remote) -> None:
    (one,) = clones(1)
    put(one, "tasks/F001.md", "---\nid: F001\n---\n")
    gitlease(one, "claim", "F002", "--any")
    git(one, "config", "--unset", "user.email")
    reading = ("list", "queue", "status", "brief", "log", "verify", "show F002", "whoami", "next")
    more = ("session list", "config", "config lease.ttl", "config --ledger", "wait F003 --any")
    for verb in (*reading, *more):
        said = gitlease(one, *verb.split())
        assert "claim" not in " ".join(x for x in said.stderr.splitlines() if "hint:" in x)
        gitlease(one, *verb.split(), "--json")
    gitlease(one, "config", "lease.ttl", "20m")
    gitlease(one, "board", "--once")
    verbs = ("next --claim", "claim F001", "session end x", "config --ledger ttl_max 9h")
    for verb in ("list --mine", "queue --mine", *verbs):
        refused = run_gitlease((*verb.split(), "--json"), one)
        assert (refused.returncode, json.loads(refused.stdout)["error"]["code"]) == (7, "invalid")
    leases = library.open(one)
    assert leases.whoami().holder == ""
    assert [x.claimable for x in leases.queue()] == [True]
    writing: list[Callable[[], object]] = [
        leases.claim_next,
        leases.push,
        lambda: leases.list(mine=True),
        lambda: library.hold("F001", directory=one).__enter__(),
        lambda: library.run(["true"], "F001", directory=one),
    ]
    for write in writing:
        with pytest.raises(library.GitleaseError, match=r"no user\.email"):
            write()
    assert git(one, "status", "--porcelain") == "?? tasks/"


def hook(bare: Path, name: str, script: str) -> None:
    (bare / "hooks").mkdir(exist_ok=True)
    (bare / "hooks" / name).write_text(f"#!/bin/sh\n{script}\n")
    (bare / "hooks" / name).chmod(0o755)


def denied(cwd: Path, *argv: str) -> list[str]:
    """Run a command that the remote must refuse; return its hints."""
    done = run_gitlease((*argv, "--json"), cwd)
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (4, "denied"), done
    return [*error.get("hints", ()), *error["next"]]


@pytest.mark.default("later hook")
@pytest.mark.nightly
@pytest.mark.parametrize("way", ["hook", "later hook", "hidden"])
def test_refusal_of_our_refs_names_their_prefix(
    clones: Clones, path_remote: Remote, way: str
) -> None:
    one, two = clones(2)
    if way == "later hook":
        gitlease(two, "claim", "F002")
    if way == "hidden":
        git(path_remote.bare, "config", "transfer.hideRefs", "refs/gitlease")
    else:
        refuse = "echo only branches and tags >&2; exit 1"
        hook(path_remote.bare, "update", f"case $1 in refs/heads/*) ;; *) {refuse};; esac")
    for argv in (("claim", "F001"), ("init",)):
        hints = denied(one, *argv)
        check_words(hints)
        assert not (one / ".gitlease.yaml").exists()
    if way == "later hook":  # elsewhere than the ledger of the others, this clone would be alone
        return
    (typed,) = (x for x in hints if "gitlease config lease.ref_prefix" in x)
    gitlease(one, *typed.partition(": gitlease ")[2].split())
    gitlease(one, "claim", "F001")


def test_init_proves_that_it_may_write(clones: Clones, path_remote: Remote) -> None:
    one, two = clones(2)
    gitlease(one, "init")
    gitlease(two, "list")
    hook(path_remote.bare, "pre-receive", "exit 1")
    denied(two, "init")


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_person_is_asked_whether_the_settings_fit(
    clones: Clones, path_remote: Remote, answer: str
) -> None:
    (one,) = clones(1)
    put(one, "todo/fix.md", "---\ntitle: x\n---\n")
    master, slave = pty.openpty()
    env = clean_env({"PYTHONPATH": str(ROOT), "TERM": "dumb", "COLUMNS": "100"})
    command = [sys.executable, "-m", "gitlease", "init"]
    with subprocess.Popen(command, cwd=one, env=env, stdin=slave, stdout=slave, stderr=slave):
        os.close(slave)
        os.write(master, f"{answer}\n".encode())
        shown = all_written(master)
    assert "id: {file: stem}" in shown
    assert len(ask(one, "queue")["tasks"]) == (answer == "y")


@pytest.mark.nightly
def test_uncommented_lines_of_the_written_file_are_valid_settings(
    clones: Clones, path_remote: Remote
) -> None:
    (one,) = clones(1)
    put(one, "todo/1.md", "---\nticket: ABC-1\nstate: wip\n---\n")
    gitlease(one, "init")
    text = (one / ".gitlease.yaml").read_text()
    whole = re.sub(r"(?m)^#(?=\S|  )", "", text)
    found = parse_settings(whole.encode())
    assert {"lease.ledger", "lease.ttl", "tasks.fields", "landing.release"} <= found.keys()
    assert parse_settings(text.encode()).keys() < found.keys()
