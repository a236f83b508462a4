"""Two people whose claims go stale: each with a clone of one remote, and real commits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitlease.check.opening import open_staleness
from gitlease.check.rules import CheckResult
from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.rules.resources import parse_resource
from gitlease.wiring.workspace import Workspace, open_workspace
from support.clock import ManualClock
from support.remotes import Remote
from support.repos import git
from support.session import LeaseService

DAY = 86_400
JO, KIM = "w1@example.com", "w2@example.com"
RELEASE = "stale: {after: 7d, release: true}\n"


def task_text(name: str, *assigned: str) -> str:
    fields = f"id: {name}\nstatus: todo\nassigned: [{', '.join(assigned)}]\n"
    place = "api" if name == "F001" else name
    return f"---\n{fields}paths: [src/{place}]\n---\n# {name}\n\nText.\n"


class Story:
    """jo and kim, each with a clone of one remote, and one clock for both and for their commits."""

    def __init__(self, made: list[Path], remote: Remote, patch: pytest.MonkeyPatch) -> None:
        self.jo, self.kim = made
        self.remote, self._patch = remote, patch
        self.clock = ManualClock()
        remote.open_to(patch)
        self.clock_of_git()
        self.put(self.jo, ".gitlease.yaml", RELEASE)
        for name in ("F001", "F002", "F003"):
            self.put(self.jo, f"tasks/{name}.md", task_text(name))
        self.commit(self.jo, "tasks")
        self.send(self.jo)
        self.get(self.kim)
        patch.delenv("CI", raising=False)
        for clone in made:  # as in a clone of a remote that has something already
            git(clone, "remote", "set-head", "origin", "main")

    def clock_of_git(self) -> None:
        """Let git tell the time of this story."""
        now = f"{self.clock.wall_ms // 1_000} +0000"
        for name in ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"):
            self._patch.setenv(name, now)

    def days(self, count: float) -> None:
        self.clock.advance(count * DAY)
        self.clock_of_git()

    def put(self, clone: Path, name: str, text: str) -> None:
        path = clone / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        git(clone, "add", "--", name)

    def env(self) -> dict[str, str]:
        return {k: v for k, v in os.environ.items() if k.startswith("GIT_")}

    def commit(self, clone: Path, message: str, *words: str) -> str:
        git(clone, "commit", "-q", "-m", message, *words, env=self.env())
        return git(clone, "rev-parse", "HEAD")

    def send(self, clone: Path, ref: str = "main") -> None:
        git(clone, "push", "-q", "origin", f"HEAD:{ref}", env=self.env())

    def get(self, clone: Path) -> None:
        git(clone, "pull", "-q", "--no-rebase", "origin", "main", env=self.env())

    def at(self, clone: Path) -> Workspace:
        return open_workspace(str(clone), clock=self.clock)

    def find(self, clone: Path | None = None) -> CheckResult:
        return open_staleness(self.at(clone or self.jo)).find()

    def kim_takes(self, name: str = "F001") -> str:
        """kim claims a task, commits the edge and pushes it; jo pulls."""
        LeaseService(self.at(self.kim).ledger).claim(
            [parse_resource(name)], ClaimOptions(commit=True)
        )
        self.send(self.kim)
        self.get(self.jo)
        return git(self.kim, "rev-parse", "HEAD")
