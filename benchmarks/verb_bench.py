"""The verbs of a lease, by the command line and by the library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

from support.remotes import Remote

import gitlease
from benchmarks.bench import BARE, Bench, environment

VERBS = ("claim", "renew", "release")
CLI_AIM = 16  # starts of Python above the bare push
LIBRARY_AIM = 1.1
DISTANT_AIM = 1.15  # times the bare push to a server that is far away
LATENCY = 0.05  # seconds to that server, and as many back
START = "python start"
CACHED = ("list --cached", "status --cached")
STARTS = {**dict.fromkeys(CACHED, 10), "--version": 2}  # how many starts of Python it may take


class VerbBench(Bench):
    """Claim, renew and release of one resource, which others could not have meanwhile."""

    def __init__(self, remote: Remote, folder: Path, python: str) -> None:
        super().__init__(remote, folder, python)
        with environment(remote.env):
            self.leases = gitlease.open(str(self.clone), layer="library")

    def names(self) -> list[str]:
        """What is compared with, what asks no remote, then one door after the other."""
        return [
            BARE,
            START,
            *STARTS,
            *(f"{door} {verb}" for door in ("CLI", "library") for verb in VERBS),
        ]

    def aim(self, name: str, took: float, base: float) -> bool | None:
        """By the door, or by the start of Python."""
        if name in STARTS:
            return took <= STARTS[name] * median(self.timings[START].ms)
        if name.startswith("CLI"):
            return took - base <= CLI_AIM * median(self.timings[START].ms)
        if name.startswith("library"):
            return took <= LIBRARY_AIM * base
        return None

    def round(self) -> None:
        """Every verb once by either door, with the bare push between them."""
        self._process(START, [self.python, "-c", "pass"], self.env)
        self._words("--version")
        for verb in VERBS:
            self._bare_push()
            self._words(verb, "F001", "--layer", "cli", name=f"CLI {verb}")
            self._library(verb)
            if verb == "claim":  # what the others ask of needs somebody who holds something
                for name in CACHED:
                    self._words(*name.split(), "--layer", "cli", name=name)

    def _library(self, verb: str) -> None:
        call: Callable[[str], object] = getattr(self.leases, verb)
        with environment(self.remote.env):
            self._time(f"library {verb}", lambda: call("F001"))


class DistantBench(VerbBench):
    """The library's verbs on a server that is 50 ms away: each request more would show."""

    def __init__(self, remote: Remote, folder: Path, python: str) -> None:
        self._requests: dict[str, list[int]] = {}
        super().__init__(remote, folder, python)

    def names(self) -> list[str]:
        """What is compared with, then the library."""
        return [BARE, *(f"library {verb}" for verb in VERBS)]

    def aim(self, name: str, took: float, base: float) -> bool | None:
        """By the time, and by the number of requests."""
        if name == BARE:
            return None
        same = self._most_requests(name) <= self._most_requests(BARE)
        return same and took <= DISTANT_AIM * base

    def _most_requests(self, name: str) -> int:
        # In the first round, which is not counted, the clone fetches the ledger.
        return max(self._requests[name][-len(self.timings[name].ms) :])

    def round(self) -> None:
        """Every verb once, with the bare push between them."""
        for verb in VERBS:
            self._bare_push()
            self._library(verb)

    def _time(self, name: str, act: Callable[[], object]) -> object:
        repo = self.remote.http
        assert repo is not None
        before = len(repo.requests())
        result = super()._time(name, act)
        self._requests.setdefault(name, []).append(len(repo.requests()) - before)
        return result
