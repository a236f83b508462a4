"""A hold frees what it took: objects are counted once its block is over."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from support.running import until

import gitlease
from gitlease.kernel.ledger.heartbeat import Heartbeat, heartbeat_of
from gitlease.kernel.ledger.keeping import Keeper, LossDetector
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.library.holding import HeldLeases
from gitlease.testing import MemoryLedger
from gitlease.wiring.workspace import Workspace

pytestmark = pytest.mark.default

ADA, BOB = "ada@example.com", "bob@example.com"
COSTLY = (HeldLeases, Heartbeat, Keeper, LossDetector, LedgerSession, Workspace)


@pytest.fixture
def ledger() -> Iterator[MemoryLedger]:
    with MemoryLedger() as made:
        made.open(BOB).config("admins", BOB, ledger=True)
        with made.stand_in(ADA):
            yield made


class Since:
    """The objects of some kinds that came since; those that other tests left do not count."""

    def __init__(self, *kinds: type[Any]) -> None:
        self._kinds, self._threads = kinds, {*threading.enumerate()}
        gc.collect()
        self._before = self._every()  # kept, so that nothing new gets an id of theirs
        self._known = {id(x) for x in self._before}

    def _every(self) -> list[object]:
        return [x for x in gc.get_objects() if isinstance(x, self._kinds)]

    def _is_beating(self) -> bool:
        new = {*threading.enumerate()} - self._threads
        return any(thread.name.startswith("gitlease heartbeat") for thread in new)

    def left(self, *, collect: bool = True) -> list[str]:
        """What is left, once no new thread has leases to renew."""
        until(lambda: not self._is_beating(), "the end of the heartbeats")
        if collect:
            # Threads end a moment after their last look.
            gc.collect()
            gc.collect()
        return [type(x).__name__ for x in self._every() if id(x) not in self._known]


def hold_and_leave(name: str) -> gitlease.Holding:
    with gitlease.hold(name, any=True) as lease:
        assert lease.seconds_left > 0
    return lease


async def hold_and_leave_async(name: str) -> gitlease.Holding:
    async with gitlease.hold(name, any=True) as lease:
        assert lease.seconds_left > 0
    return lease


def test_a_hold_frees_what_it_took(ledger: MemoryLedger) -> None:
    since = Since(*COSTLY)
    for number in range(3):
        hold_and_leave(f"F{number}")
    assert since.left() == []


@pytest.mark.slow
def test_a_hold_of_an_event_loop_frees_what_it_took(ledger: MemoryLedger) -> None:
    async def main() -> None:
        for number in range(3):
            await hold_and_leave_async(f"F{number}")

    since = Since(*COSTLY)
    asyncio.run(main())
    assert since.left() == []


@pytest.mark.slow
def test_what_a_program_keeps_of_a_hold_keeps_nothing_else(ledger: MemoryLedger) -> None:
    async def main() -> gitlease.Holding:
        return await hold_and_leave_async("F1")

    since = Since(*COSTLY, asyncio.Task)
    kept = [hold_and_leave("F0"), asyncio.run(main())]
    assert since.left() == []
    assert [list(lease.tokens) for lease in kept] == [["F0"], ["F1"]]
    for lease in kept:
        lease.check()
        assert (lease.seconds_left, lease.loss) == (0.0, None)
        assert "0s left" in repr(lease)


def test_the_heartbeat_of_a_hold_goes_without_the_collector(ledger: MemoryLedger) -> None:
    since = Since(Heartbeat, Keeper, HeldLeases)
    gc.disable()
    try:
        hold_and_leave("F0")
        left = since.left(collect=False)
    finally:
        gc.enable()
    assert left == []


def test_a_lost_hold_frees_what_it_took_and_still_says_that_it_is_lost(
    ledger: MemoryLedger,
) -> None:
    entered = list[gitlease.Holding]()

    def lose() -> None:
        with gitlease.hold("F0", any=True) as lease:
            entered.append(lease)
            ledger.open(BOB).revoke("F0", reason="wrong task")
            ledger.advance(minutes=8)
            assert lease.lost.is_set()

    since = Since(*COSTLY)
    with pytest.raises(gitlease.LeaseLost):
        lose()
    assert since.left() == []
    with pytest.raises(gitlease.LeaseLost):
        entered[0].check()
    assert entered[0].loss is gitlease.Loss.REVOKED


@pytest.mark.slow
def test_a_claim_that_is_cancelled_frees_what_it_took(ledger: MemoryLedger) -> None:
    async def main() -> None:
        waiting = asyncio.create_task(hold_and_leave_async("F0"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    since = Since(*COSTLY)
    asyncio.run(main())
    assert since.left() == []


@pytest.mark.slow
def test_a_wait_for_a_loss_that_is_cancelled_leaves_nothing_in_the_hold(
    ledger: MemoryLedger,
) -> None:
    async def main() -> tuple[Counter[str], Counter[str]]:
        async with gitlease.hold("F0", any=True) as lease:
            before = events()
            for _ in range(5):
                waiting = asyncio.create_task(lease.wait_lost())
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.wait([waiting])
            del waiting
            return before, events()

    def events() -> Counter[str]:
        gc.collect()
        return Counter(type(x).__name__ for x in gc.get_objects() if isinstance(x, asyncio.Event))

    before, after = asyncio.run(main())
    assert after == before


def test_those_who_keep_leases_of_one_opened_clone_share_a_heartbeat(ledger: MemoryLedger) -> None:
    workspace = ledger.open(ADA)._workspace
    heartbeat = heartbeat_of(workspace)
    assert heartbeat_of(workspace) is heartbeat
    assert heartbeat_of(ledger.open(ADA)._workspace) is not heartbeat
