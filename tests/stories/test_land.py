"""A finished task lands whole: work, status and completed lease in one push, or nothing of them.

S5: a holder that lost its lease lands nothing under it. S6: what landed is not landed again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.clock import ManualClock
from support.hooked import task_text
from support.ledgers import workspace
from support.remotes import Remote
from support.repos import commit_file, git, make_clone
from support.snapshots import raises

from gitlease.core import GitleaseError, parse_resource
from gitlease.core import UsageError as Usage
from gitlease.faces.library import Leases
from gitlease.push import Landed, LandOptions, MergeConflict

pytestmark = pytest.mark.sampled(2)

DONE = "status: done"
TASKS = ("F001", "F002", "F003")


@dataclass
class Worker:
    """One person in one clone; every call is a new process of it."""

    root: Path
    clock: ManualClock

    @property
    def leases(self) -> Leases:
        return Leases(workspace(self.root, clock=self.clock))

    def land(self, name: str | None = "F001", **options: Any) -> Landed:
        resource = None if name is None else parse_resource(name)
        opened = workspace(self.root, clock=self.clock)
        return opened.land(resource, LandOptions(**options))

    def begins(self, name: str = "F001", branch: str | None = "topic") -> None:
        if branch is not None:
            self.git("checkout", "-q", "-b", branch)
        self.leases.claim(name)

    def works(self, file: str = "work.txt", text: str = "done\n", says: str = "work") -> str:
        return commit_file(self.root, file, text, says)

    def git(self, *words: str) -> str:
        return git(self.root, *words)

    def states(self) -> list[tuple[str, str]]:
        return sorted((x.resource, x.state) for x in self.leases.list(all=True))

    @property
    def picture(self) -> tuple[str, ...]:
        """What a landing that is refused leaves as it was."""
        text = (self.root / "tasks" / "F001.md").read_text()
        return (*(self.git(*x.split()) for x in ("symbolic-ref HEAD", "rev-parse HEAD")), text)


@dataclass
class Stage:
    remote: Remote
    jo: Worker
    kim: Worker

    @property
    def main(self) -> list[str]:
        """The subjects on the main branch, the newest first."""
        return git(self.remote.bare, "log", "--format=%s", "main").splitlines()

    def file(self, name: str) -> str:
        return git(self.remote.bare, "show", f"main:{name}")


def make_stage(remote: Remote, tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    for name, value in remote.env.items():
        monkeypatch.setenv(name, value)
    clock = ManualClock(wall_ms=int(time.time() * 1_000))
    jo, kim = (
        Worker(make_clone(remote, tmp / "at" / name, f"{name}@example.com", name), clock)
        for name in ("jo", "kim")
    )
    (jo.root / "tasks").mkdir()
    for name in TASKS:
        (jo.root / "tasks" / f"{name}.md").write_text(task_text(name))
    jo.git("add", "tasks")
    jo.git("commit", "-qm", "tasks")
    git(jo.root, "push", "-q", "origin", "HEAD:main", env=remote.env)
    git(kim.root, "pull", "-q", "origin", "main", env=remote.env)
    return Stage(remote, jo, kim)


@pytest.fixture
def stage(path_remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return make_stage(path_remote, tmp_path, monkeypatch)


@pytest.fixture
def any_stage(remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return make_stage(remote, tmp_path, monkeypatch)


# --- what lands -----------------------------------------------------------------------------------


@pytest.mark.one_in(2)
def test_work_status_and_lease_land_together(any_stage: Stage) -> None:
    """The claim's edge is not committed, and the work's tip is the worker's own: one commit."""
    jo = any_stage.jo
    jo.begins()
    jo.works()
    landed = jo.land()
    assert any_stage.main[:2] == ["work", "tasks"]
    assert DONE in any_stage.file("tasks/F001.md")
    assert "assigned: []" in any_stage.file("tasks/F001.md")
    assert (landed.commits, landed.fenced, landed.already) == (1, True, False)
    assert [x.state for x in landed.leases] == ["completed"]
    assert jo.git("rev-parse", "HEAD", "origin/main").split() == [landed.commit] * 2
    assert jo.git("status", "--porcelain") == ""
    token = landed.leases[0].token
    assert jo.git("log", "-1", "--format=%(trailers)").strip() == f"Gitlease: F001 token={token}"


def test_a_pushed_tip_gets_one_finishing_commit(stage: Stage) -> None:
    stage.jo.begins()
    tip = stage.jo.works()
    stage.jo.git("push", "-q", "origin", "topic")
    stage.jo.land()
    assert stage.main[:2] == ["Finish F001", "work"]
    assert stage.jo.git("rev-parse", "HEAD~1") == tip


def test_a_commit_of_the_claim_does_not_land_by_itself(stage: Stage) -> None:
    stage.jo.git("checkout", "-qb", "topic")
    stage.jo.leases.claim("F001", commit=True)
    stage.jo.works()
    stage.jo.land()
    assert stage.main[:2] == ["work", "tasks"]


def test_the_only_task_of_the_session_needs_no_name(stage: Stage) -> None:
    with raises(Usage):
        stage.jo.land(None)
    stage.jo.begins()
    stage.jo.works()
    assert stage.jo.land(None).resource == "F001"
    assert stage.jo.land(None).already
    for name in ("F002", "F003"):
        stage.jo.leases.claim(name)
    with raises(Usage):
        stage.jo.land(None)


@pytest.mark.parametrize("by", ["rebase", "merge"])
def test_a_base_that_moved_on_gets_the_work_on_top(stage: Stage, by: str) -> None:
    stage.jo.begins()
    stage.jo.works()
    stage.kim.begins("F002", branch=None)
    stage.kim.works("other.txt")
    stage.kim.land("F002")
    stage.jo.land(by=by)
    subjects = {"rebase": ["work"], "merge": ["Merge branch 'topic'"]}
    assert stage.main[: len(subjects[by])] == subjects[by]
    assert stage.file("other.txt") == stage.file("work.txt") == "done"
    assert stage.jo.states() == [("F001", "completed"), ("F002", "completed")]


# --- what does not --------------------------------------------------------------------------------


def test_a_conflict_names_files_and_changes_nothing(stage: Stage) -> None:
    stage.jo.begins()
    stage.jo.works("same.txt", "jo\n")
    stage.kim.begins("F002", branch=None)
    stage.kim.works("same.txt", "kim\n")
    stage.kim.land("F002")
    before, main = stage.jo.picture, stage.main
    with raises(MergeConflict) as caught:
        stage.jo.land()
    assert caught.value.files == ("same.txt",)
    assert (stage.jo.picture, stage.main) == (before, main)
    assert ("F001", "active") in stage.jo.states()


def test_a_lost_lease_lands_nothing(any_stage: Stage) -> None:
    jo = any_stage.jo
    jo.begins()
    jo.works()
    jo.clock.advance(3_600)
    any_stage.kim.leases.claim("F001", takeover=True, reason="gone")
    before, main = jo.picture, any_stage.main
    with pytest.raises(GitleaseError) as caught:
        jo.land()
    assert caught.value.code in ("lost", "not_holder")
    assert (jo.picture, any_stage.main) == (before, main)
