"""The check of many commits against many claims, and of many tasks for stale ones."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.fences import clean_env
from support.remotes import Remote
from support.repos import git

from benchmarks.bench import Bench

BOTH, BOTH_AIM_MS = "both in one", 3_000.0
COMMITS, TASKS = 10_000, 5_000
CLAIMS = 200
ENOUGH = 4  # rounds, the first of which is not counted
START = 1_700_000_000
TASK = (
    "---\nid: T{0:04d}\ntitle: Task {0}\nstatus: {1}\nassigned: [{2}]\npaths: [src/part{0}]\n---\n"
)


class CheckBench(Bench):
    """A branch of many commits, a ledger with many claims, and a work tree with many tasks."""

    def __init__(
        self,
        remote: Remote,
        folder: Path,
        python: str,
        *,
        commits: int = COMMITS,
        tasks: int = TASKS,
    ) -> None:
        super().__init__(remote, folder, python)
        self._commits, self._round = commits, 0
        self._import(commits, tasks)
        git(self.clone, "push", "-q", "-f", "origin", "main", env=remote.env)
        git(self.clone, "fetch", "-q", env=remote.env)
        names = [f"T{2 * n:04d}" for n in range(1, min(CLAIMS, tasks // 2) + 1)]
        for start in range(0, len(names), 50):
            self._words("claim", *names[start : start + 50], "--ttl", "8h")
        git(self.clone, "checkout", "-q", "--", ".")
        git(self.clone, "config", "user.email", "other@example.com")
        self.timings.clear()

    def aim(self, name: str, took: float, base: float) -> bool | None:
        """All of it in one run."""
        return took <= BOTH_AIM_MS if name == BOTH else None

    def round(self) -> None:
        """Every operation once, with the bare push between them.

        They take seconds each: after a few rounds nothing is learnt any more.
        """
        self._bare_push()
        self._round += 1
        if self._round > ENOUGH:
            return
        some = f"check of {self._commits} commits"
        self._words("check", "origin/main..topic", "--fail-on", "never", name=some)
        self._bare_push()
        self._words("check", "--stale", "--fail-on", "never", name="check --stale")
        both = ("check", "origin/main..topic", "--stale", "--fail-on", "never")
        self._words(*both, name=BOTH)

    def _import(self, commits: int, tasks: int) -> None:
        text = "".join(_stream(commits, tasks))
        done = subprocess.run(
            ["git", "fast-import", "--quiet", "--force"],
            cwd=self.clone,
            env=clean_env(),
            input=text.encode(),
            check=False,
            capture_output=True,
        )
        if done.returncode:
            raise SystemExit(f"git fast-import failed: {done.stderr.decode(errors='replace')}")
        git(self.clone, "reset", "-q", "--hard", "main")


def _stream(commits: int, tasks: int) -> Iterator[str]:
    """The history: main with every task, and a branch on it with work by two people."""
    yield _commit("main", START, "begin")
    for n in range(1, tasks + 1):
        status, who = (("todo", ""), ("in_progress", "gone@example.com"))[n % 2]
        yield _file(f"tasks/T{n:04d}.md", TASK.format(n, status, who))
    yield "\n"
    for n in range(commits):
        yield _commit("topic", START + 60 * n, f"work {n}", parent="main" if n == 0 else "")
        yield _file(f"src/part{n % 1_000}/file{n % 7}.py", f"line {n}\n")
        if n % 5 == 0:
            task = n % max(tasks, 1) + 1
            yield _file(f"tasks/T{task:04d}.md", TASK.format(task, "todo", f"person{n}"))
        yield "\n"


def _commit(branch: str, at: int, subject: str, *, parent: str = "") -> str:
    who = f"Worker <worker{at % 2}@example.com> {at} +0000"
    stands_on = f"from refs/heads/{parent}\n" if parent else ""
    head = f"commit refs/heads/{branch}\nauthor {who}\ncommitter {who}\n"
    return f"{head}data {len(subject)}\n{subject}\n{stands_on}"


def _file(path: str, text: str) -> str:
    return f"M 100644 inline {path}\ndata {len(text)}\n{text}\n"
