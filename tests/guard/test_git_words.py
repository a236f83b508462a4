"""Whether a commit is amended, by the processes above a hook: real git, real hooks."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.fences import clean_env
from support.repos import commit_file, git, make_repository

from gitlease.guard.callers import commit_words
from gitlease.kernel.git import run

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
TELL = "w = callers.commit_words(); print(w.amend if w else None, w.cleanup if w else '')"
ASK = f"from gitlease.guard import callers; {TELL}"
WITHOUT_PROC = "from gitlease.kernel.git import run; run._has_proc = lambda: False"
BY_PS = f"{WITHOUT_PROC}; {ASK}"


class Asking:
    """A repository whose hook writes down what it thinks of the git above it."""

    def __init__(self, root: Path) -> None:
        self.root = make_repository(root)
        commit_file(self.root, "a", "a")
        self.said = root.parent / "said"
        self.install(ASK)

    def install(self, code: str, *, wrapped: str = "{}") -> None:
        words = [sys.executable, "-c", code]
        call = wrapped.format(shlex.join(words)) + f" >>{shlex.quote(str(self.said))}"
        folder = self.root / ".git" / "hooks"
        folder.mkdir(exist_ok=True)
        hook = folder / "prepare-commit-msg"
        hook.write_text(f"#!/bin/sh\n(\n{call}\n) || exit 1\n")
        hook.chmod(0o755)

    def of(self, *words: str) -> list[str]:
        """What the hook said, each time that it ran, below one command of git."""
        self.said.write_text("")
        env = clean_env(
            {"PYTHONPATH": str(ROOT), "GIT_EDITOR": "true", "GIT_SEQUENCE_EDITOR": "true"}
        )
        subprocess.run(
            ["git", *words], cwd=self.root, env=env, check=True, capture_output=True, timeout=60
        )
        return [line.rstrip() for line in self.said.read_text().splitlines()]


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Asking:
    return Asking(tmp_path_factory.mktemp("processes") / "repo")


@pytest.mark.default("words0-False", "words2-True", "words4-False", "words6-True", "words8-False")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["commit", "--allow-empty", "-m", "x"], "False"),
        (["commit", "--amend", "--allow-empty", "--no-edit"], "True"),
        (["commit", "--am", "--allow-empty", "-m", "y"], "True"),
        (["-c", "core.abbrev=9", "commit", "--amend", "--allow-empty", "--no-edit", "-q"], "True"),
        (["-C", ".", "commit", "--allow-empty", "-q", "-m", "x"], "False"),
        (["-c", "alias.fix=commit --amend --allow-empty --no-edit", "fix"], "True"),
        (["-c", "alias.fix=!git commit --amend --allow-empty --no-edit", "fix"], "True"),
        (["-c", "alias.ci=commit --allow-empty", "ci", "-m", "x"], "False"),
        (["-c", "alias.ci=!git commit --allow-empty -m x", "ci"], "False"),
    ],
)
def test_git_tells_by_its_words(asking: Asking, words: list[str], expected: str) -> None:
    assert asking.of(*words) == [expected]


@pytest.mark.default("words1")
@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["commit", "--allow-empty", "-m", "--amend"],
        ["commit", "--allow-empty", "--allow-empty-message", "-m", "--am"],
        ["commit", "-m", "x", "--", "--am"],
    ],
)
def test_a_word_that_only_looks_like_the_option_amends_nothing(
    asking: Asking, words: list[str]
) -> None:
    file = asking.root / "--am"
    file.write_text(f"{words}")
    git(asking.root, "add", "--", "--am")
    assert asking.of(*words) == ["False"]


@pytest.mark.default("words0-scissors", "words2-verbatim", "words4-")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--cleanup=scissors"], "scissors"),
        (["--cleanup", "verbatim"], "verbatim"),
        (["--clean=strip", "--cleanup=verbatim"], "verbatim"),
        (["-qm--cleanup=strip"], ""),
        ([], ""),
    ],
)
def test_how_a_message_is_cleaned_up_is_told_too(
    asking: Asking, words: list[str], expected: str
) -> None:
    said = asking.of("commit", "--allow-empty", "-m", "x", *words)
    assert said == [f"False {expected}".rstrip()]
    said = asking.of("commit", "--allow-empty", "--amend", "-m", "x", *words)
    assert said == [f"True {expected}".rstrip()]


@pytest.mark.slow
def test_the_nearest_git_counts(asking: Asking) -> None:
    """A commit that a hook of an amending one makes elsewhere is a commit of its own."""
    words = ["-c", "alias.outer=!f() { git commit --allow-empty -q -m x; }; f", "outer", "--amend"]
    assert asking.of(*words) == ["False"]


@pytest.mark.default
def test_a_merge_is_no_commit_that_is_replaced(asking: Asking) -> None:
    git(asking.root, "branch", "-f", "side", "HEAD")
    commit_file(asking.root, "b", "b")
    git(asking.root, "checkout", "-q", "side")
    commit_file(asking.root, "c", "c")
    assert asking.of("merge", "-q", "--no-edit", "main") == ["None"]
    git(asking.root, "checkout", "-q", "main")


def test_without_proc_the_list_of_processes_tells(asking: Asking) -> None:
    if not any(os.access(f"{folder}/ps", os.X_OK) for folder in os.get_exec_path()):
        pytest.skip("there is no ps here")
    asking.install(BY_PS)
    try:
        assert asking.of("commit", "--amend", "--allow-empty", "--no-edit") == ["True"]
        assert asking.of("commit", "--allow-empty", "-m", "x") == ["False"]
    finally:
        asking.install(ASK)


# --- where there is nothing to see ----------------------------------------------------------------


@pytest.mark.default
def test_no_ps_and_an_odd_one_tell_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run, "_has_proc", lambda: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_words(7) is None
    ps = tmp_path / "ps"
    for text in (
        "printf 'a b c\\n\\n 1\\n-1 x\\n'",
        "printf '\\377\\0 \\377'",
        "exit 3",
        "kill $$",
    ):
        ps.write_text(f"#!/bin/sh\n{text}\n")
        ps.chmod(0o755)
        assert commit_words(7) is None
