"""Task files are changed whole or not at all, and only where that is safe."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.repos import assert_untouched, commit_file, git, make_repository, snapshot
from support.snapshots import check_words, raises
from support.task_trees import (
    HINDERED,
    change_of,
    commit_all,
    open_files,
    put,
    put_task,
    text_of,
)

from gitlease.kernel.git.run import run_git as run_real_git
from gitlease.kernel.ledger.ports import TaskChange, Written
from gitlease.kernel.rules.errors import Invalid
from gitlease.tasks import edit as task_edit
from gitlease.tasks.edit import edit_task
from gitlease.tasks.files import GitTaskFiles

FILE = "tasks/F001.md"
JO = "assigned: jo@example.com\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with the tasks F001 and F002."""
    made = make_repository(tmp_path / "repo")
    put_task(made, FILE)
    put_task(made, "tasks/F002.md")
    commit_all(made)
    return made


def written(files: GitTaskFiles, change: TaskChange) -> Written:
    """What became of one change; a problem is raised."""
    (found,) = files.write([change], commit=False)
    if found.problem:
        assert not found.changed
        raise Invalid(found.problem)
    return found


def refused(root: Path, change: TaskChange) -> Invalid:
    """The refusal of both check and write, after which nothing has changed."""
    before = snapshot(root)
    with pytest.raises(Invalid) as raised:
        written(open_files(root), change)
    with pytest.raises(Invalid, match=re.escape(raised.value.message)) as checked:
        open_files(root).check([change], commit=False)
    assert checked.value.resource == change.resource.text
    assert_untouched(before, snapshot(root))
    return raised.value


def refused_by_check(root: Path, *changes: TaskChange, commit: bool = False) -> Invalid:
    before = snapshot(root)
    with pytest.raises(Invalid) as raised:
        open_files(root).check(changes, commit=commit)
    assert_untouched(before, snapshot(root))
    return raised.value


# --- the change ------------------------------------------------------------------------------


def test_a_change_is_made_once(root: Path) -> None:
    files = open_files(root)
    files.check([change_of(FILE)], commit=False)
    (first,) = files.write([change_of(FILE)], commit=False)
    assert (first.change, first.changed, first.commit) == (change_of(FILE), True, None)
    assert (root / FILE).read_text() == text_of("F001", JO)
    before = (root / FILE).stat()
    (second,) = files.write([change_of(FILE)], commit=False)
    assert not second.changed
    after = (root / FILE).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    (found,) = [task for task in files.read().tasks if task.file == FILE]
    assert found.assigned == ("jo@example.com",)


def test_nothing_else_is_touched(root: Path) -> None:
    git(root, "add", "-A")
    before = snapshot(root)
    open_files(root).check([change_of(FILE)], commit=False)
    assert_untouched(before, snapshot(root))
    open_files(root).write([change_of(FILE)], commit=False)
    after = snapshot(root)
    assert after.pop(f"tree/{FILE}").endswith(text_of("F001", JO).encode())
    before.pop(f"tree/{FILE}")
    assert_untouched(before, after)
    assert [entry.name for entry in (root / ".git/gitlease/tasks").iterdir()] == ["lock"]


@pytest.mark.parametrize("mode", [0o755, 0o444, 0o666])
def test_permissions_stay(root: Path, mode: int) -> None:
    (root / FILE).chmod(mode)
    open_files(root).write([change_of(FILE)], commit=False)
    assert stat.S_IMODE((root / FILE).stat().st_mode) == mode


def while_editing(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]) -> None:
    """Let something happen between the reading of a file and its replacement."""
    count = 0

    def edited(*args: object, **named: object) -> bytes:
        nonlocal count
        new = edit_task(*args, **named)  # type: ignore[arg-type]
        count += 1
        act(count)
        return new

    monkeypatch.setattr(task_edit, "edit_task", edited)


def test_what_somebody_writes_meanwhile_is_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(count: int) -> None:
        if count < 3:
            put(root, FILE, text_of("F001", f"priority: p{count}\n"))

    while_editing(monkeypatch, write)
    open_files(root).write([change_of(FILE)], commit=False)
    assert (root / FILE).read_text() == text_of("F001", "priority: p2\n" + JO)


def test_a_file_that_never_rests_is_given_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    while_editing(monkeypatch, lambda count: put(root, FILE, text_of("F001", f"x: {count}\n")))
    with raises(Invalid):
        written(open_files(root), change_of(FILE))
    assert (root / FILE).read_text() == text_of("F001", "x: 5\n")
    assert [entry.name for entry in (root / ".git/gitlease/tasks").iterdir()] == ["lock"]


def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = put(tmp_path, "outside/F001.md", text_of("F001"))

    def swap(count: int) -> None:
        (root / "tasks").rename(root / "moved")
        (root / "tasks").symlink_to(outside.parent)

    while_editing(monkeypatch, swap)
    open_files(root).write([change_of(FILE)], commit=False)
    assert outside.read_text() == text_of("F001")
    assert (root / "moved/F001.md").read_text() == text_of("F001", JO)


def test_changes_made_at_once_are_all_made(root: Path) -> None:
    def work(number: int) -> None:
        files = open_files(root)
        for turn in range(5):
            files.write([change_of(FILE, add=f"w{number}-{turn}")], commit=False)

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(work, range(4))] == [None] * 4
    (found,) = [task for task in open_files(root).read().tasks if task.file == FILE]
    assert set(found.assigned) == {f"w{number}-{turn}" for number in range(4) for turn in range(5)}


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "file",
    ["../F001.md", "/etc/F001.md", "tasks/../../F001.md", "tasks/.GIT/F001.md", ""],
)
def test_a_file_outside_is_refused(root: Path, file: str) -> None:
    put_task(root.parent, "F001.md")
    put_task(root, "tasks/.GIT/F001.md")
    error = refused(root, change_of(file, "F001"))
    check_words(error.message)


def test_links_are_refused(root: Path, tmp_path: Path) -> None:
    put_task(tmp_path, "outside/F003.md")
    (root / "tasks/F003.md").symlink_to(tmp_path / "outside/F003.md")
    (root / "tasks/away").symlink_to(tmp_path / "outside")
    for file in ("tasks/F003.md", "tasks/away/F003.md"):
        check_words(refused(root, change_of(file)).message)
    assert (tmp_path / "outside/F003.md").read_text() == text_of("F003")


def test_what_is_no_regular_file_is_refused(root: Path) -> None:
    os.mkfifo(root / "tasks/pipe.md")
    (root / "tasks/folder.md").mkdir()
    for name in ("pipe.md", "folder.md", "gone.md", "F001.md/x.md"):
        check_words(refused(root, change_of(f"tasks/{name}")).message)


def test_a_file_that_git_ignores_is_refused(root: Path) -> None:
    put(root, ".gitignore", "private/\n")
    put_task(root, "tasks/private/F 3.md", "F003")
    error = refused_by_check(root, change_of("tasks/private/F 3.md", "F003"))
    check_words(error.message)
    check_words(error.hints)
    assert error.resource == "F003"
    git(root, "add", "-f", "tasks/private/F 3.md")
    open_files(root).check([change_of("tasks/private/F 3.md", "F003")], commit=False)


def test_a_file_in_conflict_is_refused(root: Path) -> None:
    git(root, "switch", "-q", "-c", "side")
    commit_file(root, FILE, text_of("F001").replace("Work.", "Other."))
    git(root, "switch", "-q", "main")
    commit_file(root, FILE, text_of("F001").replace("Work.", "Mine."))
    with pytest.raises(AssertionError):
        git(root, "merge", "-q", "side")
    put_task(root, FILE)  # resolved, and not yet added
    error = refused_by_check(root, change_of("tasks/F002.md"), change_of(FILE))
    assert error.resource == "F001"
    check_words(error.message)
    check_words(error.hints)


def test_a_file_that_is_not_that_tasks_any_more_is_refused(root: Path) -> None:
    check_words(refused(root, change_of(FILE, "F002")))
    put(root, FILE, "# moved\n")
    check_words(refused(root, change_of(FILE)))


@HINDERED
def test_a_folder_that_cannot_be_written_is_refused(root: Path) -> None:
    (root / "tasks").chmod(0o500)
    try:
        check_words(refused_by_check(root, change_of(FILE)))
        with raises(Invalid):
            written(open_files(root), change_of(FILE))
    finally:
        (root / "tasks").chmod(0o700)


def test_a_full_disk_leaves_the_file_as_it_was(root: Path) -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    put(root, FILE, text_of("F001") + "x" * 8192)
    (root / ".git/gitlease/tasks").mkdir(parents=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with raises(Invalid):
            written(open_files(root), change_of(FILE))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (root / FILE).read_text() == text_of("F001") + "x" * 8192
    assert [entry.name for entry in (root / ".git/gitlease/tasks").iterdir()] == ["lock"]


def test_git_is_asked_once_for_all_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def counting(*args: object, **named: object) -> object:
        asked.append(args)
        return run_real_git(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(task_edit, "run_git", counting)
    open_files(root).check([change_of(FILE), change_of("tasks/F002.md")], commit=False)
    assert len(asked) == 1


def test_a_commit_of_only_the_edges_is_made(root: Path) -> None:
    put(root, "other", "unstaged")
    changes = [change_of(FILE), change_of("tasks/F002.md")]
    files = open_files(root)
    files.check(changes, commit=True)
    written = files.write(changes, commit=True)
    head = git(root, "rev-parse", "HEAD")
    assert [(w.changed, w.commit) for w in written] == [(True, head)] * 2
    assert git(root, "status", "--porcelain") == "?? other"
    assert git(root, "show", "--name-only", "--format=") == "tasks/F001.md\ntasks/F002.md"
    again = files.write(changes, commit=True)
    assert [(w.changed, w.commit) for w in again] == [(False, None)] * 2


def test_another_work_tree_of_the_clone_is_changed_there(root: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(root, "worktree", "add", "-q", "-b", "side", str(linked))
    main, side = open_files(root), open_files(linked)
    for mine, other, place in ((main, side, linked), (side, main, root)):
        found = mine.at(str(place))
        assert found is not None
        assert found.at(str(place)) is found
        assert found.read().tasks == other.read().tasks
        assert found.write([change_of(FILE)], commit=True)[0].changed
        assert (place / FILE).read_text() == text_of("F001", JO)
    assert git(root, "log", "--format=%s", "-1") == "assign F001"
    assert git(linked, "log", "--format=%s", "-1") == "assign F001"
    assert git(root, "rev-list", "--count", "main") == "2"
    assert main.at(str(root)) is main


def test_a_folder_that_is_no_work_tree_of_the_clone_is_none(root: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(root), "other")
    (tmp_path / "plain").mkdir()
    put(tmp_path, "lost/.git", "gitdir: /nowhere\n")
    put(tmp_path, "odd/.git", "nonsense")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe/.git")
    files = open_files(root)
    for name in ("other", "plain", "gone", "lost", "odd", "pipe"):
        assert files.at(str(tmp_path / name)) is None
    assert files.at(str(root / "tasks")) is None
