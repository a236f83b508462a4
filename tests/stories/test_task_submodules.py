"""Tasks in a submodule: their leases are in its own repository, and every command says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import typed
from support.remotes import Remote
from support.repos import commit_file, git, make_clone, make_repository
from support.snapshots import check_words

pytestmark = pytest.mark.slow

TASK = "---\nid: F001\nstatus: todo\nassigned: []\n---\n"


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """The repository of the tasks."""
    root = make_repository(tmp_path / "tasks-origin")
    commit_file(root, "F001.md", TASK, "a task")
    return root


def clone_with(path_remote: Remote, tmp_path: Path, tasks: Path, place: str) -> Path:
    clone = make_clone(path_remote, tmp_path / "jo", "jo@example.com", "Jo")
    words = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add")
    git(clone, *words, str(tasks), place)
    git(clone, "commit", "-qm", "the tasks")
    return clone


@pytest.mark.default("True")
@pytest.mark.parametrize("filled", [True, False])
def test_a_task_of_a_submodule_is_not_claimed_in_the_wrong_ledger(
    path_remote: Remote, tmp_path: Path, tasks: Path, filled: bool
) -> None:
    jo = clone_with(path_remote, tmp_path, tasks, "tasks")
    if not filled:
        git(jo, "submodule", "--quiet", "deinit", "-f", "tasks")
    for words in ("claim F001", "done F001", "add another --id F009"):
        refused = typed(jo, *words.split())
        assert refused.returncode == 7
        check_words(refused.stderr)
    check_words(typed(jo, "queue").stderr)
    assert not (jo / "tasks/F009.md").exists()
    assert typed(jo, "claim", "F001", "--any").returncode == 0


def test_a_submodule_below_the_folder_of_tasks(
    path_remote: Remote, tmp_path: Path, tasks: Path
) -> None:
    jo = clone_with(path_remote, tmp_path, tasks, "tasks/shared")
    commit_file(jo, "tasks/F002.md", TASK.replace("F001", "F002"), "a task of this repository")
    refused = typed(jo, "claim", "F001")
    assert (refused.returncode, "tasks/shared is a submodule" in refused.stderr) == (7, True)
    assert typed(jo, "claim", "F002").returncode == 0


def test_other_submodules_are_none_of_it(path_remote: Remote, tmp_path: Path, tasks: Path) -> None:
    jo = clone_with(path_remote, tmp_path, tasks, "vendor/lib")
    assert typed(jo, "claim", "deploy").returncode == 0
    assert "submodule" not in typed(jo, "queue").stderr
