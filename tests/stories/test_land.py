"""A finished task lands whole: work, status and completed lease in one push, or nothing of them.

S5: a holder that lost its lease lands nothing under it. S6: what landed is not landed again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.clock import ManualClock
from support.hooked import task_text
from support.killing import armed, in_child
from support.ledgers import workspace
from support.remotes import Remote
from support.repos import commit_file, git, make_clone
from support.snapshots import check_words, raises

from gitlease.cli.app import run
from gitlease.kernel.git import branches
from gitlease.kernel.git.files import notes_of
from gitlease.kernel.git.run import started_at
from gitlease.kernel.ledger import acts
from gitlease.kernel.ledger.wait import WaitQueue
from gitlease.kernel.rules.errors import GitleaseError, Invalid, NotFound, PolicyRefused
from gitlease.kernel.rules.errors import UsageError as Usage
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store import transport
from gitlease.kernel.store.git_ledger import RefLedgerStore
from gitlease.landing import landing
from gitlease.landing.landing import Landed, LandOptions
from gitlease.landing.replay import MergeConflict
from gitlease.library.leases import Leases
from gitlease.tasks import edge_commit
from gitlease.wiring.workspace import open_workspace

pytestmark = pytest.mark.slow

DONE = "status: done"
TASKS = ("F001", "F002", "F003")


@dataclass
class Worker:
    """One person in one clone; every call is a new process of it."""

    root: Path
    clock: ManualClock
    env: Mapping[str, str]  # how git reaches the remote

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
        return git(self.root, *words, env=self.env)

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

    def adds(self, name: str) -> None:
        """kim adds a task on the main branch."""
        self.kim.git("pull", "-q", "origin", "main")
        commit_file(self.kim.root, f"tasks/{name}.md", task_text(name), f"add {name}")
        self.kim.git("push", "-q", "origin", "HEAD:main")

    def file(self, name: str) -> str:
        return git(self.remote.bare, "show", f"main:{name}")


def make_stage(remote: Remote, tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    remote.open_to(monkeypatch)
    clock = ManualClock(wall_ms=int(time.time() * 1_000))
    jo, kim = (
        Worker(
            make_clone(remote, tmp / "at" / name, f"{name}@example.com", name), clock, remote.env
        )
        for name in ("jo", "kim")
    )
    (jo.root / "tasks").mkdir()
    for name in TASKS:
        (jo.root / "tasks" / f"{name}.md").write_text(task_text(name))
    jo.git("add", "tasks")
    jo.git("commit", "-qm", "tasks")
    jo.git("push", "-q", "origin", "HEAD:main")
    kim.git("pull", "-q", "origin", "main")
    return Stage(remote, jo, kim)


@pytest.fixture
def stage(path_remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return make_stage(path_remote, tmp_path, monkeypatch)


@pytest.fixture
def any_stage(remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return make_stage(remote, tmp_path, monkeypatch)


# --- what lands -----------------------------------------------------------------------------------


@pytest.mark.default("path")
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


@pytest.mark.nightly
def test_a_landing_needs_no_locks_and_is_the_only_one_of_its_work_tree(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    notes, key, own = notes_of(f"{stage.jo.root}/.git"), f"{stage.jo.root}/.git", os.getpid()
    stage.jo.begins()
    stage.jo.works()
    notes.put("landing", key, [own, started_at(own)], at=time.time())
    with pytest.raises(Invalid, match="under way"):
        stage.jo.land()
    notes.put("landing", key, [own, "another start"], at=time.time())
    assert [x.state for x in stage.jo.land().leases] == ["completed"]


def test_a_pushed_tip_gets_one_finishing_commit(stage: Stage) -> None:
    stage.jo.begins()
    tip = stage.jo.works()
    stage.jo.git("push", "-q", "origin", "topic")
    stage.jo.land()
    assert stage.main[:2] == ["Finish F001", "work"]
    assert stage.jo.git("rev-parse", "HEAD~1") == tip


@pytest.mark.default
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


@pytest.mark.nightly
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
    assert (
        "git rebase --autostash origin/main" in caught.value.hints[0]
    )  # the edge is not committed
    assert (stage.jo.picture, stage.main) == (before, main)
    assert ("F001", "active") in stage.jo.states()


@pytest.mark.nightly
def test_a_lost_lease_lands_nothing(any_stage: Stage) -> None:
    jo = any_stage.jo
    jo.begins()
    works = [jo.works()[:10]]
    jo.clock.advance(3_600)
    main = any_stage.main
    with pytest.raises(GitleaseError) as caught:
        jo.land()
    assert caught.value.code == "lost"
    named = f"; commit {works[0]} would land under it"
    assert caught.value.message.endswith(named), caught.value.message
    any_stage.kim.leases.claim("F001", takeover=True, reason="gone")
    works.append(jo.works(text="more\n")[:10])
    before = jo.picture
    with pytest.raises(GitleaseError) as caught:
        jo.land()
    assert caught.value.code in ("lost", "not_holder")
    named = f"; 2 commits, {works[0]} the oldest, would land under it"
    assert caught.value.message.endswith(named), caught.value.message
    assert (jo.picture, any_stage.main) == (before, main)
    with pytest.raises(GitleaseError) as caught:
        jo.land("F002")
    assert works[0] not in caught.value.message, "it was never held"


# --- in the way -----------------------------------------------------------------------------------


def test_what_is_not_committed_is_named(stage: Stage) -> None:
    stage.jo.begins()
    stage.jo.works()
    (stage.jo.root / "work.txt").write_text("half\n")
    (stage.jo.root / "forgotten.py").write_text("new\n")
    before = stage.jo.picture
    with raises(Invalid):
        stage.jo.land()
    assert (stage.jo.picture, (stage.jo.root / "work.txt").read_text()) == (before, "half\n")
    stage.jo.git("commit", "-qam", "half")
    (warning,) = stage.jo.land().warnings
    assert "forgotten.py" in warning


def test_a_name_that_is_no_task_does_not_land(stage: Stage) -> None:
    stage.jo.git("checkout", "-q", "-b", "topic")
    stage.jo.leases.claim("deploy", any=True)
    stage.jo.works()
    with raises(NotFound):
        stage.jo.land("deploy")
    assert stage.jo.states() == [("deploy", "active")]


@pytest.mark.nightly
def test_a_check_that_fails_puts_everything_back(stage: Stage) -> None:
    stage.jo.begins()
    stage.jo.works()
    before, main = stage.jo.picture, stage.main
    with raises(GitleaseError) as caught:
        stage.jo.land(check=("grep", "-q", "status: nothing", "tasks/F001.md"))
    assert caught.value.code == "violations"
    assert (stage.jo.picture, stage.main) == (before, main)
    assert stage.jo.land(check=("grep", "-q", DONE, "tasks/F001.md")).commits == 1


def test_what_the_check_commits_is_neither_landed_nor_lost(stage: Stage) -> None:
    stage.jo.begins()
    stage.jo.works()
    main = stage.main
    with pytest.raises(GitleaseError) as caught:
        stage.jo.land(check=("git", "commit", "-qm", "more", "--allow-empty"))
    assert stage.main == main
    assert stage.jo.git("log", "-1", "--format=%s") == "more"
    assert caught.value.hints
    assert stage.jo.land().commits == 2


@pytest.mark.default
def test_what_was_done_and_pushed_by_hand_has_landed(stage: Stage) -> None:
    stage.jo.begins()
    stage.jo.works()
    stage.jo.leases.done("F001")
    stage.jo.git("commit", "-qam", "done")
    stage.jo.git("push", "-q", "origin", "HEAD:main")
    assert stage.jo.land().already


def test_a_hook_that_refuses_puts_everything_back(stage: Stage) -> None:
    stage.jo.begins()
    stage.jo.works()
    hook = stage.jo.root / ".git" / "hooks" / "pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    before = stage.jo.picture
    with raises(GitleaseError) as caught:
        stage.jo.land()
    assert caught.value.code == "denied"
    assert stage.jo.picture == before
    assert stage.jo.land(hooks=False).commits == 1


@pytest.mark.default
def test_a_host_without_atomic_pushes_has_no_fence(stage: Stage) -> None:
    git(stage.remote.bare, "config", "receive.advertiseAtomic", "false")
    stage.jo.begins()
    stage.jo.works()
    before = stage.jo.picture
    with raises(GitleaseError) as caught:
        stage.jo.land()
    assert caught.value.code == "denied"
    assert stage.jo.picture == before
    landed = stage.jo.land(unfenced=True)
    check_words(landed.warnings)
    assert (landed.fenced, stage.main[0]) == (False, "work")
    assert stage.jo.states() == [("F001", "completed")]


def test_a_task_that_was_done_by_hand_has_not_landed(stage: Stage) -> None:
    stage.jo.begins()
    stage.jo.works()
    stage.jo.leases.done("F001")
    stage.jo.git("checkout", "-q", "tasks")
    with raises(PolicyRefused):
        stage.jo.land()


# --- interrupted, and together --------------------------------------------------------------------

STEPS: tuple[tuple[Any, str], ...] = (
    (edge_commit, "run_git"),
    (branches, "ask_remote"),
    (transport, "run_git"),
    (RefLedgerStore, "swap"),
)


@pytest.mark.slow("False-0", "True-0")
@pytest.mark.nightly
@pytest.mark.parametrize("first", range(8))
@pytest.mark.parametrize("unfenced", [False, True])
def test_a_landing_that_is_killed_anywhere_lands_once(
    stage: Stage, first: int, *, unfenced: bool
) -> None:
    jo, number = stage.jo, first
    if unfenced:
        git(stage.remote.bare, "config", "receive.advertiseAtomic", "false")
    while True:
        name = f"K{number:03}"
        stage.adds(name)
        jo.git("fetch", "-q", "origin")
        jo.git("checkout", "-q", "-B", "topic", "origin/main")
        jo.leases.claim(name)
        jo.works(f"{name}.txt", says=f"work on {name}")
        stage.adds(f"O{number:03}")

        def act(name: str = name, number: int = number) -> None:
            armed(number, STEPS)
            jo.land(name, unfenced=unfenced)

        killed = in_child(act)
        again = jo.land(name, unfenced=unfenced)
        assert stage.main.count(f"work on {name}") == 1
        assert DONE in stage.file(f"tasks/{name}.md")
        assert (name, "completed") in jo.states()
        assert jo.git("status", "--porcelain") == ""
        if not killed:
            assert again.already
            break
        number += 8
    assert number > 20


def test_a_check_that_takes_longer_than_the_lease_lands(stage: Stage) -> None:
    opened = open_workspace(str(stage.jo.root), environ={})
    acts.set_policy(opened.ledger, {"ttl_min": "1s", "skew": "0s"})
    stage.jo.git("checkout", "-q", "-b", "topic")
    Leases(opened).claim("F001", ttl="6s")
    stage.jo.works()
    at = 'at() { git ls-remote "$0" "refs/gitlease/*"; }; old=$(at); '
    renewed = at + 'until [ "$(at)" != "$old" ]; do sleep 0.1; done'
    options = LandOptions(check=("sh", "-c", renewed, str(stage.remote.bare)))
    assert opened.land(parse_resource("F001"), options).commits == 1


@pytest.mark.nightly
def test_landing_that_died_in_line_holds_others_up_for_seconds(stage: Stage) -> None:
    dead, seconds = workspace(stage.kim.root, clock=stage.kim.clock).ledger, landing.TICKET
    assert WaitQueue(dead, [parse_resource("landing:main")], "*").take(seconds)
    stage.jo.clock.advance(1)
    stage.jo.begins()
    stage.jo.works()
    before = stage.jo.clock.wall_ms
    stage.jo.land()
    assert 0 < stage.jo.clock.wall_ms - before < 30_000


# --- from the command line ------------------------------------------------------------------------


def test_a_push_that_is_done_lands_the_task(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.jo.begins()
    stage.jo.works()
    at, main = ["-C", str(stage.jo.root)], stage.main
    for line in ("--force", "--no-follow-tags", "origin a b", "elsewhere", "origin other:main"):
        assert run([*at, "push", "--done", "F001", *line.split()]) == 2
        check_words(capsys.readouterr().err)
    for line in ("push --done F001 --done F002", "push --done F001 origin :main", "land src/"):
        assert run([*at, *line.split()]) == 2
    assert stage.main == main
    capsys.readouterr()
    assert run([*at, "push", "--done", "F001", "origin", "none"]) == 7
    hint = capsys.readouterr().err.partition("hint: make it first: git ")[2]
    stage.jo.git(*shlex.split(hint.splitlines()[0]))
    assert git(stage.remote.bare, "rev-parse", "none") == stage.jo.git("rev-parse", "origin/main")
    assert run([*at, "push", "--done", "F001", "origin", "HEAD:main", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["command"], answer["status"], answer["commits"]) == ("push", "landed", 1)
    assert run([*at, "land", "F001", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["already"]
