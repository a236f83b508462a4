"""A task whose id is changed in its file while somebody has it leased."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import typed
from support.remotes import Remote
from support.repos import commit_file, git, make_clone
from support.snapshots import check_words

pytestmark = pytest.mark.slow

TASK = "---\nid: F001\nstatus: todo\nassigned: []\n---\n"


@pytest.fixture
def jo(path_remote: Remote, tmp_path: Path) -> Path:
    """Jo's clone, with F001 claimed and its id changed to F002 in the work tree."""
    clone = make_clone(path_remote, tmp_path / "jo", "jo@example.com", "Jo")
    commit_file(clone, "tasks/F001.md", TASK, "a task")
    git(clone, "push", "-q", "origin", "HEAD:main")
    git(clone, "checkout", "-q", "-b", "topic")
    assert typed(clone, "claim", "F001").returncode == 0
    file = clone / "tasks/F001.md"
    file.write_text(file.read_text().replace("F001", "F002"))
    return clone


@pytest.mark.parametrize("committed", [False, True])
def test_what_would_finish_the_old_id_says_what_to_do(jo: Path, committed: bool) -> None:
    if committed:
        git(jo, "commit", "-qam", "another id")
    for verb in ("done", "start", "land"):
        refused = typed(jo, verb, "F001")
        assert refused.returncode == 7
        check_words(refused.stderr)
    assert "active" in typed(jo, "list", "--json").stdout
    # The hints lead out of it.
    assert typed(jo, "claim", "F002").returncode == 0
    assert typed(jo, "release", "F001").returncode == 0
    assert typed(jo, "done", "F002").returncode == 0


@pytest.mark.default
def test_a_release_says_that_the_file_still_names_its_holder(jo: Path) -> None:
    released = typed(jo, "release", "F001")
    assert released.returncode == 0
    check_words(released.stderr)


def test_another_task_in_the_same_file_is_none_of_it(jo: Path) -> None:
    """A file that does not name the caller may simply have another task on this branch."""
    (jo / "tasks/F001.md").write_text(TASK.replace("F001", "F002"))
    assert typed(jo, "done", "F001").returncode == 0
