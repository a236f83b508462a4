"""Task files of any ref are read, without a checkout and without a connection."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support.fences import clean_env
from support.repos import assert_untouched, git, make_repository, snapshot
from support.snapshots import check_words, raises
from support.task_trees import (
    commit_all,
    names,
    open_files,
    problems,
    put,
    put_task,
    tasks_like,
    text_of,
)

from gitlease.core import Invalid, NotFound, name_resource
from gitlease.engine import find_task
from gitlease.tasks import reading as task_reading
from gitlease.tasks import scan as task_scan


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


def test_a_ref_is_read_without_a_checkout(root: Path) -> None:
    put_task(root, "tasks/F001.md")
    commit_all(root)
    git(root, "tag", "-a", "-m", "one", "v1")
    git(root, "branch", "side")
    put_task(root, "tasks/F002.md")
    second = commit_all(root)
    (root / "tasks/F001.md").unlink()
    put_task(root, "tasks/F003.md")
    files = open_files(root)
    assert names(files.read()) == ["F002", "F003"]
    for ref in ("HEAD", "main", "refs/heads/main", second, second[:10], "main^{commit}", "@"):
        assert names(files.read(ref)) == ["F001", "F002"]
    for ref in ("side", "v1", "HEAD~1", "HEAD^"):
        assert names(files.read(ref)) == ["F001"]
    found = find_task(files.read("side"), name_resource("f001"))
    assert found is not None
    assert found.file == "tasks/F001.md"
    assert find_task(files.read("main"), name_resource("F003")) is None


def test_a_blob_is_parsed_once(root: Path) -> None:
    for number in range(20):
        put_task(root, f"tasks/F{number:03}.md")
    commit_all(root)
    git(root, "branch", "side")
    put_task(root, "tasks/F003.md", more="assigned: jo\n")
    commit_all(root)
    first = open_files(root)
    first.read("main")
    assert first.parsed == 20
    first.read("side")
    assert first.parsed == 21
    second = open_files(root)
    for ref in ("main", "side", "main"):
        second.read(ref)
    assert second.parsed == 0


def test_what_is_remembered_of_refs_has_an_end(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_reading, "KEPT_OF_REFS", 3)
    for ref in ("one", "second", "three"):
        for number in range(2):
            put_task(root, f"tasks/F{number}.md", more=f"priority: {ref}\n")
        commit_all(root)
        git(root, "branch", ref)
        open_files(root).read(ref)
    rows = json.loads((root / ".git/gitlease/tasks/refs.cache").read_text())["rows"]
    assert len(rows) == 5
    again = open_files(root)
    again.read("three")
    again.read("second")
    assert again.parsed == 0
    again.read("one")
    assert again.parsed == 1


@pytest.mark.parametrize(
    "ref",
    [
        "nothing",
        "",
        "--all",
        "HEAD~7",
        "main:tasks",
        "HEAD^{tree}",
        "a\0b",
        "x" * 5000,
        "blob",
    ],
)
def test_a_ref_that_is_none_is_not_found(root: Path, ref: str) -> None:
    put_task(root, "tasks/F001.md")
    commit_all(root)
    git(root, "tag", "blob", "HEAD:tasks/F001.md")
    files = open_files(root)
    with raises(NotFound) as raised:
        files.read(ref)
    assert raised.value.message.isprintable()
    assert len(raised.value.message) < 100
    with pytest.raises(NotFound):
        find_task(files.read(ref), name_resource("F001"))


def test_a_bare_repository_has_only_refs(root: Path, tmp_path: Path) -> None:
    put_task(root, "tasks/F001.md")
    commit_all(root)
    git(tmp_path, "clone", "-q", "--bare", str(root), "bare.git")
    files = open_files(tmp_path / "bare.git")
    assert not files.exist()
    assert files.read().tasks == ()
    assert find_task(files.read(), name_resource("F001")) is None
    assert names(files.read("main")) == ["F001"]


def test_links_in_a_ref_are_problems(root: Path) -> None:
    put_task(root, "tasks/F001.md")
    (root / "tasks/same.md").symlink_to("../tasks/F001.md")
    (root / "tasks/F002.md").symlink_to("/etc/passwd")
    (root / "tasks/sub").symlink_to("..")
    (root / "more").symlink_to("tasks")
    (root / "one.md").symlink_to("tasks/F001.md")
    commit_all(root)
    settings = tasks_like("tasks/**/*.md", "more/*.md", "one.md")
    listed = open_files(root, settings).read("HEAD")
    assert names(listed) == ["F001"]
    assert {problem.file: problem.keys for problem in listed.problems} == {
        "tasks/F002.md": {"f002"},
        "more": frozenset(),
        "one.md": frozenset(),  # nobody knows whether a folder was meant
    }


def test_what_a_partial_clone_does_not_have_is_said_and_not_fetched(
    root: Path, tmp_path: Path
) -> None:
    put_task(root, "tasks/F001.md")
    put_task(root, "tasks/deep/F002.md")
    commit_all(root)
    git(root, "config", "uploadpack.allowFilter", "true")
    url = root.as_uri()
    for kind, missing in (
        ("blob:none", ["tasks/F001.md", "tasks/deep/F002.md"]),
        ("tree:0", ["."]),
    ):
        name = kind.replace(":", "-")
        options = ("--no-checkout", f"--filter={kind}")
        git(tmp_path, "clone", "-q", *options, url, name)
        before = snapshot(tmp_path / name)
        files = open_files(tmp_path / name)
        listed = files.read("HEAD")
        assert [problem.file for problem in listed.problems] == missing
        for problem in listed.problems:
            check_words(problem.message)
            assert not problem.keys
        assert files.parsed == 0
        assert_untouched(before, snapshot(tmp_path / name))


def test_a_tree_that_git_would_not_make_does_no_harm(root: Path) -> None:
    blob = git(root, "hash-object", "-w", "--stdin", input=text_of("F001"))
    inner = tree_of(
        root, ("100644", "..", blob), ("100644", ".git", blob), ("100644", "ok.md", blob)
    )
    outer = tree_of(
        root, ("40000", "..", inner), ("40000", ".git", inner), ("40000", "tasks", inner)
    )
    commit = git(root, "commit-tree", "-m", "odd", outer)
    assert [t.file for t in open_files(root, tasks_like("**")).read(commit).tasks] == [
        "tasks/ok.md"
    ]


def tree_of(root: Path, *entries: tuple[str, str, str]) -> str:
    """Write a tree object as it is, without the checks of git."""
    data = b"".join(
        f"{mode} {name}".encode() + b"\0" + bytes.fromhex(blob) for mode, name, blob in entries
    )
    made = subprocess.run(
        ["git", "hash-object", "-t", "tree", "-w", "--literally", "--stdin"],
        cwd=root,
        env=clean_env(),
        input=data,
        capture_output=True,
        check=True,
        timeout=60,
    )
    return made.stdout.decode().strip()


def test_a_tree_with_endless_folders_comes_to_an_end(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_scan, "MAX_ENTRIES", 1000)
    tree = git(root, "hash-object", "-t", "tree", "-w", "--stdin")
    for _ in range(12):
        tree = tree_of(root, ("40000", "a", tree), ("40000", "b", tree), ("40000", "c", tree))
    commit = git(root, "commit-tree", "-m", "bomb", tree)
    with raises(Invalid):
        open_files(root, tasks_like("**/*.md")).read(commit)


def test_a_format_that_only_git_knows_is_read_by_git(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo", "--object-format=sha256")
    put_task(root, "tasks/F001.md")
    put(root, "tasks/new\nline.md", text_of("F002"))
    put(root, "tasks/big.md", text_of("F003") + "x" * (1024 * 1024))
    (root / "tasks/F004.md").symlink_to("nowhere")
    commit_all(root)
    files = open_files(root)
    listed = files.read("HEAD")
    assert names(listed) == ["F001", "F002"]
    check_words(problems(listed))
    assert files.parsed == 2
    for ref in ("nothing", "-x", "main..main", "a\0b", "HEAD:tasks"):
        with pytest.raises(NotFound):
            files.read(ref)
