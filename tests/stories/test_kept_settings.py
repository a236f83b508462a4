"""Whoever holds on keeps to what it was opened with, whatever its work tree says meanwhile."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from support.repos import commit_file, git
from support.running import LONG, Desk, number_in, short_leases, sleeper, until

import gitlease

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are seen there"),
    pytest.mark.slow,
]


FILE = ".gitlease.yaml"
OWN = "lease: {layer: team, ref_prefix: refs/heads/gitlease}\n"


@pytest.fixture
def change(jo: Desk) -> Callable[[], None]:
    """Something that changes in Jo's clone while she holds on."""

    def made() -> None:
        (jo.clone / FILE).write_text("lease: {layer: team, remote: elsewhere}\n")
        git(jo.clone, "config", "user.email", "another@example.com")

    return made


def renewals(desk: Desk) -> list[int]:
    return [x["renewals"] for x in desk.document("list")["leases"]]


def renewed(desk: Desk) -> None:
    """Wait until a lease that is seen from this desk is renewed once more."""
    before = renewals(desk)
    until(lambda: renewals(desk) > before, "a renewal")


# --- the settings ---------------------------------------------------------------------------------


def test_a_hold_keeps_to_what_it_was_opened_with(
    jo: Desk, kim: Desk, change: Callable[[], None]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with gitlease.hold("F001", ttl="6s", directory=str(jo.clone)) as lease:
            change()
            renewed(kim)
            lease.check()
    assert kim.live() == []


def test_a_run_keeps_to_what_it_was_opened_with(
    jo: Desk, kim: Desk, change: Callable[[], None], tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    run = jo.start("run", "F001", "--ttl", "6s", "--", *sleeper(file))
    number_in(file)
    change()
    renewed(kim)
    run.terminate()
    assert run.wait(LONG) == 143
    assert run.stderr is not None
    assert run.stderr.read().startswith("given back")
    assert kim.live() == []


def test_a_run_in_the_background_keeps_to_what_it_was_opened_with(
    jo: Desk, kim: Desk, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    jo.document("dispatch", "F001", "--ttl", "6s", "--", *sleeper(file))
    number_in(file)
    (jo.clone / FILE).write_text("lease: {ref_prefix: refs/heads/gitlease}\n")
    renewed(kim)
    assert jo.document("dispatch", "--stop", "F001")["status"] == "stopped"
    assert kim.live() == []


def test_a_checkout_of_a_branch_without_the_settings_is_no_loss(jo: Desk, kim: Desk) -> None:
    git(jo.clone, "branch", "old")
    commit_file(jo.clone, FILE, OWN)
    (kim.clone / FILE).write_text(OWN)
    short_leases(jo.clone)
    done = jo.ask("run", "F001", "--", "git", "checkout", "-q", "old")
    # Only what the work tree says of the ledger's place is reported, since main does not say it.
    assert done.returncode == 0
    assert all("is not used" in line for line in done.stderr.splitlines())
    assert kim.live() == []
    git(jo.clone, "checkout", "-q", "-")
    with gitlease.hold("F001", ttl="6s", directory=str(jo.clone)) as lease:
        git(jo.clone, "checkout", "-q", "old")
        renewed(kim)
        lease.check()
    assert kim.live() == []


def test_the_task_files_of_the_claim_are_those_of_the_release(jo: Desk) -> None:
    (jo.clone / FILE).write_text('tasks: {files: ["work/*.md"]}\n')
    task = jo.clone / "work" / "F001.md"
    commit_file(jo.clone, "work/F001.md", "---\nid: F001\nstatus: todo\n---\n")
    script = f"grep assigned work/F001.md && rm {FILE}"
    done = jo.ask("run", "F001", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, "assigned: w1@example.com\n")
    assert "assigned" not in task.read_text()
