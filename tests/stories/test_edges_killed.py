"""A git that is killed as it commits an edge leaves its lock: it is named until it is gone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.killing import in_child
from support.remotes import Remote
from support.repos import commit_file, git
from support.session import LeaseService
from support.snapshots import check_words

from gitlease.core import Invalid, parse_resource
from gitlease.engine import ClaimOptions
from gitlease.tasks import edge_commit
from gitlease.wiring import open_workspace

TASK = "---\nid: F001\nstatus: todo\nassigned: []  # nobody yet\n---\n\nText.\n"
F001 = parse_resource("F001")


@pytest.mark.parametrize(
    ("verb", "lock"), [("claim", "index.lock"), ("done", "refs/heads/main.lock")]
)
def test_the_lock_of_a_killed_git_is_named_until_it_is_gone(
    path_remote: Remote,
    clones: Callable[..., list[Path]],
    verb: str,
    lock: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S8: it may be a living git's, for all that anyone can tell: a person has to remove it."""
    monkeypatch.setattr(edge_commit, "PATIENCE", 0.0)
    (clone,) = clones(1)
    commit_file(clone, "tasks/F001.md", TASK)
    git(clone, "config", "core.filesRefLockTimeout", "0")
    left = clone / ".git" / lock

    def service() -> LeaseService:
        return LeaseService(open_workspace(str(clone)).ledger)

    def act() -> Any:
        if verb == "claim":
            return service().claim([F001], ClaimOptions(commit=True))
        return service().complete(F001, commit=True)

    def killed(*_: object) -> None:
        left.touch()
        os.kill(os.getpid(), signal.SIGKILL)

    def act_and_be_killed() -> None:
        edge_commit.commit_edges = killed  # type: ignore[assignment]
        act()

    if verb == "done":
        service().claim([F001], ClaimOptions(commit=True))
    head = git(clone, "rev-parse", "HEAD")
    assert in_child(act_and_be_killed)
    following: list[Callable[[], Any]] = [
        lambda: service().read(),
        lambda: service().note(parse_resource("F002"), "seen"),
        act,
        lambda: service().read(),
    ]
    for again in following:
        try:
            said = " ".join(again().warnings)
        except Invalid as refused:
            said = refused.message
        assert f"{left}" in said
        check_words(said)
        assert git(clone, "rev-parse", "HEAD") == head
    left.unlink()
    service().read()
    assert git(clone, "rev-parse", "HEAD^") == head
    assert git(clone, "status", "--porcelain") == ""
    expected = "status: done\nassigned: []" if verb == "done" else "assigned: [w1@example.com]"
    assert expected in git(clone, "show", "HEAD:tasks/F001.md")
