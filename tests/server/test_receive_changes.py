"""What the commits of a push change comes in parts, whatever their number, and without merges."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.repos import commit_file, git, make_repository

from gitlease.guard.history import Changed
from gitlease.kernel.git.repository import Repository, discover
from gitlease.server import work as receive_changes
from gitlease.server.work import changes_of

ODD = ("a b.txt", "new\nline", ":100644 x", "tab\t", "ü", '"quoted"', "\udcff", "A")


@pytest.fixture
def made(tmp_path: Path) -> Repository:
    root = make_repository(tmp_path / "repo")
    git(root, "config", "log.showSignature", "true")
    git(root, "config", "log.diffMerges", "separate")
    return discover(str(root))


def commits_of(repository: Repository) -> list[str]:
    return git(Path(repository.git_dir), "rev-list", "--reverse", "HEAD").split()


def test_every_change_comes_once_and_never_too_many_together(
    made: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receive_changes, "FILES_AT_ONCE", 3)
    root = Path(str(made.toplevel))
    for name in ODD:
        (root / name).write_text("x")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "all")
    git(root, "mv", "A", "B")
    git(root, "rm", "-q", "ü")
    git(root, "commit", "-q", "-m", "move and remove")
    parts: list[list[Changed]] = []
    assert changes_of(made, commits_of(made), parts.append) == []
    assert [len(part) for part in parts] == [3, 3, 3, 2]
    found = [one for part in parts for one in part]
    assert sorted(x.path for x in found[: len(ODD)]) == sorted(ODD)
    assert {(x.path, x.kind) for x in found[len(ODD) :]} == {("A", "D"), ("B", "A"), ("ü", "D")}
    gone = next(x for x in found if (x.path, x.kind) == ("A", "D"))
    assert (gone.mode_before, gone.mode_after, gone.blob_after) == ("100644", "", "")
    assert len(gone.blob_before) == 40


def test_merges_are_left_out_and_named(made: Repository) -> None:
    root = Path(str(made.toplevel))
    commit_file(root, "one", "1")
    git(root, "switch", "-q", "-c", "side")
    commit_file(root, "two", "2")
    git(root, "switch", "-q", "main")
    commit_file(root, "three", "3")
    git(root, "merge", "-q", "--no-edit", "side")
    found: list[Changed] = []
    assert changes_of(made, commits_of(made), found.extend) == [git(root, "rev-parse", "HEAD")]
    assert sorted(x.path for x in found) == ["one", "three", "two"]


def test_what_ends_the_reading_ends_git(made: Repository) -> None:
    commit_file(Path(str(made.toplevel)), "one", "1")

    def stop(some: list[Changed]) -> None:
        raise KeyError(some[0].path)

    with pytest.raises(KeyError, match="one"):
        changes_of(made, commits_of(made), stop)
