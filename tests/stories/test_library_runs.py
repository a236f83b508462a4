"""Programs that run commands, pools and callbacks by the library: each is a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.commands import run_program
from support.hooked import share_tasks
from support.remotes import Remote
from support.running import LONG, Desk, desks_in, until

import gitlease

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are seen there"),
    pytest.mark.slow,
]

Clones = Callable[..., list[Path]]
BEGIN = """
import sys, threading, gitlease
leases = gitlease.open()
"""


@pytest.fixture
def jo(path_remote: Remote, clones: Clones) -> Iterator[Desk]:
    made = clones(1)
    share_tasks(made, ("F01", "F02", "F03"), path_remote.env)
    with desks_in(made) as (desk,):
        yield desk


def said(desk: Desk, code: str, expect: int = 0) -> list[str]:
    """What a program prints that is run in the clone."""
    done = run_program([sys.executable, "-P", "-c", BEGIN + code], desk.clone, desk.env)
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
supervisor.SupervisedProcess.guard = lambda *_: False
for words in "make", ["sleep", "9"]:
    try:
        leases.run(words, "port-1", any=True)
    except gitlease.GitleaseError as error:
        print(error.code, *error.hints)
"""
    token, *lines = said(jo, f"from gitlease.runs import supervisor\n{code}")
    assert token == "F01 1"
    assert lines[0] == "3 False False [('F01', 300)]"
    assert lines[1] == "0 True F01 True"
    assert lines[2].startswith("143 2 ")
    shell = 'for a line of a shell: ["sh", "-c", "make && make test"]'
    assert lines[3:] == [f"usage {shell}", "invalid"]
    assert status_of(jo, "F01") == "done"
    assert jo.live() == []
    jo.all_gone()


# --- a pool --------------------------------------------------------------------------------------


@pytest.mark.nightly
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
try:
    leases.work(["sleep", "60"], jobs=3, on_event=tell)
except KeyError as error:
    print(error)
"""
    assert said(jo, code) == ["'enough'"]
    assert jo.live() == []
    jo.all_gone()


# --- what is assigned to a person ----------------------------------------------------------------


def test_each_task_that_is_newly_assigned_is_called_for(jo: Desk) -> None:
    heard: list[gitlease.WatchEvent] = []
    with gitlease.open(str(jo.clone), session="one", environ={}) as leases:
        leases.claim("F03")
        handle = leases.on_assignment()(heard.append)
        assert handle.ready(LONG)
        again = gitlease.open(str(jo.clone), session="two", environ={})
        again.claim("port-1", any=True)  # no task
        leases.claim("F03")  # assigned already
        first = again.claim("F01")
        until(lambda: len(heard) == 1, "the first call")
        again.release("F01")
        second = leases.claim("F02")
        until(lambda: len(heard) == 2, "every call")
        handle.stop(LONG)
    assert [(x.kind, x.resource, x.session, x.token, x.at) for x in heard] == [
        ("assigned", "F01", "two", first.token, first.claimed_at),
        ("assigned", "F02", "one", second.token, second.claimed_at),
    ]
