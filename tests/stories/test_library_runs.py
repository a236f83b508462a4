"""Programs that run commands, pools and callbacks by the library: each is a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.fences import clean_env
from support.remotes import Remote
from support.repos import git
from support.running import LONG, Desk, desks_in, until
from support.snapshots import check_words, cleaned

import gitlease

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are seen there")

Clones = Callable[..., list[Path]]
TASK = "---\nid: {0}\ntitle: The {0}\nstatus: todo\nassigned: []\n---\n"
BEGIN = """
import sys, threading, gitlease
leases = gitlease.open()
def refused(how, call, *words, **options):
    try:
        call(*words, **options)
    except how as error:
        print(type(error).__name__, error)
    else:
        raise SystemExit("it was not refused")
"""


@pytest.fixture
def jo(path_remote: Remote, clones: Clones) -> Iterator[Desk]:
    made = clones(1)
    (made[0] / "tasks").mkdir()
    for name in ("F01", "F02", "F03"):
        (made[0] / "tasks" / f"{name}.md").write_text(TASK.format(name), encoding="utf-8")
    git(made[0], "add", "tasks")
    git(made[0], "commit", "-q", "-m", "tasks")
    git(made[0], "push", "-q", "origin", "HEAD:main", env=path_remote.env)
    with desks_in(made) as (desk,):
        yield desk


def said(desk: Desk, code: str, expect: int = 0) -> list[str]:
    """What a program prints that is run in the clone."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", BEGIN + code],
        cwd=desk.clone,
        env=clean_env(desk.env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=LONG,
        check=False,
    )
    assert done.returncode == expect, done
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()


def status_of(desk: Desk, name: str) -> str:
    text = (desk.clone / "tasks" / f"{name}.md").read_text(encoding="utf-8")
    return next(x for x in text.splitlines() if x.startswith("status: ")).removeprefix("status: ")


# --- run -----------------------------------------------------------------------------------------


def test_a_command_runs_while_the_leases_are_held(jo: Desk) -> None:
    code = """
see = "echo $GITLEASE_RESOURCE $GITLEASE_TOKEN; exit 3"
ran = gitlease.run(["sh", "-c", see], "F01", ttl="5m", note="red")
print(ran.status, ran.done, ran.stopped, [(x.resource, x.ttl_seconds) for x in ran.leases])
ran = leases.run(["true"], next=True, done=True)
print(ran.status, ran.done, ran.leases[0].resource, ran.leases[0].session != None)
ran = leases.run(["sh", "-c", "kill -TERM $$"], "port-1", "port-2", any=True)
print(ran.status, len(ran.leases), threading.active_count())
"""
    token, *lines = said(jo, code)
    assert token == "F01 1"
    assert lines[0] == "3 False False [('F01', 300)]"
    assert lines[1] == "0 True F01 True"
    assert lines[2].startswith("143 2 ")
    assert status_of(jo, "F01") == "done"
    assert jo.live() == []
    jo.all_gone()


@pytest.mark.parametrize(
    "act", ["leases.run(['true'], 'F01')", "run(['run', 'F01', '--', 'true'])"]
)
def test_a_run_reads_no_lease_but_its_own(jo: Desk, act: str) -> None:
    code = f"""
from gitlease.engine import LedgerSession
from gitlease.faces.cli import run
def look(_session):
    raise SystemExit("it reads the leases of everybody")
LedgerSession.known_look = look
{act}
"""
    said(jo, code)
    assert not jo.document("list")["leases"]


def test_a_session_runs_commands_under_what_it_holds(jo: Desk) -> None:
    code = """
with gitlease.session("build-7") as named, gitlease.session() as other:
    named.claim("F01")
    other.claim("F02")
    ran = [named.run(["true"], "F01"), other.run(["true"], "F02", "F03")]
    print([x.session for x in leases.list()] == ["build-7", other.session], len(leases.list()))
    print([(x.status, x.done, len(x.leases)) for x in ran])
"""
    assert said(jo, code) == ["True 2", "[(0, False, 1), (0, False, 2)]"]
    assert jo.live() == []


def test_what_cannot_run_is_refused_and_nothing_stays_claimed(jo: Desk) -> None:
    code = """
from gitlease import UsageError, NotFound, LeaseHeld, Invalid
refused(NotFound, leases.run, ["no-such-command"], "F01")
refused(Invalid, leases.run, ["./tasks"], "F01")
refused(NotFound, leases.run, ["true"], "F99")
refused(UsageError, leases.run, "true", "F01")
refused(UsageError, leases.run, [], "F01")
refused(UsageError, leases.run, ["true"])
refused(UsageError, leases.run, ["true"], "F01", next=True)
refused(UsageError, leases.run, ["true"], next=True, scope="parser")
refused(UsageError, leases.run, ["true"], "tasks/", done=True)
refused(UsageError, leases.run, ["true"], "F01", grace="soon")
with gitlease.hold("F02"):
    refused(LeaseHeld, leases.run, ["true"], "F02")
thread = threading.Thread(target=refused, args=(UsageError, leases.run, ["true"], "F01"))
thread.start()
thread.join()
"""
    lines = said(jo, code)
    check_words(cleaned(re.sub("hold-[0-9a-f]+", "SESSION", "\n".join(lines))))
    assert jo.live() == []


def test_a_lost_lease_stops_the_command_and_is_raised(jo: Desk) -> None:
    code = """
own = [sys.executable, "-m", "gitlease", "release", "F01", "--no-session"]
import shlex
refused(gitlease.LeaseLost, leases.run, ["sh", "-c", shlex.join(own) + "; sleep 60"], "F01")
print(leases.warnings)
"""
    lines = said(jo, code)
    assert any(x.startswith("LeaseLost F01") for x in lines), lines
    jo.all_gone()


# --- a pool --------------------------------------------------------------------------------------


def test_a_pool_does_every_task_and_tells_of_it(jo: Desk) -> None:
    code = """
events = []
script = 'test -s "$GITLEASE_BRIEF" && [ "$GITLEASE_RESOURCE" != F02 ] || { echo no; exit 4; }'
ran = leases.work(["sh", "-c", script], jobs=2, done_on_success=True,
                  on_event=events.append)
print(ran.done, ran.failed, ran.given_back, ran.lost, ran.stopped, ran.stopped_by)
print(sorted((x.resource, x.outcome, x.exit) for x in ran.ended))
print(sorted({x.event for x in events}), all(x.log and x.session for x in ran.ended))
"""
    lines = said(jo, code)
    assert lines[0] == "2 1 0 0 0 None"
    assert lines[1] == "[('F01', 'done', 0), ('F02', 'failed', 4), ('F03', 'done', 0)]"
    assert lines[2].startswith("['ended', ")
    assert lines[2].endswith(" True")
    assert [status_of(jo, x) for x in ("F01", "F02", "F03")] == ["done", "todo", "done"]
    assert jo.live() == []
    jo.all_gone()


def test_what_a_listener_raises_ends_the_pool_and_gives_everything_back(jo: Desk) -> None:
    code = """
def tell(event):
    if event.event == "started" and event.resource == "F02":
        raise KeyError("enough")
refused(KeyError, leases.work, ["sleep", "60"], jobs=3, on_event=tell)
"""
    assert said(jo, code) == ["KeyError 'enough'"]
    assert jo.live() == []
    jo.all_gone()


def test_a_pool_in_work_trees_of_a_ledger_that_was_named(jo: Desk) -> None:
    code = """
named = gitlease.open(layer="nightly")
ran = named.work(["sh", "-c", "echo $GITLEASE_LAYER >seen; git add .; git commit -qm seen"],
                 worktrees=True, done_on_success=True)
print(ran.done)
"""
    assert said(jo, code) == ["3"]
    assert git(jo.clone, "show", "work/F02:seen").strip() == "nightly"
    assert len(jo.document("--layer", "nightly", "list", "--all")["leases"]) == 3


def test_pool_lands_or_hands_branches_on(jo: Desk) -> None:
    code = """
script = ["sh", "-c", "touch $GITLEASE_RESOURCE; git add .; git commit -qm work"]
ran = leases.work(script, land=True, check=["test", "-e", "tasks"], budget=2)
print(ran.done, ran.waiting)
ran = leases.work(script, pr="sh -c true")
print(ran.done, ran.waiting, [x.message for x in ran.ended])
"""
    said_of_branch = "handed on as work/F03, for main of origin"
    assert said(jo, code) == ["2 0", f"0 1 {[said_of_branch]}"]
    git(jo.clone, "fetch", "-q", "origin")
    assert git(jo.clone, "log", "--format=%s", "-3", "origin/main").split() == [
        "work",
        "work",
        "tasks",
    ]
    assert "F03" in git(jo.clone, "ls-tree", "--name-only", "origin/work/F03").split()
    jo.all_gone()


def test_what_no_pool_can_be_is_refused(jo: Desk) -> None:
    code = """
from gitlease import UsageError, NotFound
refused(UsageError, leases.work, "true")
refused(UsageError, leases.work, ["true"], jobs=0)
refused(UsageError, leases.work, ["true"], max_failures=0)
refused(UsageError, leases.work, ["true"], base="main")
for odd in ({"land": True, "pr": "x"}, {"land": True, "done_on_success": True}, {"pr": ""},
            {"by": "merge"}, {"land": True, "by": "x"}, {"land": True, "base": "HEAD"}):
    refused(UsageError, leases.work, ["true"], **odd)
refused(NotFound, leases.work, ["true"], land=True, base="nowhere")
refused(NotFound, leases.work, ["no-such-command"])
woken = threading.Event()
other = threading.Thread(target=woken.wait, name="mine")
other.start()
refused(UsageError, leases.work, ["true"])
woken.set()
"""
    lines = said(jo, code)
    check_words(lines[-2])
    check_words(lines[-1])
    assert jo.live() == []


# --- what is assigned to a person ----------------------------------------------------------------


def test_each_task_that_is_newly_assigned_is_called_for(jo: Desk, path_remote: Remote) -> None:
    heard: list[gitlease.WatchEvent] = []
    with gitlease.open(str(jo.clone), session="one", environ={}) as leases:
        leases.claim("F03")

        @leases.on_assignment()
        def tell(event: gitlease.WatchEvent) -> None:
            heard.append(event)

        assert tell.ready(LONG)
        assert tell.running
        again = gitlease.open(str(jo.clone), session="two", environ={})
        again.claim("port-1", any=True)  # no task
        leases.claim("F03")  # assigned already
        first = again.claim("F01")
        until(lambda: len(heard) == 1, "the first call")
        again.release("F01")
        third = leases.claim("F01")
        leases.release("F01")
        second = leases.claim("F02")
        until(lambda: len(heard) == 3, "every call")
        tell.stop(LONG)
        assert tell.error is None
        told = [(x.kind, x.resource, x.holder, x.session, x.at) for x in heard]
        me = "w1@example.com"
        assert told == [
            ("assigned", "F01", me, "two", first.claimed_at),
            ("assigned", "F01", me, "one", third.claimed_at),
            ("assigned", "F02", me, "one", second.claimed_at),
        ]
        assert heard[0].token == first.token


def test_anothers_tasks_are_not_told_and_a_takeover_is(
    jo: Desk, path_remote: Remote, clones: Clones
) -> None:
    _, kim = clones(2)
    git(kim, "pull", "-q", "origin", "main", env=path_remote.env)
    heard: list[gitlease.WatchEvent] = []
    ours = gitlease.open(str(jo.clone), environ={})
    theirs = gitlease.open(str(kim), environ={})
    handle = ours.on_assignment()(heard.append)
    assert handle.ready(LONG)
    theirs.claim("F01")
    theirs.claim("F02")
    theirs.release("F01")
    taken = ours.claim("F01")
    until(lambda: heard, "the call")
    handle.stop(LONG)
    assert [(x.resource, x.token) for x in heard] == [("F01", taken.token)]
