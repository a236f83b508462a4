"""Stale claims in real clones: judged by the ledger and real commits, and none in normal work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.remotes import Remote
from support.repos import assert_untouched, git, real_clone, snapshot
from support.session import LeaseService
from support.stale import Story

from gitlease.check.rules import CheckResult
from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.rules.resources import parse_resource

F001 = parse_resource("F001")

Clones = Callable[..., list[Path]]


@pytest.fixture
def story(path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch) -> Story:
    return Story(clones(2), path_remote, monkeypatch)


def words(checked: CheckResult) -> list[str]:
    return [f"{x.rule.id} {x.resource}" for x in checked.findings]


def test_nightly_check_of_normal_work_finds_nothing(story: Story) -> None:
    kim, jo = (LeaseService(story.at(x).ledger) for x in (story.kim, story.jo))
    story.put(story.jo, ".gitlease.yaml", "stale: {after: 10s}\n")
    nightly = story.kim.parent / "nightly"

    def findings() -> list[str]:
        if not nightly.exists():
            real_clone(story.remote.url, nightly, "ci@example.com")
        git(nightly, "pull", "-q")
        return words(story.find(nightly))

    kim.claim([F001])  # the edit of its file is neither committed nor pushed
    assert findings() == []
    jo.claim([parse_resource("F002")], ClaimOptions(commit=True))
    story.send(story.jo)
    assert findings() == []
    jo.complete(parse_resource("F002"))
    assert findings() == []
    story.commit(story.jo, "done", "-a")
    story.send(story.jo)
    kim.release([F001])
    assert findings() == []


@pytest.mark.nightly
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
    checked = story.find(clone)
    assert checked.findings == ()
    assert checked.unread
    git(clone, "fetch", "-q", "--unshallow", env=story.env())
    assert words(story.find(clone)) == ["stale-edge F001"]


@pytest.mark.slow
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
    services = len(story.remote.services())
    checked = story.find(clone)
    assert story.remote.services()[services:] == ["upload-pack"]
    assert_untouched(before, snapshot(clone))
    # The record says that the task is assigned, so the branch that says it too is not looked for.
    assert (checked.findings, checked._cases, checked.unread) == ((), (), ())
    every = "+refs/heads/*:refs/remotes/origin/*"
    git(clone, "fetch", "-q", "origin", every, env=story.env())
    checked = story.find(clone)
    assert (checked.findings, checked.unread) == ((), ())
