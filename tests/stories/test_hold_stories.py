"""Holding on from Python: real threads, real forks, real remotes; a healthy one never lapses."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.remotes import Remote
from support.running import LONG, until
from support.session import LeaseService
from support.snapshots import raises

import gitlease

pytestmark = pytest.mark.slow

Clones = Callable[..., list[Path]]


@pytest.fixture
def clone(path_remote: Remote, clones: Clones) -> Path:
    """Jo's clone of a repository whose ledger allows leases of a second."""
    jo, _ = clones(2, path_remote)
    with gitlease.open(str(jo)) as leases:
        LeaseService(leases._ledger).set_policy(
            {"ttl_min": "1s", "skew": "0s", "admins": "w1@example.com"}
        )
    return jo


@pytest.fixture
def other(clone: Path) -> Path:
    """Another person's clone of the same."""
    return next(x for x in sorted(clone.parent.iterdir()) if x != clone and (x / ".git").is_dir())


def live(clone: Path) -> list[gitlease.Lease]:
    with gitlease.open(str(clone)) as leases:
        return [x for x in leases.list() if x.state == "active"]


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    """What keeps nothing leaves no thread behind."""
    before = {*threading.enumerate()}
    yield

    def own() -> list[threading.Thread]:
        now = threading.enumerate()
        return [t for t in now if t not in before and t.name.startswith("gitlease heartbeat")]

    until(lambda: not own(), "the end of the heartbeat")


def test_a_hold_is_renewed_while_it_lasts_and_released_at_its_end(clone: Path) -> None:
    with gitlease.hold("F001", ttl="6s", directory=str(clone)) as lease:
        until(lambda: [x.renewals for x in live(clone)] >= [2], "renewals")
        lease.check()
        [seen] = live(clone)
        assert (seen.token, seen.session) == (lease.token, lease.session)
        assert lease.session is not None
        assert 0 < lease.seconds_left <= 6
    assert live(clone) == []
    assert lease.seconds_left == 0


@pytest.mark.nightly
def test_several_are_held_together_or_not_at_all(clone: Path, other: Path) -> None:
    with (
        gitlease.hold("B", directory=str(other)),
        pytest.raises(gitlease.LeaseHeld),
        gitlease.hold("A", "B", directory=str(clone)),
    ):
        pass
    with gitlease.hold("A", "B", directory=str(clone)) as lease:
        assert sorted(lease.tokens) == ["A", "B"]
        with pytest.raises(gitlease.UsageError, match="2 leases"):
            _ = lease.token
    assert live(clone) == []


# --- runs, threads, nesting -----------------------------------------------------------------------


def test_two_threads_of_one_person_exclude_each_other(clone: Path) -> None:
    inside: list[int] = []
    seen: list[int] = []

    def work(number: int) -> None:
        with gitlease.hold("F001", wait="2m", directory=str(clone)):
            inside.append(number)
            seen.append(len(inside))
            inside.remove(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert seen == [1, 1, 1, 1]


def test_to_wait_for_what_one_holds_oneself_is_refused_at_once(clone: Path) -> None:
    with (
        gitlease.hold("src/", directory=str(clone)),
        raises(gitlease.UsageError),
        gitlease.hold("src/auth/", wait="1h", directory=str(clone)),
    ):
        pass


@pytest.mark.nightly
def test_a_hold_within_one_session_joins_and_only_the_outermost_releases(clone: Path) -> None:
    with gitlease.hold("F001", session="build-7", directory=str(clone)) as outer:
        with gitlease.hold("F001", session="build-7", directory=str(clone)) as inner:
            assert inner.token == outer.token
        assert len(live(clone)) == 1
        outer.check()
        assert outer.seconds_left > 0, "the inner end does not stop the heartbeat"
    assert live(clone) == []


def test_a_forked_child_neither_holds_nor_releases(clone: Path) -> None:
    with gitlease.hold("F001", directory=str(clone)) as lease:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                try:
                    lease.check()
                except gitlease.UsageError:
                    status = 0
                lease.__exit__(None, None, None)
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(live(clone)) == 1
        lease.check()


# --- a lost one -----------------------------------------------------------------------------------


def revoke(clone: Path, resource: str) -> None:
    with gitlease.open(str(clone)) as leases:
        leases.revoke(resource, reason="wrong task")


def test_a_loss_reaches_the_holder_and_ends_the_block(clone: Path, other: Path) -> None:
    calls: list[gitlease.Holding] = []
    hold = gitlease.hold("F001", ttl="6s", directory=str(other), on_lost=calls.append)
    with pytest.raises(gitlease.LeaseLost) as lost, hold as lease:  # noqa: PT012
        revoke(clone, "F001")
        assert lease.lost.wait(LONG)
        assert lease.loss is gitlease.Loss.REVOKED
        with raises(gitlease.LeaseLost):
            lease.check()
        with gitlease.open(str(clone)) as leases:
            leases.claim("F001")
    assert lost.value.loss == "revoked"
    until(lambda: calls == [hold], "the callback")
    assert [x.holder for x in live(clone)] == ["w1@example.com"], "its next holder keeps it"


@pytest.mark.nightly
def test_an_outage_past_the_deadline_is_a_loss_and_no_failure_of_the_end(
    clone: Path, path_remote: Remote
) -> None:
    away = path_remote.bare.with_name("away")
    hold = gitlease.hold("F001", ttl="6s", directory=str(clone))
    with raises(gitlease.LeaseLost), hold as lease:
        path_remote.bare.rename(away)
        assert lease.lost.wait(LONG)
        assert lease.loss is gitlease.Loss.UNREACHABLE
    away.rename(path_remote.bare)
    until(lambda: not live(clone), "its lapse: it was given up before its end")


def test_what_cannot_be_released_is_a_warning_not_an_error(
    clone: Path, path_remote: Remote
) -> None:
    away = path_remote.bare.with_name("away")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with gitlease.hold("F001", directory=str(clone)):
            path_remote.bare.rename(away)
    away.rename(path_remote.bare)
    assert [str(x.message) for x in said if "not released" in str(x.message)]
    assert len(live(clone)) == 1


def test_a_loss_wakes_who_awaits_it(clone: Path, other: Path) -> None:
    async def main() -> gitlease.Loss:
        async with gitlease.hold("F001", ttl="6s", directory=str(other)) as lease:
            waiting = asyncio.create_task(lease.wait_lost())
            await asyncio.to_thread(revoke, clone, "F001")
            await asyncio.wait_for(waiting, LONG)
            return await lease.wait_lost()

    with pytest.raises(gitlease.LeaseLost, match="revoked"):
        asyncio.run(main())


@pytest.mark.nightly
def test_a_cancelled_wait_leaves_nothing_behind(clone: Path, other: Path) -> None:
    async def wait() -> None:
        async with gitlease.hold("F001", wait="1h", directory=str(clone)):
            raise AssertionError("it was held by another")

    async def main() -> None:
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, LONG)

    with gitlease.hold("F001", directory=str(other)):
        asyncio.run(main())
        assert [x.holder for x in live(clone)] == ["w2@example.com"]
    assert live(clone) == []


# --- sessions -------------------------------------------------------------------------------------


def test_a_session_renews_what_it_claims_and_releases_all_in_one_push(
    clone: Path, path_remote: Remote
) -> None:
    with gitlease.session("build-7", directory=str(clone)) as run:
        for number in range(5):
            run.claim(f"task-{number}", ttl="6s")
        run.release("task-4")
        until(lambda: all(x.renewals for x in live(clone)), "renewals")
        run.check()
        assert [x.session for x in live(clone)] == ["build-7"] * 4
        assert not run.lost.is_set()
        with gitlease.open(str(clone)) as leases:
            leases.claim("mine", ttl="1h")
        before = path_remote.pushes()
    assert [x.resource for x in live(clone)] == ["mine"]
    assert path_remote.pushes() - before <= 2, "the release, and perhaps a heartbeat on its way"


@pytest.mark.nightly
def test_a_session_that_lost_something_says_so_at_its_end(clone: Path, other: Path) -> None:
    calls: list[str] = []
    run = gitlease.session(
        directory=str(other), on_lost=lambda _run, lost: calls.append(lost.message)
    )
    with pytest.raises(gitlease.LeaseLost), run:  # noqa: PT012
        assert run.session is not None
        run.claim("F001", ttl="6s")
        run.claim("F002", ttl="6s")
        revoke(clone, "F001")
        assert run.lost.wait(LONG)
        with pytest.raises(gitlease.LeaseLost, match="F001"):
            run.check()
    until(lambda: len(calls) == 1, "the callback")
    assert live(clone) == []


def test_bad_input_is_refused_before_anything_is_asked(clone: Path, path_remote: Remote) -> None:
    bad: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        (("F001",), {"ttl": "soon"}),
        (("F001",), {"wait": "-1s"}),
        (("F001",), {"paths": "src"}),
        (("F001",), {"local": True, "remote": "origin"}),
        ((["F001"],), {}),
        (("F001",), {"on_lost": 5}),
        (("F001",), {"on_lost": asyncio.sleep}),
    ]
    before = path_remote.connections()
    for words, options in bad:
        with (
            pytest.raises(gitlease.UsageError),
            gitlease.hold(*words, directory=str(clone), **options),
        ):
            pass
    assert path_remote.connections() == before
