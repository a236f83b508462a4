"""Task files are read: each once, until it changes, and never twice as two tasks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.fences import clean_env
from support.repos import assert_untouched, git, make_repository, snapshot
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

from gitlease.kernel.ledger.edges import find_task
from gitlease.kernel.rules.edge import Progress
from gitlease.kernel.rules.errors import Invalid, NotFound
from gitlease.kernel.rules.resources import name_resource
from gitlease.kernel.settings.schema import Tasks
from gitlease.tasks import scan as task_scan
from gitlease.tasks.scan import FileKind, Wanted, WorkTree, walk


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


def cache_file(root: Path) -> Path:
    (found,) = (root / ".git/gitlease/tasks").glob("tree-*.cache")
    return found


def test_tasks_are_read_in_the_order_of_their_files(root: Path) -> None:
    put_task(root, "tasks/b.md", "F001")
    put_task(root, "tasks/a/z.md", "F002")
    put(root, "tasks/c.yaml", "id: F003\ntitle: In YAML\nassigned: [jo@example.com]\n")
    put(root, "tasks/README.md", "# About these files\n")
    listed = open_files(root).read()
    assert [(t.resource.text, t.file, t.title, t.assigned) for t in listed.tasks] == [
        ("F002", "tasks/a/z.md", "The F002", ()),
        ("F001", "tasks/b.md", "The F001", ()),
        ("F003", "tasks/c.yaml", "In YAML", ("jo@example.com",)),
    ]
    assert not listed.problems


def test_tasks_in_completed_folders_are_done(root: Path) -> None:
    put_task(root, "tasks/F001.md")
    put_task(root, "tasks/old/F002.md")
    put_task(root, "archive/2020/F003.md")
    commit_all(root)
    settings = tasks_like("tasks/**/*.md", completed=("tasks/old", "archive/**"))
    for ref in (None, "HEAD", None, "HEAD"):  # parsed, and again from the cache
        listed = open_files(root, settings).read(ref)
        done = {task.resource.text: task.progress for task in listed.tasks}
        assert done == {"F001": Progress.TODO, "F002": Progress.DONE, "F003": Progress.DONE}


def test_a_broken_file_stands_in_the_way_of_its_own_task_only(root: Path) -> None:
    put(root, "tasks/x.md", "---\nid: F001\nid: F002\n---\n")
    put(root, "tasks/F003 title.md", "---\ntitle: [\n---\n")
    put_task(root, "tasks/F004.md")
    files = open_files(root)
    assert find_task(files.read(), name_resource("F004")) is not None
    assert find_task(files.read(), name_resource("F005")) is None
    for name in ("F001", "f002", "X"):
        with raises(Invalid):
            find_task(files.read(), name_resource(name))
    with raises(Invalid):
        find_task(files.read(), name_resource("F003"))


def test_two_files_of_one_id_are_no_task_at_all(root: Path) -> None:
    put_task(root, "tasks/a.md", "F001")
    put_task(root, "tasks/b.md", "f001", "assigned: []\n")
    put_task(root, "tasks/F002.md")
    commit_all(root)
    for ref in (None, "HEAD", None, "HEAD"):
        files = open_files(root)
        listed = files.read(ref)
        assert names(listed) == ["F002"]
        check_words(problems(listed))
        assert all(problem.keys == {"f001"} for problem in listed.problems)
        with raises(Invalid):
            find_task(files.read(ref), name_resource("F001"))


# --- parsed once -----------------------------------------------------------------------------


def test_a_file_is_parsed_again_only_when_it_changed(root: Path) -> None:
    for number in range(50):
        put_task(root, f"tasks/F{number:03}.md")
    put(root, "tasks/README.md", "# none\n")
    put(root, "tasks/broken.md", "---\nid: [\n---\n")
    first = open_files(root)
    listed = first.read()
    assert first.parsed == 52
    assert first.read() == listed
    assert first.parsed == 52

    second = open_files(root)
    assert second.read() == listed
    assert second.parsed == 0

    put(root, "tasks/F007.md", text_of("F007", "assigned: jo\n"))
    put_task(root, "tasks/new.md")
    (root / "tasks/F008.md").unlink()
    third = open_files(root)
    found = find_task(third.read(), name_resource("F007"))
    assert found is not None
    assert found.assigned == ("jo",)
    assert third.parsed == 2
    assert find_task(third.read(), name_resource("F008")) is None
    assert "tasks/F008.md" not in cache_file(root).read_text()


@pytest.mark.parametrize("how", ["replaced", "touched", "rewritten"])
def test_a_change_of_the_same_size_is_noticed(root: Path, how: str) -> None:
    path = put_task(root, "tasks/a.md", "F001")
    open_files(root).read()
    if how == "replaced":
        put_task(root, "tasks/b.md", "F002").replace(path)
    elif how == "touched":
        os.utime(path, (1_800_000_000, 1_800_000_000))
    else:
        path.write_text(text_of("F002"))
        os.utime(path, (1_700_000_000, 1_700_000_000))
    again = open_files(root)
    assert names(again.read()) == (["F001"] if how == "touched" else ["F002"])
    assert again.parsed == 1


def test_a_file_that_has_just_changed_is_not_trusted_to_be_at_rest(root: Path) -> None:
    put(root, "tasks/old.md", text_of("F001"))
    put(root, "tasks/new.md", text_of("F002"), old=False)
    put(root, "tasks/ahead.md", text_of("F003"))
    ahead = time.time() + 3600
    os.utime(root / "tasks/ahead.md", (ahead, ahead))
    open_files(root).read()
    assert list(json.loads(cache_file(root).read_text())["rows"]) == ["tasks/old.md"]
    again = open_files(root)
    again.read()
    assert again.parsed == 2


def test_other_settings_do_not_use_what_was_read_by_these(root: Path) -> None:
    put(root, "tasks/a.md", "---\nid: F001\nkey: F002\n---\n")
    assert names(open_files(root).read()) == ["F001"]
    other = open_files(root, tasks_like(id="key"))
    assert names(other.read()) == ["F002"]
    assert names(open_files(root, tasks_like("other/**")).read()) == []
    done = open_files(root, tasks_like(completed=("tasks",))).read()
    assert done.tasks[0].is_done


def damaged(root: Path) -> list[str]:
    """Caches as a disk error, another program or a malicious hand may leave them."""
    good = cache_file(root).read_text()
    data = json.loads(good)
    stamp, row = data["rows"]["tasks/F001.md"]
    rows: list[object] = [None, [stamp, row, 1], [[{}], row], [stamp, "xx"], [stamp, []]]
    rows += [
        [stamp, row | more]
        for more in ({"nonsense": 1}, {"resource": "../etc/passwd"}, {"progress": "nonsense"})
    ]
    others: list[object] = [None, [], {}, data | {"format": 99}, data | {"rows": rows}]
    texts = [json.dumps(data | {"rows": {"tasks/F001.md": one}}) for one in rows]
    texts += [json.dumps(one) for one in others]
    return [*texts, "", good[:-5], "[" * 100_000, "NaN", "\0", "\ud800"]


def test_a_damaged_cache_is_made_anew(root: Path) -> None:
    put_task(root, "tasks/F001.md")
    listed = open_files(root).read()
    file = cache_file(root)
    good = json.loads(file.read_text())
    for text in damaged(root):
        file.write_text(text, errors="surrogatepass")
        assert open_files(root).read() == listed, text[:80]
        assert json.loads(file.read_text()) == good, text[:80]


# --- of any ref, without a checkout and without a connection --------------------------------------


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


@pytest.mark.parametrize(
    "ref",
    ["nothing", "", "--all", "HEAD~7", "main:tasks", "HEAD^{tree}", "a\0b", "x" * 5000, "blob"],
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


def files(root: Path, tasks: Tasks) -> list[str]:
    """The regular files that a walk finds."""
    found = walk(WorkTree(str(root), Wanted(tasks)))
    return sorted(one.path for one in found if one.kind is FileKind.FILE)


def keys(root: Path, file: str, tasks: Tasks | None = None) -> frozenset[str]:
    """The tasks that a problem of a file may be."""
    (problem,) = [p for p in open_files(root, tasks).read().problems if p.file == file]
    return problem.keys


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
