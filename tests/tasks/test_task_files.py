"""Task files are read: each once, until it changes, and never twice as two tasks."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.repos import git, make_repository
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

from gitlease.core import Invalid, Progress, name_resource
from gitlease.engine import find_task
from gitlease.tasks import scan


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


def cache_file(root: Path) -> Path:
    (found,) = (root / ".git/gitlease/tasks").glob("tree-*.cache")
    return found


# --- what is there ---------------------------------------------------------------------------


def test_a_repository_without_task_files_has_none(root: Path) -> None:
    put(root, "README.md", "# Hello\n")
    files = open_files(root)
    assert not files.exist()
    assert files.read().tasks == ()
    assert find_task(files.read(), name_resource("F001")) is None


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


# --- finding one -----------------------------------------------------------------------------


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
    rows: list[object] = [
        None,
        [],
        [stamp, row, 1],
        [[{}], row],
        [stamp, "xx"],
        [stamp, []],
        [stamp, row | {"title": "x", "nonsense": 1}],
        [stamp, row | {"resource": "../etc/passwd"}],
        [stamp, row | {"progress": "nonsense"}],
    ]
    others: list[object] = [None, 1, [], {}, data | {"format": 99}, {"format": 1}]
    texts = [json.dumps(data | {"rows": {"tasks/F001.md": one}}) for one in rows]
    texts += [json.dumps(one) for one in others]
    texts += [json.dumps(data | {"rows": rows}), json.dumps(data | {"rows": "x"})]
    texts += ["", "{", good[:-5], "[" * 100_000, '{"format": 1e999}', "NaN", "\0", "\ud800"]
    return texts


def test_a_damaged_cache_is_made_anew(root: Path) -> None:
    put_task(root, "tasks/F001.md")
    listed = open_files(root).read()
    file = cache_file(root)
    good = json.loads(file.read_text())
    for text in damaged(root):
        file.write_text(text, errors="surrogatepass")
        assert open_files(root).read() == listed, text[:80]
        assert json.loads(file.read_text()) == good, text[:80]


def test_a_cache_that_is_no_file_is_no_hindrance(root: Path) -> None:
    put_task(root, "tasks/F001.md")
    listed = open_files(root).read()
    file = cache_file(root)
    file.unlink()
    os.mkfifo(file)
    assert open_files(root).read() == listed
    file.unlink()
    file.mkdir()
    assert open_files(root).read() == listed
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


def test_work_trees_do_not_share_what_they_know_of_files(root: Path, tmp_path: Path) -> None:
    put_task(root, "tasks/F001.md")
    commit_all(root)
    git(root, "worktree", "add", "-q", str(tmp_path / "linked"))
    put_task(tmp_path / "linked", "tasks/F002.md")
    os.utime(tmp_path / "linked/tasks/F001.md", (1_700_000_000, 1_700_000_000))
    assert names(open_files(tmp_path / "linked").read()) == ["F001", "F002"]
    assert names(open_files(root).read()) == ["F001"]
    for place in (root, tmp_path / "linked"):
        again = open_files(place)
        again.read()
        assert again.parsed == 0


def test_to_see_whether_there_are_tasks_looks_at_one_file(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        put_task(root, f"tasks/F{number:03}.md")
    looked = Mock(return_value=())
    monkeypatch.setattr(scan, "stamp_of", looked)
    assert open_files(root).exist()
    assert looked.call_count == 1
