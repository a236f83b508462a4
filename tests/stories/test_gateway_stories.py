"""Gateways at work: killed at any moment, beside each other, and beside plain clones."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from support.gateway import Gate, running
from support.remotes import Remote
from support.running import LONG, Desk, until

import gitlease

CLIENTS, ROUNDS = 16, 3


def live(clone: Path, remote: Remote) -> dict[str, str]:
    """What is held, and by whom, as another clone reads it."""
    leases = Desk(clone, env=remote.env).document("list")["leases"]
    return {x["resource"]: x["holder"] for x in leases if x["state"] == "active"}


def _has(answered: dict[str, str], many: int) -> bool:
    return len(answered) >= many


@pytest.mark.slow
def test_a_gateway_that_is_killed_loses_nothing_that_it_answered(
    path_remote: Remote, clones: Callable[..., list[Path]]
) -> None:
    """Sixteen clients claim and release meanwhile; each asks again until it is answered."""
    folder, reader = clones(2)
    stop, answered = threading.Event(), dict[str, str]()
    with running(folder, path_remote) as gate:
        secrets = {f"p{n}": gate.token(f"p{n}") for n in range(CLIENTS)}

        def work(name: str) -> None:
            leases = gitlease.connect(gate.url, token=secrets[name])
            count = 0
            while not stop.is_set():
                count += 1
                mine, common = f"{name}-{count}", f"common-{count % 3}"
                with suppress(gitlease.Unavailable):
                    leases.claim(mine)
                    answered[mine] = f"{name}@example.com"
                try:
                    leases.claim(common)
                    leases.release(common)
                except (gitlease.LeaseHeld, gitlease.Unavailable):
                    continue

        with ThreadPoolExecutor(CLIENTS) as pool:
            working = [pool.submit(work, name) for name in secrets]
            for round_ in range(1, ROUNDS + 1):
                until(partial(_has, answered, round_ * 20), "claims are answered")
                gate.end(signal.SIGKILL)
                gate.start()
            until(partial(_has, answered, (ROUNDS + 1) * 20), "claims are answered again")
            stop.set()
            for one in working:
                one.result(LONG)
    there = live(reader, path_remote)
    lost = {name: who for name, who in answered.items() if there.get(name) != who}
    assert lost == {}, "what was answered stands in the ledger"
    assert Desk(reader, env=path_remote.env).document("verify")["violations"] == []


@pytest.mark.slow
def test_a_gateway_that_is_told_to_stop_answers_first(
    path_remote: Remote, clones: Callable[..., list[Path]]
) -> None:
    folder, reader = clones(2)
    gate = Gate(folder, path_remote)
    gate.start()
    secret = gate.token("jo")
    with ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(gitlease.connect(gate.url, token=secret).claim, f"n{n}") for n in range(8)
        ]
        until(lambda: any(x.done() for x in asked), "one is answered")
        assert gate.end(signal.SIGTERM) == 0
        got = {x.result().resource for x in asked if x.exception() is None}
    assert got <= live(reader, path_remote).keys()
    assert got


@pytest.mark.nightly
def test_two_gateways_and_four_clones_race_for_each_name(
    path_remote: Remote, clones: Callable[..., list[Path]]
) -> None:
    first, second, *plain = clones(6)
    with running(first, path_remote) as one, running(second, path_remote) as other:
        connected = [
            gitlease.connect(gate.url, token=gate.token(name))
            for gate, name in ((one, "g1"), (other, "g2"))
        ]
        desks = [Desk(clone, env=path_remote.env) for clone in plain]
        for round_ in range(6):
            name, start = f"r{round_}", threading.Barrier(6)

            def through(leases: gitlease.Connection, name: str, start: threading.Barrier) -> bool:
                start.wait(LONG)
                try:
                    return leases.claim(name).mine
                except gitlease.LeaseHeld:
                    return False

            def by_hand(desk: Desk, name: str, start: threading.Barrier) -> bool:
                start.wait(LONG)
                return desk.ask("claim", name).returncode == 0

            with ThreadPoolExecutor(6) as pool:
                asked = [pool.submit(through, x, name, start) for x in connected]
                asked += [pool.submit(by_hand, x, name, start) for x in desks]
                assert sum(x.result(LONG) for x in asked) == 1, name
