"""Two people and their clones: one waits or watches while the other works, or is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest
from support.clock import ManualClock
from support.documents import held_to_schema
from support.fences import clean_env
from support.ledgers import REF, door
from support.remotes import Remote
from support.repos import git, run_git
from support.running import until
from support.snapshots import check_words

import gitlease
from gitlease.core import parse_resource
from gitlease.core.moves import tickets
from gitlease.store import waiting_file

Clones = Callable[..., list[Path]]
ROOT = str(Path(__file__).parents[2])
FILE = waiting_file(parse_resource("F001"))
PATIENCE = 60.0  # seconds for what another process does


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


def words_of(clone: Path, *words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "gitlease", "-C", str(clone), *words]


@contextmanager
def started(
    clone: Path, remote: Remote, *words: str, out: int | IO[bytes] = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """A command that runs while the block does; it is killed at the end."""
    with subprocess.Popen(
        words_of(clone, *words),
        env=clean_env({**remote.env, "PYTHONPATH": ROOT}),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run(clone: Path, remote: Remote, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        words_of(clone, *words),
        env=clean_env({**remote.env, "PYTHONPATH": ROOT}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout


def line(remote: Remote) -> list[str]:
    """The holders of the tickets, as the record has them."""
    shown = run_git(remote.bare, "show", f"{REF}:{FILE}")
    lines = shown.stdout.splitlines() if shown.returncode == 0 else []
    return [x.split()[-1].strip('"') for x in lines if x.strip().startswith("holder:")]


# --- two clones, in this process ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["path", pytest.param("http", marks=pytest.mark.slow)])
def test_a_wait_looks_with_one_connection_and_fetches_only_what_is_new(
    kind: str, request: pytest.FixtureRequest, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote: Remote = request.getfixturevalue(f"{kind}_remote")
    for name, value in remote.env.items():
        monkeypatch.setenv(name, value)
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
    assert clock.past() - 50 <= 10
    (fetches, pushes), (later, same), (freed, _) = counts
    assert pushes == same, "it is only looked"
    assert 4 <= later - fetches <= 7, "once in 7 to 10 seconds, with one connection each"
    assert remote.fetches() - freed == 2, "one look, and one fetch of what had moved"
    assert line(remote) == []


def test_the_work_of_others_is_watched(path_remote: Remote, clones: Clones) -> None:
    jo, kim = clones(2)
    clock = Script()
    door(kim, clock=clock).claim("F001", ttl="1m")
    clock.acts = [
        (20.0, lambda: door(kim, clock=clock).renew("F001")),
        (40.0, lambda: door(kim, clock=clock).claim("src/auth/", paths=["docs/"])),
        (60.0, lambda: door(kim, clock=clock).release("src/auth/")),
    ]
    found = [f"{e.kind} {e.resource}" for e in door(jo, clock=clock).watch(timeout="5m")]
    check_words(found)


# --- processes -----------------------------------------------------------------------------------


def test_two_runs_in_one_clone_hand_over_at_once(path_remote: Remote, clones: Clones) -> None:
    """What the one process pushes is known in the clone, and wakes the other without a look."""
    (jo,) = clones(1)
    run(jo, path_remote, "claim", "F001", "--session", "one")
    words = ("claim", "F001", "--session", "two", "--wait", "5m", "--json")
    with started(jo, path_remote, *words) as waiter:
        until(lambda: line(path_remote) == ["w1@example.com"], "a ticket")
        run(jo, path_remote, "release", "F001", "--session", "one")
        out, err = waiter.communicate(timeout=PATIENCE)
    assert waiter.returncode == 0, err
    assert json.loads(out)["lease"]["session"] == "two"
    assert line(path_remote) == []


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGTERM, id="SIGTERM"),
        pytest.param(signal.SIGINT, id="SIGINT", marks=pytest.mark.slow),
    ],
)
def test_whoever_is_told_to_stop_leaves_the_line(
    path_remote: Remote, clones: Clones, how: signal.Signals
) -> None:
    jo, kim = clones(2)
    run(kim, path_remote, "claim", "F001")
    with started(jo, path_remote, "claim", "F001", "--wait", "5m") as waiter:
        until(lambda: line(path_remote) == ["w1@example.com"], "a ticket")
        waiter.send_signal(how)
        _, err = waiter.communicate(timeout=PATIENCE)
    assert waiter.returncode == 128 + how
    assert "Traceback" not in err
    assert line(path_remote) == []


def test_watch_is_a_line_for_each_event_until_it_is_interrupted(
    path_remote: Remote, clones: Clones
) -> None:
    (jo,) = clones(1)
    with started(jo, path_remote, "watch", "--json") as watcher:
        out, lines = watcher.stdout, list[str]()
        assert out is not None
        reader = threading.Thread(target=lambda: lines.extend(out))
        reader.start()
        until(lambda: path_remote.fetches() > 0, "its first look")
        time.sleep(0.2)  # from when it is answered on
        run(jo, path_remote, "claim", "F001")
        until(lambda: len(lines) == 1, "the claim")
        run(jo, path_remote, "release", "F001")
        until(lambda: len(lines) == 3, "the release")
        watcher.send_signal(signal.SIGINT)
        watcher.wait(PATIENCE)
        reader.join()
        assert watcher.stderr is not None
        assert watcher.stderr.read() == ""
    assert watcher.returncode == 130
    assert [held_to_schema(json.loads(text))["event"] for text in lines] == [
        "claimed",
        "released",
        "available",
    ]


@pytest.mark.slow
def test_a_watch_whose_reader_goes_away_ends(path_remote: Remote, clones: Clones) -> None:
    (jo,) = clones(1)
    read, write = os.pipe()
    with open(write, "wb") as out, started(jo, path_remote, "watch", "--json", out=out) as watcher:
        until(lambda: path_remote.fetches() > 0, "its first look")
        time.sleep(0.2)
        os.close(read)
        run(jo, path_remote, "claim", "F001")
        assert watcher.wait(PATIENCE) == 141


def test_what_becomes_available_is_called_for(path_remote: Remote, clones: Clones) -> None:
    (jo,) = clones(1)
    with gitlease.open(str(jo), session="one", environ={}) as leases:
        heard: list[gitlease.WatchEvent] = []
        calls = threading.Event()
        leases.claim("F001")

        @leases.on_available("F001", scope="research")
        def tell(event: gitlease.WatchEvent) -> None:
            heard.append(event)
            calls.set()

        assert tell.ready(PATIENCE)
        assert tell.running
        assert tell.function.__name__ == "tell"
        leases.release("F001")
        assert calls.wait(PATIENCE)
        tell.stop(PATIENCE)
        assert not tell.running
        leases.claim("F001")
        leases.release("F001")
        assert [(e.kind, e.resource, e.scope) for e in heard] == [("available", "F001", "research")]
        assert tell.error is None
        tell(heard[0])
        assert len(heard) == 2, "it is still a function"


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
        assert handle.ready(PATIENCE)
        for name in ("F001", "F002"):
            leases.release(name)
            assert calls.acquire(timeout=PATIENCE)
        handle.stop(PATIENCE)
    assert seen == [RuntimeError, RuntimeError]


def test_a_callback_that_cannot_begin_says_why(path_remote: Remote, clones: Clones) -> None:
    (jo,) = clones(1)
    git(jo, "remote", "set-url", "origin", str(jo / "nowhere"))
    with gitlease.open(str(jo), environ={}) as leases:
        handle = leases.on_available("F001")(lambda _event: None)
        assert not handle.ready(PATIENCE)
        assert isinstance(handle.error, gitlease.GitleaseError)
        until(lambda: not handle.running, "its end")
        handle.stop()


# --- what takes its time -------------------------------------------------------------------------


@pytest.mark.slow
def test_wait_and_watch_between_two_clones(remote: Remote, clones: Clones) -> None:
    jo, kim = clones(2)
    run(kim, remote, "claim", "F001")
    with (
        started(jo, remote, "watch", "F001", "--json", "--timeout", "45s") as watcher,
        started(jo, remote, "wait", "F001", "--json", "--timeout", "5m") as waiter,
    ):
        time.sleep(3)
        run(kim, remote, "release", "F001")
        out, err = waiter.communicate(timeout=PATIENCE)
        assert (waiter.returncode, json.loads(out)["status"]) == (0, "free"), err
        assert watcher.stdout is not None
        told = [json.loads(watcher.stdout.readline())["event"] for _ in range(2)]
    assert told == ["released", "available"]


@pytest.mark.slow
def test_kill_9_of_the_first_waiter_costs_one_window(path_remote: Remote, clones: Clones) -> None:
    holder, first, second = clones(3)
    run(holder, path_remote, "claim", "F001")
    wish = ("claim", "F001", "--wait", "5m")
    with started(first, path_remote, *wish) as dead:
        until(lambda: len(line(path_remote)) == 1, "the first ticket")
        with started(second, path_remote, *wish) as alive:
            until(lambda: len(line(path_remote)) == 2, "the second ticket")
            dead.kill()
            dead.wait()
            run(holder, path_remote, "release", "F001")
            began = time.monotonic()
            assert alive.wait(PATIENCE) == 0
            assert time.monotonic() - began > tickets.WINDOW / 2, "the dead one had its turn"
    assert line(path_remote) == [], "and is out of the line"


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
say("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "homes"),
    [(10, 4), *(pytest.param(20, n, marks=pytest.mark.nightly) for n in (4, 20))],
)
def test_many_processes_take_turns(
    path_remote: Remote, clones: Clones, tmp_path: Path, number: int, homes: int
) -> None:
    """Winners and pushes are counted: each has its turns, and never two at once."""
    rounds = 2
    made, log = clones(homes), tmp_path / "log"
    log.touch()
    run(made[0], path_remote, "claim", "F001", "--session", "first")
    before = path_remote.pushes()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(made[n % homes]), f"s{n}", str(rounds), str(log)],
            env=clean_env({**path_remote.env, "PYTHONPATH": ROOT}),
        )
        for n in range(number)
    ]
    try:
        until(lambda: len(line(path_remote)) == number, "all of them in the line", limit=120)
        run(made[0], path_remote, "release", "F001", "--session", "first")
        for process in processes:
            assert process.wait(600) == 0
    finally:
        for process in processes:
            process.kill()
            process.wait()
    said = log.read_text().splitlines()
    turns = [text for text in said if not text.startswith("done")]
    assert_turns(turns, {f"s{n}": rounds for n in range(number)})
    assert line(path_remote) == []
    pushes = path_remote.pushes() - before
    assert pushes < number * rounds * 10, "a ticket, a claim, a release, and races that were lost"


def assert_turns(said: Sequence[str], expected: dict[str, int]) -> None:
    """Each ``has`` is followed by the same one's ``ends``, and all had as many as expected."""
    had: dict[str, int] = {}
    for has, ends in zip(said[::2], said[1::2], strict=True):
        assert has.partition(" ")[2] == ends.partition(" ")[2], "two at once"
        assert (has[:4], ends[:5]) == ("has ", "ends ")
        had[has[4:]] = had.get(has[4:], 0) + 1
    assert had == expected
