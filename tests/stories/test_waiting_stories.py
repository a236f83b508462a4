"""Two people and their clones: one waits or watches while the other works, or is killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.documents import held_to_schema
from support.fences import clean_env
from support.ledgers import REF, door
from support.remotes import Remote
from support.repos import run_git
from support.running import LONG, ROOT, Desk, until

import gitlease
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store.records import waiting_file

pytestmark = pytest.mark.slow

Clones = Callable[..., list[Path]]
FILE = waiting_file(parse_resource("F001"))


@dataclass
class Script(ManualClock):
    """A clock on which others act while somebody sleeps."""

    acts: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    began: int = 1_800_000_000_000

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        while self.acts and self.past() >= self.acts[0][0]:
            self.acts.pop(0)[1]()

    def past(self) -> float:
        return (self.wall_ms - self.began) / 1_000


@pytest.fixture
def three(path_remote: Remote, clones: Clones) -> Iterator[list[Desk]]:
    """Three people, each at a clone; what they started is killed at the end."""
    made = [Desk(clone, path_remote.env) for clone in clones(3)]
    yield made
    for desk in made:
        desk.clear()


def line(remote: Remote) -> list[str]:
    """The holders of the tickets, as the record has them."""
    shown = run_git(remote.bare, "show", f"{REF}:{FILE}")
    lines = shown.stdout.splitlines() if shown.returncode == 0 else []
    return [x.split()[-1].strip('"') for x in lines if x.strip().startswith("holder:")]


def test_the_first_in_line_looks_with_one_connection_each(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = path_remote
    remote.open_to(monkeypatch)
    jo, kim = clones(2, remote)
    clock = Script()
    door(kim, clock=clock).claim("F001")
    door(jo, clock=clock).list()
    counts: list[tuple[int, int]] = []

    def count() -> None:
        counts.append((remote.fetches(), remote.pushes()))

    clock.acts = [
        (8.0, count),
        (50.0, count),
        (50.1, lambda: door(kim, clock=clock).release("F001")),
        (50.1, count),
    ]
    assert door(jo, clock=clock).claim("F001", wait="5m").holder == "w1@example.com"
    assert clock.past() - 50 <= 5
    (fetches, pushes), (later, same), (freed, _) = counts
    assert pushes == same, "it is only looked"
    assert 18 <= later - fetches <= 30, "with pauses that grow from one second to four"
    assert remote.fetches() - freed == 1, "the look brings what has moved"
    assert line(remote) == []


@pytest.mark.nightly
def test_two_runs_in_one_clone_hand_over_at_once(three: list[Desk], path_remote: Remote) -> None:
    """What the one process pushes is known in the clone, and wakes the other without a look."""
    jo = three[0]
    jo.document("claim", "F001", "--session", "one")
    waiter = jo.start("claim", "F001", "--session", "two", "--wait", "5m", "--json")
    until(lambda: line(path_remote) == ["w1@example.com"], "a ticket")
    jo.document("release", "F001", "--session", "one")
    out, err = waiter.communicate(timeout=LONG)
    assert waiter.returncode == 0, err
    assert json.loads(out)["lease"]["session"] == "two"
    assert line(path_remote) == []


def test_whoever_is_told_to_stop_leaves_the_line(three: list[Desk], path_remote: Remote) -> None:
    jo, kim, _ = three
    kim.document("claim", "F001")
    waiter = jo.start("claim", "F001", "--wait", "5m")
    until(lambda: line(path_remote) == ["w1@example.com"], "a ticket")
    waiter.terminate()
    _, err = waiter.communicate(timeout=LONG)
    assert waiter.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in err
    assert line(path_remote) == []


def until_it_watches(desk: Desk, is_seen: Callable[[], bool]) -> None:
    """Claim and release something else until a watch that was started tells of it."""

    def tells() -> bool:
        desk.document("claim", "before")
        desk.document("release", "before")
        return is_seen()

    until(tells, "the first event")


def test_watch_is_a_line_for_each_event_until_it_is_interrupted(three: list[Desk]) -> None:
    jo = three[0]
    watcher = jo.start("watch", "--json")
    out, lines = watcher.stdout, list[str]()
    assert out is not None
    reader = threading.Thread(target=lambda: lines.extend(out))
    reader.start()

    def events() -> list[str]:
        every = [held_to_schema(json.loads(text)) for text in [*lines]]
        return [x["event"] for x in every if x["resource"] == "F001"]

    until_it_watches(jo, lambda: bool(lines))
    jo.document("claim", "F001")
    until(lambda: len(events()) == 1, "the claim")
    jo.document("release", "F001")
    until(lambda: len(events()) == 3, "the release")
    watcher.send_signal(signal.SIGINT)
    assert watcher.wait(LONG) == 130
    reader.join()
    assert watcher.stderr is not None
    assert watcher.stderr.read() == ""
    assert events() == ["claimed", "released", "available"]


def test_a_watch_whose_reader_goes_away_ends(three: list[Desk]) -> None:
    read, write = os.pipe()
    with open(write, "wb") as out:
        watcher = three[0].start("watch", "--json", stdout=out)
    until_it_watches(three[0], lambda: bool(select.select([read], [], [], 0)[0]))
    os.close(read)
    three[0].document("claim", "F001")
    assert watcher.wait(LONG) == 141


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_fails_is_called_again(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    (jo,) = clones(1)
    seen: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_type))
    calls = threading.Semaphore(0)
    with gitlease.open(str(jo), environ={}) as leases:

        def fail(event: gitlease.WatchEvent) -> None:
            calls.release()
            raise RuntimeError("no")

        leases.claim_all(["F001", "F002"])
        handle = leases.on_available("F001", "F002")(fail)
        assert handle.ready(LONG)
        for name in ("F001", "F002"):
            leases.release(name)
            assert calls.acquire(timeout=LONG)
        handle.stop(LONG)
    assert seen == [RuntimeError, RuntimeError]


WORKER = """\
import os, sys, time
import gitlease
clone, session, rounds, log = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
def say(what):
    with open(log, "a") as file:
        file.write(f"{what} {session}\\n")
for _ in range(rounds):
    with gitlease.open(clone, session=session) as leases:
        leases.claim("F001", wait="20m")
        say("has")
        time.sleep(0.1)
        say("ends")
        leases.release("F001")
"""


def test_many_processes_take_turns(three: list[Desk], path_remote: Remote, tmp_path: Path) -> None:
    """Winners and pushes are counted: each has its turns, and never two at once."""
    number, rounds, log = 6, 2, tmp_path / "log"
    log.touch()
    three[0].document("claim", "F001", "--session", "first")
    before = path_remote.pushes()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, three[n % 3].clone, f"s{n}", str(rounds), log],
            env=clean_env({**path_remote.env, "PYTHONPATH": ROOT}),
        )
        for n in range(number)
    ]
    try:
        until(lambda: len(line(path_remote)) == number, "all of them in the line")
        three[0].document("release", "F001", "--session", "first")
        for process in processes:
            assert process.wait(600) == 0
    finally:
        for process in processes:
            process.kill()
            process.wait()
    turns = log.read_text().splitlines()
    has, ends = turns[::2], turns[1::2]
    assert sorted(has) == sorted(f"has s{n}" for n in range(number) for _ in range(rounds))
    assert ends == [x.replace("has", "ends") for x in has], "never two at once"
    assert line(path_remote) == []
    pushes = path_remote.pushes() - before
    assert pushes < number * rounds * 10, "a ticket, a claim, a release, and races that were lost"
