"""People who land tasks, each in a clone of one remote of real git."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gitlease.kernel.rules.resources import parse_resource
from gitlease.landing.landing import Landed, LandOptions
from gitlease.library.leases import Leases
from support.clock import ManualClock
from support.hooked import task_text
from support.ledgers import workspace
from support.remotes import Remote
from support.repos import commit_file, git, make_clone


@dataclass
class Person:
    """One person in one clone; every call is a new process of it."""

    root: Path
    clock: ManualClock

    @property
    def file(self) -> Path:
        """The file of the task F001."""
        return self.root / "tasks" / "F001.md"

    def git(self, *words: str) -> str:
        return git(self.root, *words)

    def begins(
        self, name: str = "F001", branch: str | None = "topic", *, commits_edge: bool = False
    ) -> None:
        """Claim a task, and commit some work; the edge only with ``commits_edge``."""
        if branch is not None:
            self.git("checkout", "-q", "-b", branch)
        Leases(workspace(self.root, clock=self.clock)).claim(name)
        commit_file(self.root, f"work-{name}.txt", "done\n", f"work on {name}")
        if commits_edge:
            self.git("commit", "-qam", "the edge")

    def land(self, name: str = "F001", **options: Any) -> Landed:
        opened = workspace(self.root, clock=self.clock)
        return opened.land(parse_resource(name), LandOptions(**options))

    @property
    def states(self) -> dict[str, str]:
        """The state of each lease that the ledger has."""
        leases = Leases(workspace(self.root, clock=self.clock)).list(all=True)
        return {x.resource: x.state for x in leases}


@dataclass
class Landings:
    """jo and kim, who land tasks on the branch main of one remote."""

    bare: Path
    jo: Person
    kim: Person

    def on_main(self, name: str) -> str:
        """The text of a file there."""
        return git(self.bare, "show", f"main:{name}")

    @property
    def main(self) -> list[str]:
        """The subjects of its commits, the newest first."""
        return git(self.bare, "log", "--format=%s", "main").splitlines()


def make_landings(remote: Remote, folder: Path) -> Landings:
    clock = ManualClock(wall_ms=int(time.time() * 1_000))
    jo, kim = (
        Person(make_clone(remote, folder / x, f"{x}@example.com", x), clock) for x in ("jo", "kim")
    )
    for name in ("F001", "F002"):
        target = jo.root / "tasks" / f"{name}.md"
        target.parent.mkdir(exist_ok=True)
        target.write_text(task_text(name), encoding="utf-8")
    jo.git("add", "tasks")
    jo.git("commit", "-qm", "tasks")
    jo.git("push", "-q", "origin", "HEAD:main")
    kim.git("pull", "-q", "origin", "main")
    return Landings(remote.bare, jo, kim)
