"""Commits in whatever encoding the settings claim."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.remotes import Remote
from support.repos import commit_file, git
from support.running import Desk


@pytest.mark.parametrize("encoding", ["UTF-16", "no-such-encoding"])
def test_commit_encoding_of_any_kind_is_pushed_and_checked(
    clones: Callable[..., list[Path]], path_remote: Remote, encoding: str
) -> None:
    (ada,) = clones(1)
    git(ada, "config", "i18n.commitEncoding", encoding)
    commit_file(ada, "tasks/T1.md", "---\nid: T1\nstatus: todo\n---\n", "schön")
    desk = Desk(ada)
    assert desk.document("claim", "T1", "--commit")["status"] == "claimed"
    assert desk.document("push", "origin", "HEAD")["leases"]
    assert desk.document("check", "HEAD~1..HEAD")["violations"] == []
