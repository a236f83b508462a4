"""Who was assigned when by real commits: branches, merges, mailmaps, clones cut short."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from support.clock import ManualClock
from support.repos import assert_untouched, git, make_repository, real_clone, run_git, snapshot
from support.snapshots import check_words, raises
from support.task_trees import commit_all, put, put_task, tasks_like, text_of
from support.tasks import task

from gitlease.check.task_history import Lack, Past, TaskHistory, Version
from gitlease.guard.history import read_answer, read_log
from gitlease.kernel.git.repository import discover
from gitlease.kernel.rules.errors import Invalid, Unavailable

DAY = 86_400
NOW = ManualClock().wall_ms // 1_000
FILE = "tasks/F001.md"
JO, KIM = "jo@example.com", "kim@example.com"


def dated(days: float, *, author: str = JO, committer: str | None = None) -> dict[str, str]:
    """The environment of a commit that was made so many days before now."""
    at = f"{NOW - round(days * DAY)} +0000"
    return {
        "GIT_AUTHOR_DATE": at,
        "GIT_COMMITTER_DATE": at,
        "GIT_AUTHOR_NAME": author.partition("@")[0],
        "GIT_AUTHOR_EMAIL": author,
        "GIT_COMMITTER_NAME": "whoever",
        "GIT_COMMITTER_EMAIL": committer or author,
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


def commit(root: Path, days: float, message: str = "change", **who: Any) -> str:
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", message, env=dated(days, **who))
    return git(root, "rev-parse", "HEAD")


def assign(root: Path, *names: str, file: str = FILE, name: str = "F001") -> None:
    put(root, file, text_of(name, f"assigned: [{', '.join(names)}]\n"), old=False)


def history(root: Path, prefix: str = "refs/gitlease", **tasks: Any) -> TaskHistory:
    return TaskHistory(discover(str(root)), tasks_like(**tasks), ref_prefix=prefix)


def past_of(root: Path, *names: str, file: str = FILE, name: str = "F001") -> Past:
    asked = [(task(name, file=file), who) for who in names or (KIM,)]
    return history(root).pasts(asked)[file]


def assigned(past: Past, who: str = KIM) -> Version | None:
    """The commit that wrote an edge that is still there."""
    version, sure = past.last_change(who.__eq__)
    assert sure
    return version if version is not None and who in version.after else None


def written(root: Path, who: str = KIM, **more: Any) -> tuple[str, float, str] | None:
    """The commit that wrote an edge, how many days ago, and its author."""
    version = assigned(past_of(root, who, **more), who)
    if version is None:
        return None
    return version.commit, (NOW - version.at // 1_000) / DAY, version.by


# --- the past of a file -------------------------------------------------------------------------


def test_the_commit_that_assigned_is_found_by_what_the_file_says(root: Path) -> None:
    put_task(root, FILE)
    commit(root, 9)
    assign(root, KIM)
    made = commit(root, 8, author=KIM)
    put(root, FILE, f"---\ntitle: of {KIM}\nid: F001\nassigned:\n  - {KIM}\n  - {JO}\n---\n")
    commit(root, 7)
    assert written(root) == (made, 8, KIM)
    assert written(root, JO) == (git(root, "rev-parse", "HEAD"), 7, JO)
    assert written(root, "lee@example.com") is None


def test_what_is_not_committed_or_taken_back_is_not_written(root: Path) -> None:
    assign(root)
    commit(root, 9)
    assign(root, KIM)
    assert written(root) is None
    commit(root, 8)
    assign(root)
    commit(root, 7)
    assign(root, KIM)
    assert written(root) is None
    assert past_of(root, file="tasks/F002.md", name="F002") == Past()


def test_a_merge_assigns_only_whom_no_parent_had(root: Path) -> None:
    assign(root)
    commit(root, 9)
    git(root, "switch", "-qc", "side")
    assign(root, KIM)
    made = commit(root, 8, author=KIM)
    git(root, "switch", "-q", "main")
    put(root, "README", "x")
    commit(root, 7)
    git(root, "merge", "-q", "--no-ff", "side", env=dated(6))
    assert written(root) == (made, 8, KIM)
    git(root, "switch", "-qc", "more")
    assign(root)
    commit(root, 5)
    git(root, "switch", "-q", "main")
    assign(root, "lee@example.com")
    commit(root, 4)
    assert run_git(root, "merge", "-q", "more").returncode
    assign(root, JO)
    merged = commit(root, 3, "decide")
    assert written(root, JO) == (merged, 3, JO)


def test_only_so_many_versions_are_looked_at(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gitlease.check.task_history.MAX_VERSIONS", 3)
    assign(root, KIM)
    commit(root, 200)
    for number in range(5):
        put(root, FILE, text_of("F001", f"assigned: [{KIM}]\n") + f"{number}\n", old=False)
        commit(root, 100 - number)
    assert len(past_of(root).versions) == 3
    found = written(root)
    assert found is not None
    assert found[1] == 98


@pytest.mark.parametrize("text", ["---\nid: F001\n<<<<<<< ours\n", "\0\xff", "id: [F001", ""])
def test_versions_that_cannot_be_read_assign_nobody(root: Path, text: str) -> None:
    assign(root, KIM)
    commit(root, 9)
    put(root, FILE, text.encode("latin-1"), old=False)
    commit(root, 8)
    assign(root, KIM)
    made = commit(root, 7)
    assert written(root) == (made, 7, JO)


# --- people, and what git answers --------------------------------------------------------------


def test_addresses_are_as_the_mailmap_has_them(root: Path) -> None:
    put(
        root,
        ".mailmap",
        "Kim <kim@example.com> <kim@home.example>\n<jo@example.com> <jo@old.example>\n",
    )
    put(root, "x", "x")
    commit(root, 9, author="kim@home.example")
    there = history(root)
    assert there.authors() == {"kim@home.example": KIM}
    assert there.usual(["jo@old.example", "lee@example.com", "odd <x>", "-x@y"]) == {
        "jo@old.example": JO,
        "lee@example.com": "lee@example.com",
        "-x@y": "-x@y",
    }


def test_dates_that_cannot_be_are_clamped(root: Path) -> None:
    tree = git(root, "mktree", input="")
    for date in ("99999999999999999999 +0000", "-5 +0000", "0 +0000"):
        text = f"tree {tree}\nauthor K <{KIM}> {date}\ncommitter K <{KIM}> {date}\n\nodd\n"
        words = ("hash-object", "-w", "--literally", "-t", "commit", "--stdin")
        git(root, "update-ref", "refs/heads/main", git(root, *words, input=text))
        (commit, _) = next(read_log(discover(str(root)), ("HEAD",)))
        assert 0 <= commit.at < 10**15


@pytest.mark.parametrize("out", [b":1 2", b"x\0", b"\0:100644 1 2", b"abc\x1f\0", b"\xff\0\0"])
def test_an_answer_that_cannot_be_read_is_an_error(out: bytes) -> None:
    with raises(Invalid):
        list(read_answer(out))


def test_the_settings_of_the_user_change_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assign(root)
    commit(root, 9)
    git(root, "switch", "-qc", "side")
    assign(root, KIM)
    made = commit(root, 8, author="kïm@example.com")
    git(root, "switch", "-q", "main")
    put(root, "README", "x")
    commit(root, 7)
    git(root, "merge", "-q", "--no-ff", "side", env=dated(6))
    for setting in (
        *("log.diffMerges=first-parent", "log.follow=true", "diff.renames=false"),
        *("log.showSignature=true", "format.pretty=oneline", "log.decorate=full"),
        *("i18n.logOutputEncoding=UTF-16", "color.ui=always", "diff.orderFile=.git/HEAD"),
    ):
        git(root, "config", *setting.split("="))
    monkeypatch.setenv("GIT_LITERAL_PATHSPECS", "1")
    assert written(root) == (made, 8, "kïm@example.com")
    assert "kïm@example.com" in history(root).authors()


def test_deleted_tasks_are_found_with_who_deleted_them(root: Path) -> None:
    put_task(root, FILE)
    put_task(root, "tasks/F002.md")
    commit(root, 9)
    git(root, "mv", "tasks/F002.md", "tasks/F002 - title.md")
    commit(root, 8)
    git(root, "rm", "-q", FILE)
    made = commit(root, 7, author=KIM)
    found = history(root).deleted(frozenset({"f001", "f002", "f003"}))
    assert set(found) == {"f001"}
    assert (found["f001"].file, found["f001"].commit, found["f001"].by) == (FILE, made, KIM)
    git(root, "switch", "-qc", "side")
    git(root, "rm", "-q", "tasks/F002 - title.md")
    commit(root, 6)
    git(root, "switch", "-q", "main")
    assert history(root).deleted(frozenset({"f002"})) == {}


# --- clones that do not have all ----------------------------------------------------------------


def test_a_shallow_clone_says_so_and_takes_nothing_for_written_at_its_edge(
    root: Path, tmp_path: Path
) -> None:
    assign(root, KIM)
    commit(root, 9, author=KIM)
    put(root, "README", "x")
    commit(root, 1)
    clone = real_clone(root.as_uri(), tmp_path / "shallow", JO, "--depth=1")
    before = snapshot(clone)
    there = history(clone)
    past = past_of(clone)
    lack = there.lack(cached=False, branches=True)
    assert lack is not None
    check_words(lack.what)
    assert past.last_change(KIM.__eq__) == (None, False)
    assert_untouched(before, snapshot(clone))
    assert history(root).lack(cached=False, branches=True) is None


def test_a_clone_without_contents_cannot_tell(root: Path, tmp_path: Path) -> None:
    git(root, "config", "uploadpack.allowFilter", "true")
    assign(root)
    commit(root, 10)
    assign(root, KIM)
    commit(root, 9, author=KIM)
    put(root, FILE, text_of("F001", f"assigned: [{KIM}]\n") + "more\n", old=False)
    commit(root, 8)
    clone = real_clone(root.as_uri(), tmp_path / "partial", JO, "--filter=blob:none")
    git(clone, "remote", "remove", "origin")
    assert past_of(clone).last_change(KIM.__eq__) == (None, False)


def lack_of(root: Path, prefix: str = "refs/gitlease", *, in_ci: bool = False) -> Lack | None:
    there = TaskHistory(
        discover(str(root)), tasks_like(), ref_prefix=prefix, remotes=("origin",), in_ci=in_ci
    )
    return there.lack(cached=False, branches=True)


@pytest.fixture
def clone(root: Path, tmp_path: Path) -> Path:
    """A whole clone of a repository with one branch, whose remote cannot be reached any more."""
    assign(root, KIM)
    commit(root, 9)
    clone = real_clone(root.as_uri(), tmp_path / "clone", JO)
    root.rename(tmp_path / "moved")
    return clone


@pytest.mark.parametrize(
    "specs",
    [
        (),
        ("+refs/heads/main:refs/remotes/origin/main",),
        ("+refs/heads/*:refs/remotes/origin/*", "^refs/heads/bot/*"),
    ],
)
def test_a_clone_that_follows_some_branches_asks_its_remote(
    clone: Path, specs: tuple[str, ...]
) -> None:
    git(clone, "config", "--unset-all", "remote.origin.fetch")
    for spec in specs:
        git(clone, "config", "--add", "remote.origin.fetch", spec)
    with raises(Unavailable):
        lack_of(clone)
    (clone.parent / "moved").rename(clone.parent / "repo")
    assert lack_of(clone) is None


def test_branches_that_are_ledgers_or_whose_commits_are_here_are_not_missing(clone: Path) -> None:
    root = clone.parent / "repo"
    (clone.parent / "moved").rename(root)
    git(root, "switch", "-q", "--orphan", "gitlease/global")
    commit(root, 1)
    git(root, "switch", "-q", "main")
    git(root, "branch", "old", "HEAD")
    assert lack_of(clone, "refs/heads/gitlease", in_ci=True) is None
    lack = lack_of(clone, in_ci=True)
    assert lack is not None
    check_words(lack.what)


def test_only_task_files_that_are_not_there_are_left_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = ["tasks/F001.md", "tasks/a b/F002.md"]
    for name in (*left, "tasks/note.txt", "docs/x.md", "src/x"):
        put(root, name, "x\n")
    commit(root, 1)
    with monkeypatch.context() as patch:  # no process is started for it
        patch.setattr("gitlease.check.task_history.ask", None)
        assert history(root).left_out() == ()
    git(root, "sparse-checkout", "set", "src")
    assert history(root).left_out() == history(root / "src").left_out() == left
    git(root, "config", "index.sparse", "true")
    git(root, "sparse-checkout", "reapply", "--sparse-index")
    before = snapshot(root)
    assert history(root).left_out() == left
    assert_untouched(before, snapshot(root))
    git(root, "sparse-checkout", "set", "--no-cone", "/tasks/*.md", "/src/")
    assert history(root).left_out() == left[1:]


def test_the_number_of_processes_is_that_of_one_task(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"T{number:03}" for number in range(40)]
    for name in names:
        assign(root, KIM, file=f"tasks/{name}.md", name=name)
    commit_all(root)
    there = history(root)
    started = Mock(side_effect=subprocess.Popen)
    monkeypatch.setattr(subprocess, "Popen", started)
    found = there.pasts([(task(name), KIM) for name in names])
    there.authors()
    there.usual([KIM])
    assert len(found) == 40
    assert all(assigned(past) for past in found.values())
    assert started.call_count <= 4
