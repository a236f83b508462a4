"""Stale claims in real clones: found by the ledger and real commits, and released one by one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.remotes import Remote
from support.repos import assert_untouched, git, real_clone, snapshot
from support.session import LeaseService
from support.stale import KIM, Story, task_text

from gitlease.check import CheckResult
from gitlease.core import Finding, parse_resource
from gitlease.engine import ClaimOptions
from gitlease.wiring import open_staleness

pytestmark = [pytest.mark.one_in(2), pytest.mark.sampled(3)]

F001 = parse_resource("F001")

Clones = Callable[..., list[Path]]


@pytest.fixture
def story(path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch) -> Story:
    return Story(clones(2), path_remote, monkeypatch)


def words(found: CheckResult) -> list[str]:
    return [f"{f.rule.id} {f.resource}" for f in found.findings]


def only(found: CheckResult) -> Finding:
    (finding,) = found.findings
    return finding


# --- found --------------------------------------------------------------------------------------


def test_a_claim_that_nobody_works_on_is_found_with_who_and_since_when(story: Story) -> None:
    story.kim_takes()
    assert words(story.find()) == []
    story.days(7)
    assert words(story.find()) == []
    story.days(0.1)
    finding = only(story.find())
    assert (finding.rule.id, finding.holder, finding.file) == ("stale-edge", KIM, "tasks/F001.md")
    text = (story.jo / "tasks/F001.md").read_text().splitlines()
    assert finding.line is not None
    assert text[finding.line - 1].startswith("assigned:")


def test_nightly_check_of_normal_work_finds_nothing(story: Story) -> None:
    kim, jo = (LeaseService(story.at(x).ledger) for x in (story.kim, story.jo))
    story.put(story.jo, ".gitlease.yaml", "stale: {after: 10s}\n")
    nightly = story.kim.parent / "nightly"

    def found() -> list[str]:
        if not nightly.exists():
            real_clone(story.remote.url, nightly, "ci@example.com")
        git(nightly, "pull", "-q")
        return words(story.find(nightly))

    kim.claim([F001])  # the edit of its file is neither committed nor pushed
    assert found() == []
    jo.claim([parse_resource("F002")], ClaimOptions(commit=True))
    story.send(story.jo)
    assert found() == []
    jo.complete(parse_resource("F002"))
    assert found() == []
    story.commit(story.jo, "done", "-a")
    story.send(story.jo)
    kim.release([F001])
    assert found() == []


def test_in_a_shallow_clone_nothing_is_called_stale_and_that_is_said(
    story: Story, tmp_path: Path
) -> None:
    story.kim_takes()
    story.days(8)
    story.put(story.jo, "README", "x")
    story.commit(story.jo, "something else")
    story.send(story.jo)
    clone, url = tmp_path / "ci", f"file://{story.remote.bare}"
    real_clone(url, clone, "ci@example.com", "--depth=1", env=story.env())
    git(clone, "switch", "-q", "--detach")
    found = story.find(clone)
    assert found.findings == ()
    assert found.unread
    git(clone, "fetch", "-q", "--unshallow", env=story.env())
    assert words(story.find(clone)) == ["stale-edge F001"]


def test_a_lease_whose_branch_is_missing_here_is_no_finding(story: Story, tmp_path: Path) -> None:
    git(story.kim, "switch", "-qc", "topic")
    kim = LeaseService(story.at(story.kim).ledger)
    kim.claim([F001], ClaimOptions(commit=True))
    for _ in range(2):  # longer than an edge may be on its way
        story.clock.advance(600)
        kim.renew([F001])
    story.send(story.kim, "topic")
    clone, url = tmp_path / "ci", f"file://{story.remote.bare}"
    real_clone(url, clone, "ci@example.com", "--single-branch", env=story.env())
    before = snapshot(clone)
    with story.counted() as said:
        found = story.find(clone)
    assert (said["fetches"], said["pushes"]) == (2, 0)
    assert_untouched(before, snapshot(clone))
    assert (found.findings, found._cases, bool(found.unread)) == ((), (), True)
    every = "+refs/heads/*:refs/remotes/origin/*"
    git(clone, "fetch", "-q", "origin", every, env=story.env())
    found = story.find(clone)
    assert (found.findings, found.unread) == ((), ())


# --- released ------------------------------------------------------------------------------------


def test_a_push_and_a_commit_release_each_and_nothing_else_changes(story: Story) -> None:
    story.kim_takes("F001")
    story.kim_takes("F002")
    LeaseService(story.at(story.kim).ledger).claim(
        [parse_resource("deploy")], ClaimOptions(any_name=True)
    )
    story.days(8)
    story.put(story.jo, "README", "staged\n")
    (story.jo / "src").mkdir()
    (story.jo / "src/new.py").write_text("untracked\n")
    dirty = story.jo / "tasks/F001.md"
    dirty.write_text(dirty.read_text() + "Not committed.\n")
    found = story.find()
    with story.counted() as said:
        fixed = story.fix(found=found)
    assert said == {"pushes": 3, "fetches": 0, "commits": 2}
    assert [f.resource for f in fixed.fixed] == ["F001", "F002", "deploy"]
    assert fixed.commit == git(story.jo, "rev-parse", "HEAD")
    messages = git(story.jo, "log", "-2", "--format=%s").splitlines()
    assert messages == [f"unassign F00{n} from {KIM}: idle since 2027-01-15" for n in (2, 1)]
    names = git(story.jo, "show", "--name-only", "--format=").split()
    assert names == ["tasks/F002.md"]
    assert git(story.jo, "diff", "--cached", "--name-only") == "README"
    assert git(story.jo, "diff", "--name-only") == "tasks/F001.md"
    assert dirty.read_text() == task_text("F001") + "Not committed.\n"
    assert (story.jo / "src/new.py").read_text() == "untracked\n"
    with story.counted() as said:
        again = story.fix()
    assert (said["pushes"], said["commits"], again.leases) == (0, 0, ())


# --- real data, and much of it --------------------------------------------------------------------


def test_hundreds_of_tasks_take_no_more_processes_and_connections_than_one(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 400
    for number in range(count):
        path = story.jo / f"tasks/T{number:04}.md"
        path.write_text(task_text(f"T{number:04}", KIM), encoding="utf-8")
    git(story.jo, "add", "-A")
    story.commit(story.jo, "many")
    story.days(8)
    stale = open_staleness(story.at(story.jo))
    started: list[Any] = []
    real = subprocess.Popen

    def counting(words: Any, **more: Any) -> Any:
        started.append(words)
        return real(words, **more)

    with story.counted() as said, monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", counting)
        found = stale.find()
        processes = len(started)
    assert len([f for f in found.findings if f.rule.id == "stale-edge"]) == count
    assert said == {"pushes": 0, "fetches": 1, "commits": 0}
    assert processes <= 14
