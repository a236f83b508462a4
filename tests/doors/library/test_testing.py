"""``gitlease.testing``: real rules and a clock to move, for tests of those who use the library."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.fences import clean_env
from support.snapshots import raises

import gitlease
from gitlease.testing import MemoryLedger

ROOT = Path(__file__).resolve().parents[3]
ADA, BOB = "ada@example.com", "bob@example.com"
pytest_plugins = ["gitlease.testing"]


def test_people_share_a_ledger_and_time_passes_by_hand(gitlease_ledger: MemoryLedger) -> None:
    ada, bob = gitlease_ledger.open(ADA), gitlease_ledger.open(BOB)
    lease = ada.claim("F001", ttl="15m", paths=["src/"])
    assert (ada.holder, lease.token, lease.claimed_at) == (ADA, 1, gitlease_ledger.now)
    with pytest.raises(gitlease.LeaseHeld) as held:
        bob.claim("path:src/a.py")
    assert held.value.holder == ADA
    gitlease_ledger.advance(minutes=16, seconds=1)
    assert bob.claim("F001").token == 2
    with pytest.raises(gitlease.LeaseLost):
        ada.renew("F001")
    with pytest.raises(gitlease.UsageError, match="backwards"):
        gitlease_ledger.advance(seconds=-1)


def test_a_wait_in_the_thread_of_the_test_takes_no_time(gitlease_ledger: MemoryLedger) -> None:
    ada, bob = gitlease_ledger.open(ADA), gitlease_ledger.open(BOB)
    ada.claim("F001", ttl="10m")
    began = gitlease_ledger.now
    with pytest.raises(gitlease.WaitTimeout):
        bob.claim("F001", wait="5m")
    assert (gitlease_ledger.now - began).total_seconds() >= 300
    assert bob.claim("F001", wait="15m").holder == BOB


def test_another_thread_waits_until_the_test_goes_on(gitlease_ledger: MemoryLedger) -> None:
    ada, bob = gitlease_ledger.open(ADA), gitlease_ledger.open(BOB)
    ada.claim("F001")
    got: list[int] = []
    waiting = threading.Thread(target=lambda: got.append(bob.claim("F001", wait="1h").token))
    waiting.start()
    ada.release("F001")
    while waiting.is_alive():  # each look comes after some time
        gitlease_ledger.advance(seconds=10)
        waiting.join(0.02)
    assert got == [2]


def test_code_that_opens_its_own_ledger_gets_this_one(gitlease_ledger: MemoryLedger) -> None:
    bob = gitlease_ledger.open(BOB)
    with gitlease_ledger.stand_in(ADA):
        with gitlease.hold("deploy", reason="release") as lease:
            with pytest.raises(gitlease.LeaseHeld, match="release"):
                bob.claim("deploy")
            assert lease.seconds_left > 800
        with gitlease.session("build-7", directory="/nowhere") as build:
            assert build.claim("F001").session == "build-7"
        assert gitlease.open("/nowhere").list() == ()
    with pytest.raises(gitlease.NotARepository):
        gitlease.open("/")


@pytest.mark.parametrize("steps", [[60], [0.5] * 20])
def test_what_is_held_is_renewed_as_time_passes(
    gitlease_ledger: MemoryLedger, steps: list[float]
) -> None:
    run = gitlease_ledger.session(BOB)
    run.claim("F002", ttl="5m")
    with gitlease_ledger.stand_in(ADA), gitlease.hold("F001") as lease:
        for minutes in steps:
            gitlease_ledger.advance(minutes=minutes)
            lease.check()
            run.check()
        assert lease.seconds_left > 450
        with pytest.raises(gitlease.LeaseHeld):
            gitlease_ledger.open(BOB).claim("F001")


def test_a_lease_that_cannot_be_renewed_is_lost_to_who_holds_it(
    gitlease_ledger: MemoryLedger,
) -> None:
    told = threading.Event()
    run = gitlease_ledger.session(ADA, on_lost=lambda _run, _error: told.set())
    run.claim("F002")

    def hold() -> None:
        with gitlease_ledger.stand_in(BOB), gitlease.hold("F001") as lease:
            gitlease_ledger.failing = gitlease.Unavailable("no route to host")
            gitlease_ledger.advance(minutes=9)
            lease.check()
            gitlease_ledger.advance(minutes=6)
            assert lease.lost.is_set()
            gitlease_ledger.failing = None
            lease.check()

    with pytest.raises(gitlease.LeaseLost) as lost:
        hold()
    assert lost.value.loss is gitlease.Loss.UNREACHABLE
    assert told.wait(60)
    with pytest.raises(gitlease.LeaseLost):
        run.check()


def test_no_command_is_started_under_a_ledger_in_memory(gitlease_ledger: MemoryLedger) -> None:
    ada = gitlease_ledger.open(ADA)
    with raises(gitlease.UsageError):
        ada.run(["true"], "F001")
    with raises(gitlease.UsageError):
        ada.work(["true"])
    with gitlease_ledger.stand_in(ADA), pytest.raises(gitlease.UsageError, match="real"):
        gitlease.run(["true"], "F001")
    assert ada.list() == ()


def test_what_is_watched_is_told(gitlease_ledger: MemoryLedger) -> None:
    ada, bob = gitlease_ledger.open(ADA), gitlease_ledger.open(BOB)
    ada.claim("F001", ttl="10m")
    events = bob.watch("F001", timeout="1h")
    assert next(events).kind == "lapsed"
    told = threading.Event()
    heard = bob.on_available("F001")(lambda _event: told.set())
    assert heard.ready(30)
    ada.claim("F001")
    ada.release("F001")
    while not told.wait(0.02):
        gitlease_ledger.advance(seconds=10)
    heard.stop()


def test_it_needs_neither_pytest_nor_git() -> None:
    code = """
import sys
sys.modules["pytest"] = None
from gitlease.testing import MemoryLedger
with MemoryLedger() as ledger:
    print(ledger.open("ada@example.com").claim("F001").token)
"""
    env = clean_env({"PYTHONPATH": str(ROOT), "PATH": "/nowhere"})
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)
    assert (ran.stdout, ran.stderr) == (b"1\n", b"")
