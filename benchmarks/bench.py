"""One remote, one clone, and operations that are timed against a bare git push."""

from __future__ import annotations

import abc
import contextlib
import gc
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.fences import clean_env
from support.remotes import Remote
from support.repos import git, make_clone

ROOT = Path(__file__).resolve().parents[1]
BARE = "bare push"
REF = "refs/benchmark/bare"


@contextlib.contextmanager
def environment(extra: Mapping[str, str]) -> Iterator[None]:
    """This process's environment with more in it, for calls that start git from here."""
    before = {name: os.environ.get(name) for name in extra}
    os.environ.update(extra)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@dataclass
class Timings:
    """How long one operation took, each time, and how many connections it made."""

    ms: list[float] = field(default_factory=list)
    connections: list[int] = field(default_factory=list)


class Bench(abc.ABC):
    """One transport: a remote, a clone, and the operations that are timed against it.

    ``base`` is the operation that the others are compared with.
    """

    base = BARE

    def __init__(self, remote: Remote, folder: Path, python: str) -> None:
        self.remote, self.python = remote, python
        self.clone = make_clone(remote, folder / "clone", "bench@example.com", "Bench")
        self.env = clean_env(remote.env)
        self.timings: dict[str, Timings] = {}
        self._pushed, self._number = "", 0

    def names(self) -> list[str]:
        """The operations in the order of the table: the bare push, the others as first timed."""
        return sorted(self.timings, key=lambda name: name != BARE)

    def aim(self, name: str, took: float, base: float) -> bool | None:
        """Whether milliseconds are what is aimed at; None where there is no aim."""
        return None

    @abc.abstractmethod
    def round(self) -> None:
        """Every operation once; the bare push stands between the others, so noise hits all."""

    def _bare_push(self) -> None:
        """One small new commit (it changes one file) to a ref of its own, as plain git does it."""
        self._number += 1
        text = f"change {self._number}\n"
        blob = git(self.clone, "hash-object", "-w", "--stdin", input=text)
        tree = git(self.clone, "mktree", input=f"100644 blob {blob}\tchanged\n")
        parents = ("-p", self._pushed) if self._pushed else ()
        new = git(self.clone, "commit-tree", tree, *parents, "-m", text)
        lease = f"--force-with-lease={REF}:{self._pushed}"
        self._process(BARE, ["git", "push", "-q", lease, "origin", f"{new}:{REF}"], self.env)
        self._pushed = new

    def _words(self, *words: str, name: str = "") -> None:
        """One command of gitlease, by name."""
        line = [self.python, "-m", "gitlease", *words]
        self._process(name or words[0], line, {**self.env, "PYTHONPATH": str(ROOT)})

    def _process(
        self, name: str, words: Sequence[str], env: Mapping[str, str], *, cwd: Path | None = None
    ) -> None:
        # No timeout: with one, Python waits by polling ever more slowly, which would be measured.
        with tempfile.TemporaryFile() as said:

            def run() -> int:
                return subprocess.call(
                    words,
                    cwd=cwd or self.clone,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                )

            if self._time(name, run):
                said.seek(0)
                raise SystemExit(f"{name} failed: {said.read().decode(errors='replace')}")

    def _time(self, name: str, act: Callable[[], object]) -> object:
        before = self.remote.connections()
        gc.collect()
        began = time.perf_counter()
        result = act()
        took = (time.perf_counter() - began) * 1_000
        timings = self.timings.setdefault(name, Timings())
        timings.ms.append(took)
        timings.connections.append(self.remote.connections() - before)
        return result
