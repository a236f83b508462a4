"""The verbs of a lease, by the command line and by the library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.remotes import Remote

import gitlease
from benchmarks.bench import BARE, Bench, environment

VERBS = ("claim", "renew", "release")
START = "start-up"
CLI_AIM_MS = 100.0
LIBRARY_AIM = 1.3


class VerbBench(Bench):
    """Claim, renew and release of one resource, which others could not have meanwhile."""

    def __init__(self, remote: Remote, folder: Path, python: str) -> None:
        super().__init__(remote, folder, python)
        with environment(remote.env):
            self.leases = gitlease.open(str(self.clone), layer="library")

    def names(self) -> list[str]:
        """What is compared with, the start of Python, then one door after the other."""
        return [BARE, START, *(f"{door} {verb}" for door in ("CLI", "library") for verb in VERBS)]

    def aim(self, name: str, took: float, base: float) -> bool | None:
        """By the door."""
        if name.startswith("CLI"):
            return took - base <= CLI_AIM_MS
        if name.startswith("library"):
            return took <= LIBRARY_AIM * base
        return None

    def round(self) -> None:
        """Every verb once by either door, with the bare push between them."""
        self._words("--version", name=START)
        for verb in VERBS:
            self._bare_push()
            self._words(verb, "F001", "--layer", "cli", name=f"CLI {verb}")
            self._library(verb)

    def _library(self, verb: str) -> None:
        call: Callable[[str], object] = getattr(self.leases, verb)
        with environment(self.remote.env):
            self._time(f"library {verb}", lambda: call("F001"))
