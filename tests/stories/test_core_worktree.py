"""A linked work tree whose ``core.worktree`` leads elsewhere, and one that leads nowhere."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from support.commands import typed
from support.remotes import Remote
from support.repos import commit_file, git, make_clone

pytestmark = pytest.mark.slow

TASK = "---\nid: F001\nstatus: todo\nassigned: []\n---\n"


@pytest.fixture
def jo(path_remote: Remote, tmp_path: Path) -> Path:
    clone = make_clone(path_remote, tmp_path / "jo", "jo@example.com", "Jo")
    commit_file(clone, "tasks/F001.md", TASK, "a task")
    return clone


def follow(hint_of: str, cwd: Path) -> None:
    """Type the git command of the first hint."""
    (line,) = (x for x in hint_of.splitlines() if "--unset-all core.worktree" in x)
    git(cwd, *shlex.split(line.partition("git ")[2]))


def test_another_work_tree_is_never_edited_in_place_of_this_one(jo: Path) -> None:
    linked = jo.parent / "linked"
    git(jo, "worktree", "add", "-q", "-b", "topic", str(linked))
    git(jo, "config", "extensions.worktreeConfig", "true")
    git(linked, "config", "--worktree", "core.worktree", str(jo))
    refused = typed(linked, "claim", "F001")
    assert refused.returncode == 7
    assert f"core.worktree is {jo}, but this linked work tree is {linked}" in refused.stderr
    assert (jo / "tasks/F001.md").read_text() == TASK
    follow(refused.stderr, linked)
    assert typed(linked, "claim", "F001").returncode == 0
    assert "jo@example.com" in (linked / "tasks/F001.md").read_text()


def test_a_folder_that_is_not_there_is_named(jo: Path) -> None:
    gone = jo.parent / "gone"
    git(jo, "config", "core.worktree", str(gone))
    refused = typed(jo, "status")
    assert refused.returncode == 7
    assert f"core.worktree is {gone}, and there is no such folder" in refused.stderr
    follow(refused.stderr, jo)
    assert typed(jo, "status").returncode == 0


def test_a_work_tree_elsewhere_is_a_setting_like_any_other(jo: Path) -> None:
    elsewhere = jo.parent / "elsewhere"
    elsewhere.mkdir()
    git(jo, "config", "core.worktree", str(elsewhere))
    assert typed(jo, "status").returncode == 0
    # A linked work tree passes over the setting of the clone, as git does.
    linked = jo.parent / "linked"
    git(jo, "worktree", "add", "-q", "-b", "topic", str(linked))
    assert typed(linked, "claim", "F001").returncode == 0
    assert "jo@example.com" in (linked / "tasks/F001.md").read_text()
