"""Whoever holds on keeps to what it was opened with, whatever its work tree says meanwhile."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clock import ManualClock
from support.remotes import Remote
from support.repos import commit_file, git
from support.running import LONG, Desk, number_in, short_leases, sleeper, until
from support.session import LeaseService
from support.snapshots import check_words, cleaned

import gitlease
from gitlease.core import Instant, parse_resource
from gitlease.engine import ClaimOptions, holds_of
from gitlease.runs import ENDING, at_the_end
from gitlease.wiring import open_workspace

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are seen there"),
    pytest.mark.sampled(4),
]

Clones = Callable[..., list[Path]]

FILE = ".gitlease.yaml"
CHANGES = {
    "another layer": "lease: {layer: team}\n",
    "another prefix": "lease: {ref_prefix: refs/heads/gitlease}\n",
    "another remote": "lease: {remote: elsewhere}\n",
    "a conflict": "<<<<<<< HEAD\nlease: {}\n=======\n",
    "an unknown key": "lease: {colour: red}\n",
}
OWN = "lease: {layer: team, ref_prefix: refs/heads/gitlease}\n"


@pytest.fixture(params=[*CHANGES, "another person"])
def change(request: pytest.FixtureRequest, jo: Desk) -> Callable[[], None]:
    """Something that changes in Jo's clone while she holds on."""

    def made() -> None:
        if request.param in CHANGES:
            (jo.clone / FILE).write_text(CHANGES[request.param])
        else:
            git(jo.clone, "config", "user.email", "another@example.com")

    return made


def renewals(desk: Desk) -> list[int]:
    return [x["renewals"] for x in desk.document("list")["leases"]]


def renewed(desk: Desk) -> None:
    """Wait until a lease that is seen from this desk is renewed once more."""
    before = renewals(desk)
    until(lambda: renewals(desk) > before, "a renewal")


# --- the settings ---------------------------------------------------------------------------------


def test_a_heartbeat_renews_and_looks_where_the_lease_is(
    jo: Desk, kim: Desk, change: Callable[[], None]
) -> None:
    clock = ManualClock(wall_ms=round(time.time() * 1_000), make=Instant)
    opened = open_workspace(str(jo.clone), clock=clock, session="mine")
    holds = holds_of(
        LeaseService(opened.ledger).claim([parse_resource("F001")], ClaimOptions(ttl=60))
    )
    change()
    clock.advance(30)
    again = opened.again(no_session=True, time_limit=5.0, patience=5.0)
    assert again.ledger.store is not opened.ledger.store, "each thread has its own"
    answer = LeaseService(again.ledger).beat([hold.grant for hold in holds])
    assert not answer.refused
    assert renewals(kim) == [1]
    assert (again.layer, again.identity.actor.holder) == ("global", "w1@example.com")
    ended = at_the_end(opened, {hold.grant.lease_id for hold in holds})
    LeaseService(ended).release([parse_resource("F001")])
    assert kim.live() == []


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


def test_a_session_keeps_to_what_it_was_opened_with(
    jo: Desk, kim: Desk, change: Callable[[], None]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with gitlease.session("mine", directory=str(jo.clone)) as run:
            run.claim("F001", ttl="6s")
            change()
            renewed(kim)
            run.check()
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
    (jo.clone / FILE).write_text(CHANGES["another prefix"])
    renewed(kim)
    assert jo.document("dispatch", "--stop", "F001")["status"] == "stopped"
    assert kim.live() == []


def test_a_checkout_of_a_branch_without_the_settings_is_no_loss(jo: Desk, kim: Desk) -> None:
    git(jo.clone, "branch", "old")
    commit_file(jo.clone, FILE, OWN)
    (kim.clone / FILE).write_text(OWN)
    short_leases(jo.clone)
    done = jo.ask("run", "F001", "--", "git", "checkout", "-q", "old")
    assert (done.returncode, done.stderr) == (0, "")
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


def test_two_holds_of_one_process_have_each_the_ledger_that_they_were_opened_with(
    jo: Desk, kim: Desk
) -> None:
    place = str(jo.clone)
    with gitlease.hold("F001", ttl="6s", directory=place):
        (jo.clone / FILE).write_text(CHANGES["another layer"])
        (kim.clone / FILE).write_text(CHANGES["another layer"])
        short_leases(jo.clone)
        with gitlease.hold("F001", ttl="6s", directory=place) as other:
            renewed(kim)
            other.check()
        assert kim.live() == []


# --- a dispatch of what the person holds ----------------------------------------------------------


def joined(desk: Desk) -> Any:
    """The one lease, which is the person's and no run's."""
    [lease] = desk.document("list")["leases"]
    assert lease["session"] is None
    return lease


@pytest.mark.parametrize("end", ["stops", "ends"])
def test_a_dispatch_of_what_the_person_holds_leaves_it_to_the_person(
    jo: Desk, tmp_path: Path, end: str
) -> None:
    before = jo.document("claim", "F001")["lease"]
    file = tmp_path / "pid"
    words = sleeper(file) if end == "stops" else ("true",)
    said = jo.document("dispatch", "F001", "--", *words)
    kept = "F001 was already yours: at the end of the run it is yours again"
    assert kept in said["warnings"] or end == "ends"
    if end == "stops":
        number_in(file)
        [lease] = jo.document("list")["leases"]
        assert (lease["lease_id"], lease["session"] is None) == (before["lease_id"], False)
        second = jo.ask("dispatch", "F001", "--", "true")
        assert second.returncode == 1, "it is not started twice"
        check_words(cleaned(re.sub("dispatch-[0-9a-f]+", "SESSION", second.stderr)))
        assert jo.ask("dispatch", "--stop", "F001").returncode == 0
    until(lambda: jo.document("dispatch", "--list")["runs"][0]["state"] != "running", "its end")
    assert joined(jo)["lease_id"] == before["lease_id"]
    for words in (("renew", "F001"), ("claim", "F001"), ("run", "F001", "--", "true")):
        assert jo.ask(*words).returncode == 0
    assert joined(jo)["lease_id"] == before["lease_id"]
    assert jo.ask("release", "F001").returncode == 0


def test_a_dispatch_says_what_was_the_persons_before(jo: Desk) -> None:
    assert jo.ask("claim", "F001").returncode == 0
    done = jo.ask("dispatch", "F001", "--", "true")
    check_words(cleaned(done.stderr))
    jo.all_gone()


# --- the end --------------------------------------------------------------------------------------


@contextlib.contextmanager
def hanging(remote: Remote) -> Iterator[Callable[[], int]]:
    """Until this ends, the remote takes a push and does not answer; how many it has taken."""
    hook, gate = remote.bare / "hooks" / "pre-receive", remote.bare / "hangs"
    hook.parent.mkdir(exist_ok=True)
    gate.touch()
    taken = remote.bare / "taken"
    taken.touch()
    # What it says is how it learns that nobody listens any more.
    loop = f"while test -e {shlex.quote(str(gate))}; do sleep 0.1; echo >&2 || exit 1; done; exit 1"
    hook.write_text(f"#!/bin/sh\necho >>{shlex.quote(str(taken))}\n{loop}\n")
    hook.chmod(0o755)
    try:
        yield lambda: len(taken.read_text().splitlines())
    finally:
        hook.unlink()
        gate.unlink()


def test_the_end_waits_no_longer_than_the_lease_lasts(jo: Desk) -> None:
    clock = ManualClock(wall_ms=round(time.time() * 1_000), make=Instant)
    opened = open_workspace(str(jo.clone), clock=clock, session="mine")
    limits: list[float] = []
    real = opened.again

    def again(**given: Any) -> Any:
        assert given["patience"] == ENDING, "for a remote that answers, and is busy"
        limits.append(given["time_limit"])
        return real(**given)

    object.__setattr__(opened, "again", again)
    answer = LeaseService(opened.ledger).claim([parse_resource("F001")], ClaimOptions(ttl=18))
    ids = {view.lease_id for view in answer.leases}
    for seconds in (0, 9, 9):
        clock.advance(seconds)
        at_the_end(opened, ids)
    assert limits == [4.5, 2.2, 1.0]
    limits.clear()
    LeaseService(opened.ledger).claim([parse_resource("F001")], ClaimOptions(ttl=900))
    at_the_end(opened, ids)
    at_the_end(opened, {"unknown"})
    assert limits == [ENDING, ENDING]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hold", "session"])
def test_a_block_that_ends_tries_a_remote_that_hangs_no_longer_than_the_lease_lasts(
    jo: Desk, path_remote: Remote, kind: str
) -> None:
    place, stack = str(jo.clone), contextlib.ExitStack()
    with warnings.catch_warnings(record=True) as said, contextlib.ExitStack() as remote:
        warnings.simplefilter("always")
        with stack:
            if kind == "hold":
                stack.enter_context(gitlease.hold("F001", ttl="15s", directory=place))
            else:
                stack.enter_context(gitlease.session(directory=place)).claim("F001", ttl="15s")
            taken = remote.enter_context(hanging(path_remote))
        assert 1 <= taken() <= 4, "each takes a quarter of the time"
    told = [str(x.message) for x in said if x.category is RuntimeWarning]
    check_words([re.sub(r"[\d.]+s$", "SPAN", text) for text in told])


@pytest.mark.slow
def test_a_run_that_ends_tries_a_remote_that_hangs_no_longer_than_the_lease_lasts(
    jo: Desk, path_remote: Remote, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    script = f"until test -e '{go}'; do sleep 0.05; done; exit 3"
    run = jo.start("run", "F001", "--ttl", "15s", "--", "sh", "-c", script)
    until(lambda: jo.live() == ["F001"], "the claim")
    with hanging(path_remote) as taken:
        go.touch()
        assert run.wait(LONG) == 3
        assert 1 <= taken() <= 4
    assert run.stderr is not None
    check_words(re.sub(r"[\d.]+s\b", "SPAN", run.stderr.read()))
