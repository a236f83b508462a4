"""A command is killed at every step between lease and edge; the next one finds both agreeing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.killing import armed, in_child
from support.remotes import Remote
from support.repos import git
from support.session import LeaseService
from support.snapshots import check_words

from gitlease.core import Invalid, Resource, Task, parse_resource
from gitlease.engine import ClaimOptions
from gitlease.store import RefLedgerStore
from gitlease.tasks import EdgeJournal, edge_commit
from gitlease.wiring import open_workspace

pytestmark = pytest.mark.one_in(2)

TASK = "---\nid: {}\nstatus: todo\nassigned: []  # nobody yet\n---\n\nText.\n"
MANY = 90  # tasks, one for each step at which a command is killed

# Whatever leaves something behind: a process may be gone before and after each of them.
STEPS: tuple[tuple[Any, str], ...] = (
    (EdgeJournal, "intend"),
    (EdgeJournal, "settled"),
    (RefLedgerStore, "swap"),
    (edge_commit, "run_git"),
    (os, "replace"),
    (os, "unlink"),
)
VERBS: dict[str, Callable[[LeaseService, Resource, bool], object]] = {
    "claim": lambda service, task, commit: service.claim([task], ClaimOptions(commit=commit)),
    "start": lambda service, task, commit: service.start(task, ClaimOptions(commit=commit)),
    "release": lambda service, task, commit: service.release([task], commit=commit),
    "done": lambda service, task, commit: service.complete(task, commit=commit),
}


def name_of(number: int) -> Resource:
    return parse_resource(f"F{number:03d}")


@pytest.fixture
def clone(path_remote: Remote, clones: Callable[..., list[Path]]) -> Path:
    (made,) = clones(1)
    (made / "tasks").mkdir()
    for number in range(MANY):
        name = name_of(number).text
        (made / "tasks" / f"{name}.md").write_text(TASK.format(name), encoding="utf-8")
    git(made, "add", "tasks")
    git(made, "commit", "-q", "-m", "tasks")
    return made


def task_of(clone: Path, resource: Resource) -> Task:
    tasks = open_workspace(str(clone)).ledger.edges.files.read().tasks
    return next(t for t in tasks if t.resource == resource)


def agree(clone: Path, resource: Resource, verb: str, *, commit: bool) -> None:
    """The next command has run: lease, edge, status and commit say the same."""
    (lease,) = LeaseService(open_workspace(str(clone)).ledger).read(resource=resource).leases or (
        None,
    )
    task = task_of(clone, resource)
    held = lease is not None and lease.state == "active"
    assert [*task.assigned] == ([lease.holder] if held and lease else []), verb
    done = lease is not None and lease.state == "completed"
    assert (task.status == "done") == done
    status = git(clone, "status", "--porcelain").splitlines()
    if commit:
        assert status == []
    assert all(line.startswith(" M tasks/F") for line in status), status


@pytest.mark.slow
@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("verb", ["claim", "release", "start", "done"])
def test_lease_and_edge_agree_after_a_kill_at_any_step(
    clone: Path, verb: str, commit: bool
) -> None:
    service = LeaseService(open_workspace(str(clone)).ledger)
    if verb in ("release", "done"):
        for first in range(0, MANY, 45):
            some = [name_of(n) for n in range(first, first + 45)]
            service.claim(some, ClaimOptions(commit=commit))
    for number in range(MANY):
        resource = name_of(number)

        def act(resource: Resource = resource, number: int = number) -> None:
            armed(number, STEPS)
            VERBS[verb](LeaseService(open_workspace(str(clone)).ledger), resource, commit)

        killed = in_child(act)
        LeaseService(open_workspace(str(clone)).ledger).read()
        agree(clone, resource, verb, commit=commit)
        if not killed:
            break
    assert number > 8
    assert not killed, "there are more steps than tasks"
    for _ in range(2):  # the ledger moves on, and with it whatever was undecided
        LeaseService(open_workspace(str(clone)).ledger).note(name_of(0), "done with it")
    left = list((clone / ".git" / "gitlease").glob("state/**/edges/*.json"))
    assert not left
    assert [*(clone / "tasks").iterdir()] == [*(clone / "tasks").glob("F*.md")]


@pytest.mark.parametrize(
    ("verb", "lock"),
    [("claim", "index.lock"), ("release", "HEAD.lock"), ("done", "refs/heads/main.lock")],
)
def test_the_lock_of_a_killed_git_is_named_until_it_is_gone(
    clone: Path, verb: str, lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S8: it may be a living git's, for all that anyone can tell: a person has to remove it."""
    monkeypatch.setattr(edge_commit, "PATIENCE", 0.0)
    git(clone, "config", "core.filesRefLockTimeout", "0")
    task, left = name_of(1), clone / ".git" / lock

    def service() -> LeaseService:
        return LeaseService(open_workspace(str(clone)).ledger)

    def killed(*_: object) -> None:
        left.touch()
        os.kill(os.getpid(), signal.SIGKILL)

    def act() -> None:
        edge_commit.commit_edges = killed  # type: ignore[assignment]
        VERBS[verb](service(), task, True)

    if verb in ("release", "done"):
        service().claim([task], ClaimOptions(commit=True))
    head = git(clone, "rev-parse", "HEAD")
    assert in_child(act)
    following: list[Callable[[], Any]] = [
        lambda: service().read(),
        lambda: service().note(name_of(2), "seen"),
        lambda: VERBS[verb](service(), task, True),
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
    agree(clone, task, verb, commit=True)
    assert git(clone, "rev-parse", "HEAD^") == head
