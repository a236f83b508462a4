"""Task files are found where the patterns say, and nothing is followed, opened or waited for."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from support.repos import git, make_repository
from support.snapshots import check_words, raises
from support.task_trees import (
    HINDERED,
    commit_all,
    names,
    open_files,
    problems,
    put,
    put_task,
    tasks_like,
    text_of,
)

from gitlease.core import Invalid
from gitlease.settings import Tasks
from gitlease.tasks import FileKind, Wanted, WorkTree, walk
from gitlease.tasks import scan as task_scan


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


def files(root: Path, tasks: Tasks) -> list[str]:
    """The regular files that a walk finds."""
    found = walk(WorkTree(str(root), Wanted(tasks)))
    return sorted(one.path for one in found if one.kind is FileKind.FILE)


def keys(root: Path, file: str, tasks: Tasks | None = None) -> frozenset[str]:
    """The tasks that a problem of a file may be."""
    (problem,) = [p for p in open_files(root, tasks).read().problems if p.file == file]
    return problem.keys


# --- patterns --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("tasks/*.md",), ["tasks/a.md"]),
        (("tasks",), ["tasks/a.md", "tasks/b.txt", "tasks/deep/er/c.md"]),
        (("/tasks/",), ["tasks/a.md", "tasks/b.txt", "tasks/deep/er/c.md"]),
        (("tasks/a.md", "other/*.md"), ["other/d.md", "tasks/a.md"]),
        (("/*.md",), ["e.md"]),
        (("*.md",), ["e.md", "other/d.md", "tasks/a.md", "tasks/deep/er/c.md"]),
        (("TASKS/A.MD",), ["tasks/a.md"]),
    ],
)
def test_a_pattern_finds_what_it_covers(
    root: Path, patterns: tuple[str, ...], expected: list[str]
) -> None:
    for file in ("tasks/a.md", "tasks/b.txt", "tasks/deep/er/c.md", "other/d.md", "e.md"):
        put_task(root, file)
    assert files(root, tasks_like(*patterns)) == expected


def test_a_pattern_that_is_none_is_refused(root: Path) -> None:
    with raises(Invalid):
        open_files(root, tasks_like("tasks/[a"))
    with raises(Invalid):
        open_files(root, tasks_like(completed=("../done",)))


# --- what is passed over, and what is a problem ----------------------------------------------


def test_gits_own_folder_and_other_repositories_are_passed_over(root: Path, tmp_path: Path) -> None:
    inner = make_repository(tmp_path / "inner")
    put_task(inner, "inside.md")
    commit_all(inner)
    put_task(root, "tasks/mine.md")
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "tasks/sub")
    make_repository(root / "tasks/nested")
    put_task(root, "tasks/nested/other.md")
    put_task(root, ".git/tasks/hidden.md")
    everywhere = open_files(root, tasks_like("**/*.md"))
    assert names(everywhere.read()) == ["mine"]
    assert names(open_files(root).read()) == ["mine"]
    git(root, "add", "tasks/mine.md")
    git(root, "commit", "-q", "-m", "with a submodule")
    assert names(everywhere.read("HEAD")) == ["mine"]


def test_a_folder_that_is_a_link_is_a_problem_of_any_task(root: Path, tmp_path: Path) -> None:
    put_task(tmp_path, "outside/a.md")
    (root / "tasks").symlink_to(tmp_path / "outside")
    found = open_files(root).read()
    assert names(found) == []
    said = "tasks is a symbolic link: its task files cannot be edited safely"
    assert problems(found) == {"tasks": said}
    assert keys(root, "tasks") == frozenset()
    assert open_files(root).exist()


def test_links_to_folders_below_are_not_followed(root: Path, tmp_path: Path) -> None:
    put_task(tmp_path, "outside/a.md")
    put_task(root, "tasks/b.md")
    (root / "tasks/loop").symlink_to(".")
    (root / "tasks/away").symlink_to(tmp_path / "outside")
    found = open_files(root).read()
    assert names(found) == ["b"]
    assert not found.problems


def test_any_other_link_is_a_problem_of_the_task_it_leads_to(root: Path, tmp_path: Path) -> None:
    put_task(root, "notes/real.md", "F007")
    put_task(tmp_path, "outside.md", "F008")
    os.mkfifo(root / "pipe")  # whose reader would wait
    (root / "tasks").mkdir()
    for name, target, named in (
        ("in", "../notes/real.md", {"f007", "in"}),
        ("out", str(tmp_path / "outside.md"), {"out"}),
        ("nowhere", "nothing", {"nowhere"}),
        ("round", "round.md", {"round"}),
        ("F9 title", "../.git/config", {"f9 title", "f9"}),
        ("pipe", "../pipe", {"pipe"}),
    ):
        (root / f"tasks/{name}.md").symlink_to(target)
        assert keys(root, f"tasks/{name}.md") == named
    check_words(problems(open_files(root).read())["tasks/in.md"])


def test_what_is_no_regular_file_is_passed_over_unopened(root: Path) -> None:
    put_task(root, "tasks/a.md")
    os.mkfifo(root / "tasks/pipe.md")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(root / "tasks")  # the name of a socket must be short
        try:
            server.bind("socket.md")
        finally:
            os.chdir(here)
        found = open_files(root).read()
    assert (names(found), problems(found)) == (["a"], {})


@pytest.mark.skipif(sys.platform == "darwin", reason="its file system has no such names")
def test_a_name_that_is_no_text_is_a_problem_with_a_printable_name(root: Path) -> None:
    put_task(root, "tasks/a.md")
    for odd in (b"bad\xff.md", b"two\nlines\xff.md"):
        with open(os.path.join(os.fsencode(root), b"tasks", odd), "w") as file:
            file.write(text_of("F001"))
    commit_all(root)
    for ref in (None, "HEAD"):
        found = open_files(root).read(ref)
        assert names(found) == ["a"]
        assert [problem.file for problem in found.problems] == [
            r"tasks/bad\udcff.md",
            r"tasks/two\nlines\udcff.md",
        ]
        for problem in found.problems:
            check_words(problem.message)
            assert "f001" in problem.keys
            problem.message.encode()


@HINDERED
def test_what_cannot_be_read_is_a_problem_of_any_task(root: Path) -> None:
    put_task(root, "tasks/a.md").chmod(0)
    put_task(root, "tasks/closed/b.md").parent.chmod(0)
    put_task(root, "tasks/listed/c.md").parent.chmod(0o400)
    try:
        found = open_files(root).read()
    finally:
        (root / "tasks/closed").chmod(0o700)
        (root / "tasks/listed").chmod(0o700)
    check_words(problems(found))
    assert not any(problem.keys for problem in found.problems)


# --- limits ----------------------------------------------------------------------------------


def test_too_many_files_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_scan, "MAX_FILES", 3)
    for number in range(4):
        put_task(root, f"tasks/F{number}.md")
    with raises(Invalid):
        open_files(root).read()
    assert open_files(root).exist()


def test_folders_that_are_too_deep_are_a_problem(root: Path) -> None:
    put_task(root, "tasks/" + "d/" * 38 + "in.md")
    put_task(root, "tasks/" + "d/" * 39 + "out.md")
    commit_all(root)
    for ref in (None, "HEAD"):
        found = open_files(root).read(ref)
        assert names(found) == ["in"]
        (message,) = problems(found).values()
        check_words(message)


def test_a_large_file_is_a_problem_of_the_task_it_begins_with(root: Path) -> None:
    put(root, "tasks/big.md", text_of("F001") + "x" * (1024 * 1024))
    commit_all(root)
    check_words(problems(open_files(root).read()))
    assert keys(root, "tasks/big.md") == {"f001", "big"}
    in_ref = open_files(root).read("HEAD")
    check_words(problems(in_ref))
