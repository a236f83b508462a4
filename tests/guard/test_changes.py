"""What a commit or a push touches is read from git: any name, any kind of change, any index."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.counting import processes
from support.repos import assert_untouched, git, make_repository, real_clone, snapshot
from support.task_trees import commit_all, put, put_task, tasks_like, text_of

from gitlease.guard import commits
from gitlease.guard.commits import TaskTouched, task_status_changes, touched
from gitlease.guard.history import Changed, committed, staged
from gitlease.kernel.git.repository import Repository, discover
from gitlease.kernel.rules.edge import Progress
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.viewpoint import Touched

LINES = "".join(f"line {number}\n" for number in range(40))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


def here(root: Path) -> Repository:
    return discover(str(root))


def kinds(changes: list[Changed]) -> dict[str, str]:
    return {one.path: one.kind for one in changes}


# --- staged -------------------------------------------------------------------------------------


def test_every_kind_of_staged_change_is_told(root: Path) -> None:
    put(root, "edited", "one\n")
    put(root, "gone", "two\n")
    put(root, "old name", LINES)
    put(root, "script", "four\n")
    put(root, "becomes a link", "five\n")
    commit_all(root)
    put(root, "edited", "one more\n", old=False)
    (root / "gone").unlink()
    git(root, "mv", "old name", "new name")
    (root / "script").chmod(0o755)
    (root / "becomes a link").unlink()
    (root / "becomes a link").symlink_to("edited")
    put(root, "new", "new\n")
    git(root, "add", "-A")
    put(root, "not staged", "x\n")
    found = {one.path: one for one in staged(here(root))}
    assert {path: one.kind for path, one in found.items()} == {
        "becomes a link": "T",
        "edited": "M",
        "gone": "D",
        "new": "A",
        "new name": "R",
        "script": "M",
    }
    assert found["new name"].old == "old name"
    assert found["edited"].old is None
    script = found["script"]
    assert (script.mode_before, script.mode_after) == ("100644", "100755")
    assert script.blob_before == script.blob_after == git(root, "rev-parse", "HEAD:script")
    assert (found["gone"].mode_after, found["gone"].blob_after) == ("", "")
    assert (found["new"].mode_before, found["new"].blob_before) == ("", "")
    assert found["new"].blob_after == git(root, "rev-parse", ":new")
    assert found["becomes a link"].mode_after == "120000"


def test_looking_takes_one_process_and_changes_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_task(root, "tasks/F001.md")
    commit_all(root)
    put_task(root, "tasks/F001.md", more="assigned: jo\n")
    git(root, "add", "-A")
    before = snapshot(root)
    repository = here(root)
    assert processes(tmp_path / "trace", lambda: staged(repository), monkeypatch) == 1
    changes = staged(repository)
    task_status_changes(repository, tasks_like(), changes)
    none = tasks_like("else/*.md")
    look = lambda: task_status_changes(repository, none, changes)  # noqa: E731
    assert processes(tmp_path / "trace2", look, monkeypatch) == 0
    committed(repository, [git(root, "rev-parse", "HEAD")])
    assert_untouched(before, snapshot(root))


@pytest.mark.parametrize(
    "name",
    [
        b"line\nbreak",
        b'tab\tand \\ and "space" ',
        b":100644 100644 a b M",
        b"-\xff\xfe not utf-8",
    ],
)
def test_odd_names_are_read_as_they_are(root: Path, name: bytes) -> None:
    put(root, "first", "x\n")
    commit_all(root)
    path = os.path.join(os.fsencode(root), name)
    try:
        with open(path, "wb") as file:
            file.write(LINES.encode())
    except OSError:
        pytest.skip("no file may have such a name here")
    git(root, "add", "-A")
    assert kinds(staged(here(root))) == {os.fsdecode(name): "A"}
    first = commit_all(root)
    os.rename(path, path + b".moved")
    second = commit_all(root)
    found = committed(here(root), [second, first])
    assert kinds(found[first]) == {os.fsdecode(name): "A"}
    [moved] = found[second]
    assert (moved.old, moved.path) == (os.fsdecode(name), os.fsdecode(name + b".moved"))


def test_before_the_first_commit_everything_is_added(root: Path) -> None:
    other = make_repository(root.parent / "other", "--object-format=sha256")
    put(other, "a", "one\n")
    git(other, "add", "-N", "a")
    assert staged(here(other)) == [], "what is only intended to be added is not staged"
    git(other, "add", "a")
    [one] = staged(here(other))
    assert (one.kind, one.path, len(one.blob_after)) == ("A", "a", 64)
    commit = commit_all(other)
    assert staged(here(other)) == []
    assert kinds(committed(here(other), [commit])[commit]) == {"a": "A"}
    assert kinds(staged(here(other), amend_of="HEAD")) == {"a": "A"}
    git(other, "clone", "-q", "--bare", ".", "../bare")
    assert staged(here(root.parent / "bare")) == [], "there is no work tree"


def test_an_unreadable_head_is_not_taken_for_an_unborn_branch(root: Path) -> None:
    put(root, "a", "one\n")
    commit = commit_all(root)
    (root / ".git/objects" / commit[:2] / commit[2:]).unlink()
    with pytest.raises(Invalid):
        staged(here(root))


def test_a_submodule_is_told_whatever_is_ignored(root: Path) -> None:
    inner = make_repository(root.parent / "inner")
    put(inner, "x", "x\n")
    commits = [commit_all(inner)]
    put(inner, "x", "y\n", old=False)
    commits.append(commit_all(inner))
    put(root, ".gitmodules", '[submodule "s"]\npath = lib\nurl = ../s\nignore = all\n')
    git(root, "config", "diff.ignoreSubmodules", "all")
    git(root, "add", "-A")
    git(root, "update-index", "--add", "--cacheinfo", f"160000,{commits[0]},lib")
    git(root, "commit", "-q", "-m", "first")
    git(root, "update-index", "--cacheinfo", f"160000,{commits[1]},lib")
    [one] = staged(here(root))
    assert (one.path, one.kind, one.blob_before, one.blob_after) == ("lib", "M", *commits)
    assert touched([one], []) == [Touched("lib", folder=True)]
    # git itself takes this commit for empty, and makes it all the same when asked to.
    git(root, "commit", "-q", "--allow-empty", "-m", "second")
    head = git(root, "rev-parse", "HEAD")
    assert kinds(committed(here(root), [head])[head]) == {"lib": "M"}


def both_sides(root: Path) -> None:
    """A merge that is not committed: each side has changed `both`, and `theirs` has changed."""
    put(root, "both", "".join(f"{n}\n" for n in range(20)))
    put(root, "theirs", "as it was\n")
    commit_all(root)
    git(root, "switch", "-q", "-c", "side")
    put(root, "both", "".join(f"{n}\n" for n in range(19)) + "side\n", old=False)
    put(root, "theirs", "landed\n", old=False)
    commit_all(root)
    git(root, "switch", "-q", "main")
    put(root, "both", "main\n" + "".join(f"{n}\n" for n in range(1, 20)), old=False)
    commit_all(root)
    git(root, "merge", "-q", "--no-commit", "--no-ff", "side")


def test_a_merge_that_chooses_a_side_shows_what_it_undoes(root: Path) -> None:
    """The path is as one parent has it, but git would have taken the other's."""
    both_sides(root)
    assert staged(here(root)) == [], "git joins the two sides of `both` by itself"
    git(root, "checkout", "-q", "HEAD", "--", "theirs")
    assert kinds(staged(here(root))) == {"theirs": "M"}
    merge = commit_all(root)
    assert [one.path for one in committed(here(root), [merge])[merge]] == ["theirs"]
    assert list((root / ".git").rglob("gitlease*")) == []


def stub_git(folder: Path, code: int, patch: pytest.MonkeyPatch) -> None:
    """A git whose merge-tree ends with this code, in front of the real one."""
    folder.mkdir()
    (folder / "git").write_text(
        "#!/bin/sh\n"
        f'for word; do case "$word" in merge-tree) exit {code} ;; esac; done\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    (folder / "git").chmod(0o755)
    patch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_a_git_that_cannot_merge_beside_shows_what_differs_from_every_parent(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that fails is not taken for such: what it cannot see would pass by the weaker rule."""
    both_sides(root)
    put(root, "theirs", "changed in the merge\n", old=False)
    git(root, "add", "-A")
    with monkeypatch.context() as patch:
        stub_git(tmp_path / "old", 129, patch)
        assert sorted(one.path for one in staged(here(root))) == ["both", "theirs"]
        merge = commit_all(root)
        found = committed(here(root), [merge])[merge]
        assert sorted(one.path for one in found) == ["both", "theirs"]
    stub_git(tmp_path / "dying", 128, monkeypatch)
    with pytest.raises(Invalid):
        committed(here(root), [merge])


def test_a_merge_below_a_folder_with_a_colon_is_looked_at_alike(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "a:b")
    both_sides(root)
    put(root, "theirs", "changed in the merge\n", old=False)
    merge = commit_all(root)
    assert [one.path for one in committed(here(root), [merge])[merge]] == ["theirs"]


def test_an_amended_commit_counts_in_full(root: Path) -> None:
    put(root, "a", "one\n")
    commit_all(root)
    put(root, "b", "two\n")
    commit_all(root)
    put(root, "c", "three\n")
    git(root, "add", "c")
    assert kinds(staged(here(root))) == {"c": "A"}
    assert kinds(staged(here(root), amend_of="HEAD")) == {"b": "A", "c": "A"}
    for odd in ("nothing", "--all", "HEAD^{tree}"):
        with pytest.raises(Invalid):
            staged(here(root), amend_of=odd)


def test_a_sparse_index_is_read(root: Path) -> None:
    for folder in ("in", "out/deep"):
        put(root, f"{folder}/file", f"{folder}\n")
    first = commit_all(root)
    put(root, "out/deep/file", "changed\n", old=False)
    commit_all(root)
    git(root, "sparse-checkout", "set", "--cone", "--sparse-index", "in")
    assert staged(here(root)) == []
    put(root, "in/file", "more\n", old=False)
    git(root, "add", "-A")
    assert kinds(staged(here(root))) == {"in/file": "M"}
    git(root, "reset", "-q", "--soft", first)
    assert kinds(staged(here(root))) == {"in/file": "M", "out/deep/file": "M"}


def test_the_users_settings_change_nothing(root: Path) -> None:
    put(root, "folder/a", LINES)
    commit_all(root)
    git(root, "mv", "folder/a", "folder/b")
    order = put(root.parent, "order", "z*\n")
    for key, value in {
        "diff.renames": "false",
        "diff.relative": "true",
        "diff.orderFile": str(order),
        "diff.external": "false",
        "color.ui": "always",
        "core.quotePath": "true",
        "core.abbrev": "7",
        "log.showRoot": "false",
        "log.showSignature": "true",
        "log.diffMerges": "off",
        "log.decorate": "full",
        "format.pretty": "email",
    }.items():
        git(root, "config", key, value)
    [one] = staged(here(root / "folder"))
    assert (one.kind, one.old, one.path) == ("R", "folder/a", "folder/b")
    commit = commit_all(root)
    first = git(root, "rev-parse", "HEAD^")
    assert kinds(committed(here(root), [first])[first]) == {"folder/a": "A"}
    assert committed(here(root / "folder"), [commit])[commit] == [one]


# --- committed ----------------------------------------------------------------------------------


def test_many_commits_are_one_process(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = []
    for number in range(5):
        put(root, f"f{number}", f"{number}\n")
        commits.append(commit_all(root))
    git(root, "commit", "-q", "--allow-empty", "-m", "empty")
    commits.append(git(root, "rev-parse", "HEAD"))
    repository = here(root)
    found: dict[str, list[Changed]] = {}
    look = lambda: found.update(committed(repository, commits[::-1]))  # noqa: E731
    assert processes(tmp_path / "trace", look, monkeypatch) == 1
    assert list(found) == commits[::-1]
    assert [kinds(found[commit]) for commit in commits] == [
        *({f"f{number}": "A"} for number in range(5)),
        {},
    ]
    monkeypatch.setattr("gitlease.guard.history.MAX_WORDS", 2)
    again: dict[str, list[Changed]] = {}
    look = lambda: again.update(committed(repository, commits[::-1]))  # noqa: E731
    assert processes(tmp_path / "trace2", look, monkeypatch) == 1
    assert again == found
    monkeypatch.setattr("gitlease.guard.history.COMMITS_AT_ONCE", 2)
    assert committed(repository, commits[::-1]) == found
    assert committed(repository, []) == {}


def test_only_full_ids_of_known_commits_are_asked_for(root: Path) -> None:
    put(root, "a", "a\n")
    commit_all(root)
    for odd in ("HEAD", "--all", "abc", ""):
        with pytest.raises(Invalid):
            committed(here(root), [odd])
    with pytest.raises(Invalid):
        committed(here(root), ["1" * 40])


def test_the_edge_of_a_shallow_clone_is_no_change(root: Path) -> None:
    for name in ("a", "b", "c"):
        put(root, name, "x\n")
        commit_all(root)
    shallow = real_clone(root.as_uri(), root.parent / "shallow", "jo@example.com", "--depth=2")
    tip, edge = git(shallow, "rev-list", "HEAD").split()
    assert [kinds(x) for x in committed(here(shallow), [tip, edge]).values()] == [{"c": "A"}, {}]
    put(shallow, "d", "x\n")
    git(shallow, "add", "d")
    git(shallow, "reset", "-q", "--soft", edge)
    assert kinds(staged(here(shallow), amend_of=edge)) == {"c": "A", "d": "A"}


def test_a_partial_clone_is_never_filled(root: Path) -> None:
    put(root, "a", LINES)
    commit_all(root)
    put(root, "a", LINES.replace("line 7\n", "seven\n"), old=False)
    (root / "a").rename(root / "b")
    moved = commit_all(root)
    (root / "b").unlink()
    put(root, "c", "c\n")
    commit_all(root)
    git(root, "config", "uploadpack.allowFilter", "true")
    partial = real_clone(root.as_uri(), root.parent / "partial", "jo@x.org", "--filter=blob:none")
    there = sorted((partial / ".git/objects").rglob("*"))
    found = committed(here(partial), [moved])[moved]
    assert kinds(found) == {"a": "D", "b": "A"}
    [told] = task_status_changes(here(partial), tasks_like("a"), found)
    assert told.before is None
    assert sorted((partial / ".git/objects").rglob("*")) == there


# --- tasks --------------------------------------------------------------------------------------


def look(root: Path, *files: str, completed: tuple[str, ...] = ()) -> dict[str, TaskTouched]:
    repository = here(root)
    tasks = tasks_like(*files, completed=completed)
    found = task_status_changes(repository, tasks, staged(repository))
    return {one.path: one for one in found}


def working(name: str, more: str = "") -> str:
    return text_of(name, more).replace("status: todo", "status: in_progress")


def test_a_task_file_is_read_on_both_sides(root: Path) -> None:
    put_task(root, "tasks/F001.md")
    put_task(root, "tasks/F002.md")
    commit_all(root)
    put(root, "tasks/F001.md", working("F001"), old=False)
    (root / "tasks/F002.md").unlink()
    put_task(root, "tasks/F003.md", more=f"priority: {LINES!r}\n")
    put(root, "src/F004.md", text_of("F004", f"priority: {LINES[::-1]!r}\n"))
    git(root, "add", "-A")
    put(root, "tasks/F001.md", "the work tree does not count", old=False)
    found = look(root)
    assert sorted(found) == ["tasks/F001.md", "tasks/F002.md", "tasks/F003.md"]
    one = found["tasks/F001.md"]
    assert one.before is not None
    assert one.after is not None
    assert (one.before.progress, one.after.progress) == (Progress.TODO, Progress.IN_PROGRESS)
    assert [path for path, told in sorted(found.items()) if told.starts] == ["tasks/F001.md"]
    assert found["tasks/F002.md"].after is None
    assert found["tasks/F002.md"].names == {"f002"}
    assert found["tasks/F003.md"].before is None


def test_a_task_that_moves_has_not_started_again(root: Path) -> None:
    put(root, "tasks/one.md", working("F001") + LINES)
    put(root, "tasks/two.md", working("F002"))
    commit_all(root)
    git(root, "mv", "tasks/one.md", "elsewhere.md")
    (root / "tasks/two.md").unlink()
    put(root, "tasks/three.md", working("F002", "priority: high\n") + LINES * 9)
    git(root, "add", "-A")
    found = look(root)
    assert not any(one.starts for one in found.values())
    assert found["elsewhere.md"].after is None  # its new place is none of task files
    moved = found["tasks/three.md"].before
    assert moved is not None
    assert moved.file == "tasks/two.md"
    repository = here(root)
    names = {one.path: one.tasks for one in touched(staged(repository), found.values())}
    assert names["tasks/one.md"] == names["elsewhere.md"] == {"f001"}
    assert names["tasks/two.md"] == names["tasks/three.md"] == {"f002"}


def test_what_git_takes_for_a_rename_of_another_task_is_none(root: Path) -> None:
    put(root, "tasks/old.md", working("F001"))
    put(root, "tasks/a.md", working("F003"))
    commit_all(root)
    git(root, "mv", "tasks/old.md", "tasks/other.md")
    put(root, "tasks/other.md", working("F002"), old=False)
    put(root, "tasks/new.md", working("F001", "priority: high\n") + LINES * 9)
    put(root, "tasks/a.md", working("F004"), old=False)  # another id in its old place
    git(root, "add", "-A")
    found = look(root)
    assert {path: one.starts for path, one in found.items()} == {
        "tasks/other.md": True,
        "tasks/new.md": False,
        "tasks/a.md": True,
    }
    assert found["tasks/other.md"].names == {"f001", "f002"}
    assert found["tasks/a.md"].names == {"f003", "f004"}


def test_a_broken_task_file_still_touches_its_task(root: Path) -> None:
    put_task(root, "tasks/back-7 - Title.md", "F001")
    commit_all(root)
    put(root, "tasks/back-7 - Title.md", "---\nid: F009\ntitle: [\n---\n", old=False)
    put(root, "tasks/large.md", "---\nid: F010\n---\n" + "x" * 1024 * 1024)
    (root / "tasks/link.md").symlink_to("../elsewhere")
    git(root, "add", "-A")
    found = look(root)
    broken = found["tasks/back-7 - Title.md"]
    assert broken.before is not None
    assert broken.after is None
    assert broken.names == {"f001", "f009", "back-7", "back-7 - title"}
    assert broken.problem.startswith("tasks/back-7 - Title.md:")
    assert found["tasks/large.md"].names == {"large"}
    assert found["tasks/link.md"].names == {"link"}


def test_a_task_in_a_completed_folder_is_done(root: Path) -> None:
    put(root, "tasks/F001.md", working("F001"))
    commit_all(root)
    (root / "done").mkdir()
    git(root, "mv", "tasks/F001.md", "done/F001.md")
    one = look(root, "tasks/*.md", completed=("done",))["done/F001.md"]
    assert one.after is not None
    assert one.after.is_done
    assert one.before is not None
    assert not one.before.is_done


def test_many_task_files_are_read_without_a_process_for_each(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        put_task(root, f"tasks/F{number:03}.md")
    put(root, "tasks/large.md", "---\nid: F099\n---\n" + "x" * 1024 * 1024)
    git(root, "add", "-A")
    repository = here(root)
    changes = staged(repository)
    found: list[TaskTouched] = []
    read = lambda: found.extend(task_status_changes(repository, tasks_like(), changes))  # noqa: E731
    assert processes(tmp_path / "trace", read, monkeypatch) == 1
    assert [str(one.after and one.after.resource) for one in found[:30]] == [
        f"F{number:03}" for number in range(30)
    ]
    monkeypatch.setattr(commits, "MAX_READ", 20)
    cut = task_status_changes(repository, tasks_like(), changes)
    assert cut[:20] == found[:20]
    assert cut[25].names == {"f025"}


def test_a_task_file_whose_name_is_no_text_touches_what_it_may_be(root: Path) -> None:
    path = os.fsencode(root) + b"/tasks/\xff.md"
    (root / "tasks").mkdir()
    try:
        with open(path, "wb") as file:
            file.write(text_of("F001").encode())
    except OSError:
        pytest.skip("no file may have such a name here")
    git(root, "add", "-A")
    [one] = look(root).values()
    assert "f001" in one.names
    assert one.problem.isprintable()


# --- touched ------------------------------------------------------------------------------------


def test_both_sides_of_a_rename_are_touched_and_the_source_of_a_copy_is_not() -> None:
    moved = Changed("b", "a", "R", "100644", "100644", "1" * 40, "1" * 40)
    copied = Changed("d", "c", "C", "100644", "100644", "1" * 40, "1" * 40)
    again = Changed("b", None, "M", "100644", "160000", "1" * 40, "2" * 40)
    assert touched([moved, copied, again], []) == [
        Touched("a"),
        Touched("b", folder=True),
        Touched("d"),
    ]
