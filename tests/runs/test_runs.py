"""What is kept of runs in the background, and how it is known that one still runs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.snapshots import check_words, raises

from gitlease.kernel.git import run
from gitlease.kernel.git.run import group_is_left, started_at, still_runs
from gitlease.kernel.rules.errors import LeaseHeld, NotFound
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.resources import parse_resource
from gitlease.runs import records
from gitlease.runs.child import show_in_pager
from gitlease.runs.records import RunRecord, RunsFolder

F001 = parse_resource("F001")


@pytest.fixture
def folder(tmp_path: Path) -> RunsFolder:
    return RunsFolder(str(tmp_path), "boot-1")


def record(number: int, folder: RunsFolder, *, resource: str = "F001") -> RunRecord:
    """A run whose runner is this very process."""
    name = f"{number:015d}-x"
    return RunRecord(
        id=name,
        holder="jo@example.com",
        session=f"dispatch-{number}",
        layer="global",
        resources=(resource,),
        scope="*",
        lease_ids=(f"id-{number}",),
        tokens=(number,),
        command=("sh", "-c", "true \ud800"),
        log=folder.log_of(name),
        began_at=number,
        boot_id="boot-1",
        runner=os.getpid(),
        runner_started=started_at(os.getpid()),
    )


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """Another process, in a group of its own."""
    words = [sys.executable, "-c", "input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("proc", [True, False], ids=["proc", "ps"])
def test_a_process_is_told_from_a_later_one_of_its_number(
    other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, proc: bool
) -> None:
    if not proc:
        monkeypatch.setattr(run, "_has_proc", lambda: False)
    started = started_at(other.pid)
    assert started
    assert still_runs(other.pid, started)
    assert not still_runs(other.pid, "another time")
    assert not still_runs(other.pid, "")
    assert group_is_left(other.pid)
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert not still_runs(other.pid, started), "it waits to be buried"
    assert not group_is_left(other.pid)
    other.wait()
    assert (started_at(other.pid), group_is_left(other.pid)) == ("", False)


def test_a_record_reads_back_and_is_for_its_owner_alone(folder: RunsFolder, tmp_path: Path) -> None:
    first, second = (
        record(1, folder),
        replace(record(2, folder), outcome="ended", exit=3, result="failed"),
    )
    before = os.umask(0)
    try:
        folder.save(first)
        folder.save(second)
    finally:
        os.umask(before)
    assert (folder.background(), folder.alive()) == ((second, first), (first,))
    assert [folder.state_of(x) for x in folder.background()] == ["ended", "running"]
    modes = {x.name: stat.S_IMODE(x.stat().st_mode) for x in tmp_path.rglob("*")}
    assert modes == {"alive": 0o700, "runs": 0o700} | {
        f"{x.id}.json": 0o600 for x in (first, second)
    }


def test_a_run_that_is_let_go_is_kept_if_it_has_a_log(folder: RunsFolder) -> None:
    first, second = record(1, folder), replace(record(2, folder), command=())
    for each in (first, second):
        folder.begin(each)
        folder.retire(each)
    assert (folder.alive(), folder.background(), folder.latest_of(first)) == ((), (first,), first)


def test_a_run_of_before_a_reboot_runs_no_more(folder: RunsFolder) -> None:
    old = replace(record(1, folder), boot_id="boot-0")
    assert (folder.runs(old), folder.state_of(old)) == (False, "killed")
    gone = replace(record(1, folder), runner_started="0")
    assert folder.state_of(gone) == "killed"
    assert folder.stop(gone) == gone, "a process of the same number is left alone"


def test_a_dead_run_is_left_to_its_pool_while_that_runs(folder: RunsFolder) -> None:
    actor, pool = Actor("jo@example.com"), replace(record(1, folder), jobs=2)
    folder.save(replace(record(2, folder), runner_started="0", pool=pool.id))
    for started, dead in ((pool.runner_started, 0), ("0", 1)):
        folder.save(replace(pool, runner_started=started))
        assert len(folder.dead("global", actor)) == dead


def test_only_the_last_ended_runs_are_remembered(
    folder: RunsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "KEPT", 3)
    for number in range(1, 8):
        run = record(number, folder)
        if number not in (1, 5):
            run = replace(run, outcome="ended", result="done", runner_started="0")
        folder.save(run)
        Path(run.log).parent.mkdir(exist_ok=True)
        Path(run.log).write_text("said")
    folder.tidy()
    assert [x.began_at for x in folder.background()] == [7, 6, 5, 4, 1]
    assert len(list((tmp_path / "runs").glob("*.log"))) == 5


def test_the_log_of_an_ended_run_keeps_its_end(
    folder: RunsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LONGEST_LOG", 100)
    ended = replace(record(1, folder), outcome="ended", result="done", runner_started="0")
    folder.save(ended)
    log = Path(ended.log)
    log.write_bytes(b"".join(b"line %03d\n" % n for n in range(100)))
    folder.tidy()
    first, *rest = log.read_text().splitlines()
    check_words(first)
    assert rest == [f"line {n:03d}" for n in range(89, 100)]
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    before = log.read_bytes()
    monkeypatch.setattr(records, "LONGEST_LOG", 1_000)
    folder.tidy()
    assert log.read_bytes() == before


def test_a_run_is_found_by_its_resource(folder: RunsFolder) -> None:
    older = record(1, folder)
    newer = replace(record(2, folder, resource="f001"), outcome="ended", result="done")
    folder.save(older)
    folder.save(newer)
    folder.save(record(3, folder, resource="F002"))
    assert folder.latest(F001, "global") == newer
    assert folder.latest(F001, "global", running=True) == older
    assert folder.latest(parse_resource("F002"), "global", running=True).began_at == 3
    with raises(NotFound):
        folder.latest(parse_resource("F003"), "global")
    with pytest.raises(NotFound):
        folder.latest(F001, "elsewhere")
    assert folder.in_the_way(["dispatch-1"], "F001", "global") == older
    assert folder.in_the_way(["dispatch-2", None], "F001", "global") is None
    assert folder.in_the_way([], "F001", "global") == older
    assert folder.in_the_way([], "F001", "elsewhere") is None


def test_a_lease_that_a_run_has_is_not_given_to_a_second(folder: RunsFolder) -> None:
    folder.save(record(1, folder))
    second = replace(record(2, folder), lease_ids=("id-9", "id-1"))
    with raises(LeaseHeld):
        folder.begin(second)
    folder.begin(record(3, folder))
    ended = replace(record(1, folder), outcome="ended")
    folder.save(ended)
    with pytest.raises(LeaseHeld):  # its leases are not given back yet
        folder.begin(second)
    folder.save(replace(ended, result="done"))
    folder.begin(second)


def test_a_text_is_shown_in_the_pager_of_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\ncat >"$1"\n')
    pager.chmod(0o755)
    monkeypatch.setenv("GIT_PAGER", f"{pager} {tmp_path}/seen")
    assert show_in_pager("a page\n")
    assert (tmp_path / "seen").read_text() == "a page\n"
