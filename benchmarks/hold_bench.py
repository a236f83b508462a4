"""What holding on costs: heartbeats of many leases, a command under a lease, and a handover."""

from __future__ import annotations

import random
import subprocess
from functools import partial
from pathlib import Path

from support.clock import ManualClock
from support.memory import MemoryClone, MemoryRemote, memory_ledger_store
from support.remotes import Remote
from support.repos import make_clone
from support.session import ledger_session

import gitlease
from benchmarks.bench import BARE, ROOT, Bench, environment
from gitlease.kernel.ledger.acts import renew_grants
from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.ledger.claim import claim
from gitlease.kernel.ledger.keeping import Keeper, holds_of
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.resources import parse_resource
from gitlease.wiring.workspace import open_workspace

COUNTS = (1, 10, 50)
RUN = "run -- true"
HERE, THERE = "handover, same clone", "handover, another clone"
TTL = 900


class HoldBench(Bench):
    """One holder with many leases, and two who hand one over to each other."""

    def __init__(self, remote: Remote, folder: Path, python: str) -> None:
        super().__init__(remote, folder, python)
        self._other = make_clone(remote, folder / "other", "kim@example.com", "Kim")
        self._beats = {}
        for count in COUNTS:
            opened = open_workspace(str(self.clone), layer=f"beats-{count}", session="bench")
            wanted = [parse_resource(f"task-{n}") for n in range(count)]
            self._beats[count] = opened.ledger, holds_of(claim(opened.ledger, wanted))

    def names(self) -> list[str]:
        """What is compared with, heartbeats, a run, and handovers."""
        return [BARE, *(f"heartbeat of {count}" for count in COUNTS), RUN, HERE, THERE]

    def round(self) -> None:
        """Each once."""
        self._bare_push()
        for count, (ledger, holds) in self._beats.items():
            grants = [hold.grant for hold in holds]
            with environment(self.remote.env):
                self._time(f"heartbeat of {count}", partial(renew_grants, ledger, grants))
        self._words("run", "F001", "--layer", "run", "--", "true", name=RUN)
        self._handover(HERE, self.clone)
        self._handover(THERE, self._other)

    def _handover(self, name: str, clone: Path) -> None:
        """From the release by one process to the claim by another that waits for it."""
        words = [self.python, "-u", "-m", "gitlease", "--session", "waiter", "--layer", "handover"]
        env = {**self.env, "PYTHONPATH": str(ROOT)}
        holder = gitlease.open(str(self.clone), layer="handover", session="holder")
        with holder:
            holder.claim("F001", ttl="1h")
            with subprocess.Popen(
                [*words, "claim", "F001", "--wait", "5m"],
                cwd=clone,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            ) as waiter:
                if waiter.stderr is None or "waiting" not in waiter.stderr.readline():
                    raise SystemExit(f"{name} failed: nobody waits")

                def hand_over() -> int:
                    holder.release("F001")
                    return waiter.wait()

                if self._time(name, hand_over):
                    raise SystemExit(f"{name} failed: {waiter.stderr.read()}")
        self._quietly([*words, "release", "F001"], clone, env)

    def _quietly(self, line: list[str], clone: Path, env: dict[str, str]) -> None:
        subprocess.run(line, cwd=clone, env=env, check=True, capture_output=True)


def per_hour(count: int) -> int:
    """Pushes of one process in an hour that holds ``count`` leases of 15 minutes; exact."""
    clock, remote = ManualClock(), MemoryRemote()
    store = memory_ledger_store(remote, clock=clock, clone=MemoryClone(), place="memory")
    session = ledger_session(store, clock=clock, actor=Actor("jo@example.com", session="bench"))
    keeper = Keeper(lambda _limit: session, clock=clock, dice=random.Random(7))
    names = [parse_resource(f"t{n}") for n in range(count)]
    keeper.add(holds_of(claim(session, names, ClaimOptions(ttl=TTL))))
    remote.requests.clear()
    end = clock.boot_ms + 3_600_000
    while clock.boot_ms < end:
        clock.advance(min(keeper.due_in() or 1.0, (end - clock.boot_ms) / 1_000) + 0.001)
        if batch := keeper.batch():
            keeper.settle(keeper.renew(batch))
    return len(remote.requests)
