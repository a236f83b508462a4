"""The library for programs with an event loop: real threads and remotes, cancelled at any point."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.remotes import Remote
from support.running import LONG
from support.snapshots import check_words

import gitlease
from gitlease.kernel.ledger.ports import Swapped
from gitlease.kernel.rules.ledger import Fate
from gitlease.kernel.store.git_ledger import RefLedgerStore

pytestmark = pytest.mark.slow


@pytest.fixture
def two(path_remote: Remote, clones: Callable[..., list[Path]]) -> list[Path]:
    """The clones of Jo and of another person."""
    return clones(2, path_remote)


def live(clone: Path) -> dict[str, str]:
    leases = gitlease.open(clone).list()
    return {lease.resource: lease.holder for lease in leases if lease.state == "active"}


class Gate:
    """Stops each push of a ledger until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, after: bool = False) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        swap = RefLedgerStore.swap

        def swapped(store: RefLedgerStore, *words: Any, **more: Any) -> Swapped:
            done = swap(store, *words, **more) if after else None
            self.reached.set()
            assert self.open.wait(LONG)
            return done or swap(store, *words, **more)

        monkeypatch.setattr(RefLedgerStore, "swap", swapped)

    async def cancel(self, work: asyncio.Task[Any], *, times: int = 1) -> None:
        """Cancel some work in the middle of its push, which then goes on."""
        assert await asyncio.to_thread(self.reached.wait, LONG)
        for _ in range(times):
            work.cancel()
            await asyncio.sleep(0)
            assert not work.done(), "it waits for its thread"
        self.open.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(work, LONG)


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    yield
    end = time.monotonic() + LONG
    for thread in threading.enumerate():
        if thread.name.startswith("gitlease async"):
            thread.join(end - time.monotonic())
            assert not thread.is_alive()


@pytest.mark.default
def test_verbs_are_awaited(two: list[Path]) -> None:
    async def main() -> None:
        async with gitlease.open_async(two[0], session="one") as leases:
            assert (leases.holder, leases.session) == ("w1@example.com", "one")
            lease = await leases.claim("F001", ttl="15m")
            assert lease.session == "one"
            assert [x.resource for x in await leases.list()] == ["F001"]
            with pytest.raises(gitlease.LeaseHeld):
                await leases.claim("F001", new=True)
            assert (await leases.fence("F001", lease.token)).token == lease.token
            await leases.note("F001", "half done")
            await leases.release("F001")

    asyncio.run(main())
    assert live(two[1]) == {}


@pytest.mark.nightly
def test_calls_wait_beside_each_other(two: list[Path]) -> None:
    """More of them than a pool of threads would have, and none keeps the one that ends it."""

    async def main() -> None:
        with gitlease.open(two[1]) as other:
            other.claim("F001")
        async with gitlease.open_async(two[0]) as leases, asyncio.timeout(LONG):
            waits = [asyncio.create_task(leases.wait("F001")) for _ in range(40)]
            await asyncio.gather(*(leases.claim(f"G{n}") for n in range(3)))
            with gitlease.open(two[1]) as other:
                other.release("F001")
            for wait in waits[1:]:
                wait.cancel()
            await waits[0]
            await asyncio.wait(waits)
            assert all(wait.cancelled() for wait in waits[1:])

    asyncio.run(main())
    assert set(live(two[1])) == {"G0", "G1", "G2"}


@pytest.mark.parametrize(("after", "times"), [(False, 3), (True, 1)])
def test_a_claim_that_is_cancelled_while_it_is_pushed_is_released(
    two: list[Path], monkeypatch: pytest.MonkeyPatch, after: bool, times: int
) -> None:
    async def main() -> None:
        async with gitlease.open_async(two[0]) as leases:
            gate = Gate(monkeypatch, after=after)
            claim = asyncio.create_task(leases.claim_all(["F001", "src/"], any=True))
            await gate.cancel(claim, times=times)

    asyncio.run(main())
    assert live(two[1]) == {}


@pytest.mark.nightly
def test_what_was_held_stays_where_a_renewal_is_cancelled_and_a_release_is_made(
    two: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with gitlease.open_async(two[0]) as leases:
            await leases.claim("F001")
            for change, left in ((leases.claim, {"F001": "w1@example.com"}), (leases.release, {})):
                gate = Gate(monkeypatch)
                await gate.cancel(asyncio.create_task(change("F001")))
                assert live(two[1]) == left

    asyncio.run(main())


def test_a_claim_without_an_answer_is_released_where_it_landed(
    two: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    swap, reached, cancelled = RefLedgerStore.swap, threading.Event(), threading.Event()

    def unanswered(store: RefLedgerStore, *words: Any) -> Swapped:
        """The push lands, and neither that nor any later try of it is answered."""
        monkeypatch.setattr(RefLedgerStore, "forget_pending", lambda *_words: None)
        done = swap(store, *words)
        monkeypatch.undo()
        assert done.fate is Fate.APPLIED
        reached.set()
        assert cancelled.wait(LONG)
        raise gitlease.UnknownOutcome("whether it reached the remote cannot be known")

    async def main() -> None:
        async with gitlease.open_async(two[0]) as leases:
            monkeypatch.setattr(RefLedgerStore, "swap", unanswered)
            claim = asyncio.create_task(leases.claim("F001"))
            assert await asyncio.to_thread(reached.wait, LONG)
            claim.cancel()
            await asyncio.sleep(0)
            cancelled.set()
            with pytest.raises(asyncio.CancelledError):
                await claim

    asyncio.run(main())
    assert live(two[1]) == {}


def test_what_cannot_be_released_is_said(two: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_words: Any) -> Swapped:
        raise gitlease.Unavailable("away")

    async def main() -> None:
        async with gitlease.open_async(two[0]) as leases:
            gate = Gate(monkeypatch, after=True)
            claim = asyncio.create_task(leases.claim("F001"))
            assert await asyncio.to_thread(gate.reached.wait, LONG)
            monkeypatch.setattr(RefLedgerStore, "swap", away)
            with pytest.warns(RuntimeWarning) as warned:
                await gate.cancel(claim)
            check_words(warned[0].message)

    asyncio.run(main())
    assert live(two[1]) == {"F001": "w1@example.com"}


@pytest.mark.nightly
def test_a_timeout_ends_a_wait_and_leaves_the_line(two: list[Path]) -> None:
    async def main() -> None:
        async with gitlease.open_async(two[0]) as leases:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await leases.claim("F001", wait="1h")

    gitlease.open(two[1]).claim("F001")
    asyncio.run(main())
    other = gitlease.open(two[1])
    other.release("F001")
    assert other.claim("F001", new=True).holder == "w2@example.com"


@pytest.mark.default
def test_events_are_iterated_until_the_loop_is_left_or_cancelled(two: list[Path]) -> None:
    async def main() -> None:
        async with gitlease.open_async(two[0]) as leases:
            events = leases.watch("F001", timeout="1h")
            first = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            while not first.done():
                await leases.claim("F001")
                await leases.release("F001")
            assert (await first).resource == "F001"
            await events.aclose()
            endless = asyncio.create_task(_drained(leases.watch()))
            await asyncio.sleep(0)
            endless.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(endless, LONG)
            assert [x async for x in leases.watch("F009", timeout=1)] == []

    asyncio.run(main())


async def _drained(events: Any) -> None:
    async for _event in events:
        pass


def test_every_verb_is_there_and_documented() -> None:
    left_out = {"run", "work", "on_available", "on_assignment"}
    verbs = {name for name in dir(gitlease.Leases) if not name.startswith("_")}
    assert verbs - left_out == {x for x in dir(gitlease.AsyncLeases) if not x.startswith("_")}
    for name in verbs - left_out - {"watch", "holder", "session"}:
        verb = getattr(gitlease.AsyncLeases, name)
        assert inspect.signature(verb) == inspect.signature(getattr(gitlease.Leases, name))
        assert inspect.getdoc(verb)
