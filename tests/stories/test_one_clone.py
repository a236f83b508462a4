"""Many processes of one clone: they take turns, carry each other's claims along, lose nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fences import clean_env
from support.remotes import Remote
from support.running import Desk

pytestmark = pytest.mark.slow

PROCESSES = 12
TOGETHER = """
import multiprocessing, os, sys

import gitlease

def work(start, number):
    os.environ["GITLEASE_SESSION"] = f"run-{number}"
    leases = gitlease.open(sys.argv[1])
    leases.list(cached=True)
    start.wait()
    for turn in range(int(sys.argv[3])):
        leases.claim(f"n{number}-{turn}")

every = multiprocessing.get_context("fork")
start = every.Barrier(int(sys.argv[2]))
processes = [every.Process(target=work, args=(start, n)) for n in range(int(sys.argv[2]))]
for process in processes:
    process.start()
for process in processes:
    process.join()
sys.exit(sum(process.exitcode != 0 for process in processes))
"""


@pytest.fixture
def jo(path_remote: Remote, clones: Callable[..., list[Path]]) -> Desk:
    """A clone that knows the ledger."""
    (clone,) = clones(1)
    desk = Desk(clone, env=path_remote.env)
    desk.document("claim", "first")
    return desk


def claim_together(jo: Desk, turns: int) -> None:
    """Have so many processes claim names of their own, one after the other."""
    words = [sys.executable, "-c", TOGETHER, str(jo.clone), str(PROCESSES), str(turns)]
    assert subprocess.run(words, cwd=jo.clone, env=clean_env(jo.env)).returncode == 0
    leases = [x for x in jo.document("list")["leases"] if x["resource"] != "first"]
    assert len({x["token"] for x in leases}) == len(leases) == PROCESSES * turns
    assert len({x["session"] for x in leases}) == PROCESSES


@pytest.mark.slow("1-4")
@pytest.mark.nightly
@pytest.mark.parametrize(("turns", "most"), [(1, 4), (5, 24)])
def test_who_waits_for_its_turn_has_its_claim_carried_along(
    jo: Desk, path_remote: Remote, turns: int, most: int
) -> None:
    before = path_remote.connections()
    claim_together(jo, turns)
    assert path_remote.connections() - before <= most + 1, "with that of the list"


def test_without_turns_every_claim_is_made_all_the_same(jo: Desk) -> None:
    """Something else is in the place of the lock, which nobody can take then."""
    state = next((jo.clone / ".git" / "gitlease" / "state").glob("*/global"))
    (state / "turn.lock").unlink()
    (state / "turn.lock").mkdir()
    claim_together(jo, 1)


# A process that has read the ledger forks others, which all want the same, round after round.
CONTESTED = """
import os, sys

import gitlease

rounds, count = 3, 32
gitlease.open(sys.argv[1]).list(cached=True)
start, begin = os.pipe()
for number in range(count):
    if os.fork() == 0:
        os.environ["GITLEASE_SESSION"] = f"run-{number}"
        leases = gitlease.open(sys.argv[1])
        os.close(begin)
        os.read(start, 1)
        for turn in range(rounds):
            try:
                leases.claim(f"one-{turn}")
                print(f"one-{turn}", flush=True)
            except gitlease.LeaseHeld:
                pass
        leases.claim(f"own-{number}")
        os._exit(0)
os.close(begin)
sys.exit(any([os.wait()[1] for _ in range(count)]))
"""


def test_of_many_forks_that_claim_the_same_one_wins_each_round(jo: Desk) -> None:
    words = [sys.executable, "-c", CONTESTED, str(jo.clone)]
    done = subprocess.run(
        words, cwd=jo.clone, env=clean_env(jo.env), capture_output=True, text=True
    )
    assert (done.returncode, sorted(done.stdout.split())) == (0, [f"one-{n}" for n in range(3)])
    held = {*jo.live()} - {"first"}
    assert held == {f"one-{n}" for n in range(3)} | {f"own-{n}" for n in range(32)}
