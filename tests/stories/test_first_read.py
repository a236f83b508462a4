"""The first command of a clone that has one branch, which names another place than the default."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.remotes import Remote
from support.repos import commit_file, git
from support.typed import Typist

pytestmark = pytest.mark.default


def test_first_read_says_why_it_ends_and_the_next_one_answers(
    clones: Callable[..., list[Path]], path_remote: Remote, tmp_path: Path
) -> None:
    (ada,) = clones(1)
    commit_file(ada, ".gitlease.yaml", "lease: {ref_prefix: refs/third}\n")
    git(ada, "push", "-q", "origin", "HEAD:feature")
    commit_file(ada, ".gitlease.yaml", "lease: {ref_prefix: refs/other}\n")
    git(ada, "push", "-q", "origin", "HEAD:main")
    branch = ("--single-branch", "-b", "feature")
    git(tmp_path, "clone", "-q", *branch, path_remote.url, "one")
    git(tmp_path / "one", "config", "user.email", "jo@example.com")
    jo = Typist(tmp_path / "one", ManualClock())
    first = jo.types("list")
    assert first.code == 7
    assert "began at the place of the ledger that the work tree names" in first.err
    assert "repeat the command" in first.err
    jo.ok("list")
