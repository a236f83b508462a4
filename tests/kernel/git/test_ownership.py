"""Folders of objects that another user owns: the refusal names them, and the command that helps."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from support.remotes import Remote
from support.repos import commit_file, git, make_clone, make_repository

from gitlease.kernel.git.branches import Branches
from gitlease.kernel.git.files import cannot_keep
from gitlease.kernel.git.ownership import REFUSED, closed_objects
from gitlease.kernel.git.repository import discover
from gitlease.kernel.git.run import GitResult
from gitlease.kernel.rules.errors import Invalid
from gitlease.library.leases import Leases
from gitlease.tasks.edge_commit import UserGit
from gitlease.wiring.workspace import open_workspace

pytestmark = pytest.mark.default

TASK = "---\nid: F001\nstatus: todo\nassigned: []\n---\n"
ROOT, ME = 0, 4321


def give_away(monkeypatch: pytest.MonkeyPatch, *folders: str, owner: int = ROOT) -> None:
    """Folders that belong to another user, for a user who is not root: tests often run as root."""
    real_access, real_stat = os.access, os.stat

    def access(path: Any, mode: int, **how: Any) -> bool:
        return path not in folders and real_access(path, mode, **how)

    def stat(path: Any, **how: Any) -> os.stat_result:
        found = [*real_stat(path, **how)]
        return os.stat_result([*found[:4], owner, *found[5:]] if path in folders else found)

    monkeypatch.setattr(os, "access", access)
    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os, "geteuid", lambda: ME)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = make_repository(tmp_path / "it's")
    commit_file(root, "tasks/F001.md", TASK, "a task")
    return root


def test_a_commit_is_refused_before_the_ledger_changes(
    path_remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = make_clone(path_remote, tmp_path / "jo", "jo@example.com", "Jo")
    commit_file(clone, "tasks/F001.md", TASK, "a task")
    folder = str(clone / ".git/objects/ab")
    os.makedirs(folder, exist_ok=True)
    with monkeypatch.context() as patch:
        give_away(patch, folder)
        with pytest.raises(Invalid) as refused:
            Leases(open_workspace(str(clone))).claim("F001", commit=True)
    assert refused.value.message == f"an edge cannot be committed: {folder} belongs to root"
    command = f"to give it back to you: sudo chown -R {ME} {clone / '.git/objects'}"
    assert command in refused.value.hints
    assert (clone / "tasks/F001.md").read_text() == TASK
    assert Leases(open_workspace(str(clone))).list() == ()


def test_what_git_refuses_names_the_folder(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = discover(str(repo))
    folder = str(repo / ".git/objects/pack")
    failed = GitResult(
        128, b"", f"error: {REFUSED[0]} to repository database .git/objects\n", False
    )
    monkeypatch.setattr("gitlease.tasks.edge_commit.run_git", lambda *_, **__: failed)
    monkeypatch.setattr("gitlease.kernel.git.branches.ask_remote", lambda *_, **__: failed)
    give_away(monkeypatch, folder)
    with pytest.raises(Invalid, match=r"nothing landed: .*/pack belongs to root"):
        UserGit(repository).ask("commit-tree", what="nothing landed")
    with pytest.raises(Invalid, match=r"main of origin cannot be fetched: .*/pack belongs to root"):
        Branches(repository).fetch("origin", "main")


def test_a_folder_of_ones_own_that_is_read_only(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(repo / ".git/gitlease/store.git/objects/ab")
    os.makedirs(folder)
    give_away(monkeypatch, folder, str(Path(folder).parent), owner=ME)
    error = OSError(errno.EACCES, "Permission denied", f"{folder}/tmp_obj_1")
    refused = cannot_keep("it", error)
    assert refused.message == f"gitlease cannot write its state: {folder} is read-only"
    (hint,) = refused.hints
    assert hint.startswith("to make it writable: chmod -R u+rwX '")
    assert "it'\"'\"'s/.git/gitlease/store.git/objects" in hint


def test_all_is_well_where_everything_can_be_written(repo: Path) -> None:
    assert closed_objects(str(repo / ".git")) == ""
    git(repo, "gc", "-q")
    assert closed_objects(str(repo / ".git")) == ""
    assert closed_objects(str(repo / "nowhere")) == ""
