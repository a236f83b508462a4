"""Real runs of commands under leases: started, watched, and none left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gitlease
from gitlease.kernel.git.run import started_at
from support import commands
from support.documents import held_to_schema
from support.fences import clean_env
from support.session import LeaseService

ROOT = str(Path(__file__).parents[2])
LONG = commands.LONG  # seconds that a test waits for what must come, at most
MARK = "TEST_OF_RUNS"  # a variable by which everything that a test started is found again


def until(true: Callable[[], Any], what: str, *, limit: float = LONG) -> Any:
    """Wait for something that other processes bring about; what it came to."""
    end = time.monotonic() + limit
    while not (found := true()):
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.02)
    return found


def ask(cwd: Path, *words: str, expect: int = 0, env: Mapping[str, str] | None = None) -> Any:
    """Run a command with --json in a folder; its document, held to the schema."""
    done = commands.run_gitlease([*words, "--json"], cwd, env)
    assert done.returncode == expect, done
    return held_to_schema(json.loads(done.stdout))


def lives(pid: int) -> bool:
    """Whether a process runs; one that only waits to be buried does not."""
    return bool(started_at(pid))


def hurried(pauses: Mapping[str, float]) -> list[str]:
    """The program of gitlease with other pauses, in seconds: ``module.NAME`` is the name of one."""
    lines = ["import importlib", "from gitlease.__main__ import main"]
    for name, seconds in pauses.items():
        module, _, constant = name.rpartition(".")
        lines.append(f"assert vars(importlib.import_module({module!r}))[{constant!r}] >= {seconds}")
        lines.append(f"importlib.import_module({module!r}).{constant} = {seconds}")
    return [sys.executable, "-c", "\n".join([*lines, "main()"])]


class Desk:
    """A clone, and commands typed in it."""

    def __init__(self, clone: Path, env: Mapping[str, str] | None = None) -> None:
        self.clone, self.mark = clone, uuid.uuid4().hex
        self._started: list[subprocess.Popen[str]] = []
        self.env = {"PYTHONPATH": ROOT, MARK: self.mark, **(env or {})}

    def words(self, *argv: str) -> list[str]:
        return [sys.executable, "-m", "gitlease", *argv]

    def ask(
        self, *argv: str, input: str = "", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return commands.run_gitlease(argv, self.clone, {**self.env, **(env or {})}, input)

    def document(self, *argv: str, expect: int = 0) -> Any:
        """Run a command with --json; its document."""
        done = self.ask("--json", *argv)
        assert done.returncode == expect, done
        return json.loads(done.stdout)

    def start(
        self, *argv: str, env: Mapping[str, str] | None = None, **streams: Any
    ) -> subprocess.Popen[str]:
        """Start a command of gitlease."""
        return self.started(self.words(*argv), env, **streams)

    def started(
        self, words: Sequence[str], env: Mapping[str, str] | None = None, **streams: Any
    ) -> subprocess.Popen[str]:
        """Start any command; it is ended with the rest of what a failed test leaves."""
        given: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        started: subprocess.Popen[str] = subprocess.Popen(
            words,
            cwd=self.clone,
            env=clean_env({**self.env, **(env or {})}),
            encoding="utf-8",
            **(given | streams),
        )
        self._started.append(started)
        return started

    def live(self) -> list[str]:
        """The live leases of the ledger, as fresh as can be."""
        leases = self.document("list")["leases"]
        return [x["resource"] for x in leases if x["state"] == "active"]

    def processes(self) -> dict[int, str]:
        """Everything that was started here and still runs: its words by its number."""
        found = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError):
                variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
                words = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ")
                if f"{MARK}={self.mark}".encode() in variables and lives(int(name)):
                    found[int(name)] = words.decode("utf-8", "replace").strip()
        return found

    def guardian(self) -> int:
        """The guardian that watches now; there is just one."""

        def one() -> int:
            guards = [n for n, words in self.processes().items() if "runs.guardian" in words]
            return guards[0] if len(guards) == 1 else 0

        return int(until(one, "a guardian"))

    def all_gone(self) -> None:
        """See that nothing that was started here is left."""
        until(lambda: not self.processes(), "the end of every process")

    def clear(self) -> None:
        """End whatever a failed test left, and let go of what was started."""
        for pid in self.processes():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for process in self._started:
            process.wait(LONG)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


def short_leases(clone: Path) -> None:
    """Let the ledger allow leases of a second, which lapse when they end; the first two administer
    it.
    """
    with gitlease.open(str(clone)) as leases:
        admins = "w1@example.com w2@example.com"
        LeaseService(leases._ledger).set_policy({"ttl_min": "1s", "skew": "0s", "admins": admins})


@contextlib.contextmanager
def desks_in(clones: Iterable[Path]) -> Iterator[tuple[Desk, ...]]:
    """A desk in each clone; nothing that was started at them is left in the end."""
    made = tuple(map(Desk, clones))
    try:
        yield made
        for desk in made:
            desk.all_gone()
    finally:
        for desk in made:
            desk.clear()


def number_in(file: Path) -> int:
    """The number that a command writes into a file, once it is there."""

    def read() -> str:
        with contextlib.suppress(OSError):
            text = file.read_text()
            return text.strip() if text.endswith("\n") else ""
        return ""

    return int(until(read, f"a number in {file.name}"))


def sleeper(file: Path, *, deaf: bool = False) -> Sequence[str]:
    """A command that notes its number and sleeps; a deaf one does not heed TERM."""
    trap = "trap '' TERM; " if deaf else ""
    return ("sh", "-c", f'{trap}echo $$ >"$0"; while :; do sleep 0.1; done', str(file))
