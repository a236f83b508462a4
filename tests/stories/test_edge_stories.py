"""The assigned edge in two clones: it outlives the lease, goes through branches, and is taken."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.clock import ManualClock
from support.killing import in_child
from support.remotes import Remote
from support.repos import commit_file, git, run_git
from support.session import LeaseService
from support.snapshots import check_words, raises

from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.rules.errors import Invalid, LeaseHeld, NotFound, NothingLeft, PolicyRefused
from gitlease.kernel.rules.resources import parse_resource
from gitlease.tasks import edge_commit
from gitlease.tasks.queue import WhyNot
from gitlease.wiring.workspace import Workspace, open_workspace

pytestmark = pytest.mark.slow

F001 = parse_resource("F001")
DAY = 86_400
TASK = (
    "---\nid: F001\ntitle: rate limits\nstatus: todo\nassigned: []\npaths: [src/api]\n---\nText.\n"
)
ONE, TWO = "w1@example.com", "w2@example.com"

Clones = Callable[..., list[Path]]


class Story:
    """Two people, each with a clone, and one clock for both."""

    def __init__(self, made: list[Path]) -> None:
        self.one, self.two = made
        self.clock = ManualClock()
        commit_file(self.one, "tasks/F001.md", TASK, "a task")
        git(self.one, "push", "-q", "origin", "HEAD:main")
        git(self.two, "pull", "-q", "origin", "main")

    def at(self, clone: Path) -> Workspace:
        return open_workspace(str(clone), clock=self.clock)

    def service(self, clone: Path) -> LeaseService:
        return LeaseService(self.at(clone).ledger)

    def status(self, clone: Path) -> str | None:
        (task,) = self.at(clone).ledger.edges.files.read().tasks
        return task.status

    def assigned(self, clone: Path) -> tuple[str, ...]:
        (task,) = self.at(clone).ledger.edges.files.read().tasks
        return task.assigned

    def send(self, clone: Path, message: str) -> None:
        git(clone, "commit", "-qam", message)
        git(clone, "pull", "-q", "--no-rebase", "origin", "main")
        git(clone, "push", "-q", "origin", "HEAD:main")


@pytest.fixture
def story(path_remote: Remote, clones: Clones) -> Story:
    return Story(clones(2))


def test_branches_that_each_assigned_somebody_conflict_and_are_refused_until_mended(
    story: Story,
) -> None:
    story.service(story.one).claim([F001])
    story.clock.advance(DAY)
    story.service(story.two).claim([F001], ClaimOptions(takeover=True, reason="w1 is away"))
    story.send(story.one, "take F001")
    git(story.two, "commit", "-qam", "take F001 over")
    assert run_git(story.two, "pull", "-q", "--no-rebase", "origin", "main").returncode
    with pytest.raises(Invalid, match=r"tasks/F001.md:\d+: ") as refused:
        story.service(story.two).claim([F001])
    assert refused.value.resource == "F001"
    both = TASK.replace("[]", f"[{ONE}, {TWO}]")
    (story.two / "tasks/F001.md").write_text(both, encoding="utf-8")
    with pytest.raises(Invalid, match=r"conflict|unmerged"):
        story.service(story.two).release([F001])
    git(story.two, "commit", "-qam", "merge: both work on it")
    assert story.service(story.two).claim([F001]).edge == "kept"
    assert story.service(story.two).release([F001]).edge == "removed"
    assert story.assigned(story.two) == (), "w1's assignment ended with the takeover"


@pytest.mark.nightly
def test_nobody_waits_for_an_edge(story: Story) -> None:
    """Not for one that is there, nor for one that is left when a lease runs out meanwhile."""
    story.service(story.one).claim([F001])
    held: list[LeaseHeld] = []
    two = story.service(story.two)
    with pytest.raises(LeaseHeld) as caught:
        two.claim([F001], ClaimOptions(), wait=2 * DAY, on_wait=held.append)
    assert held, "while the lease was live, it was worth waiting"
    assert (held[0].by_edge, caught.value.by_edge) == (False, True)
    naps = len(story.clock.naps)
    assert sum(story.clock.naps) < 3_600
    with pytest.raises(LeaseHeld):
        two.wait([F001])
    assert len(story.clock.naps) == naps


def test_what_is_given_back_is_to_do_again_unless_others_are_on_it(story: Story) -> None:
    one, two = story.service(story.one), story.service(story.two)
    one.start(F001, ClaimOptions(commit=True))
    assert story.status(story.one) == "in_progress"
    one.release([F001], commit=True)
    assert (story.status(story.one), story.assigned(story.one)) == ("todo", ())
    assert git(story.one, "status", "--porcelain") == ""

    one.start(F001)
    one.release([F001], keep_status=True)
    assert (story.status(story.one), story.assigned(story.one)) == ("in_progress", ())

    one.start(F001, ClaimOptions(scope="parser"))
    two.claim([F001], ClaimOptions(scope="ui"))
    one.release([F001])
    assert (story.status(story.one), story.assigned(story.one)) == ("in_progress", ())


# --- the ledger outranks older files --------------------------------------------------------------


def test_a_release_returns_a_task_whose_edge_is_committed(story: Story, clones: Clones) -> None:
    one = story.service(story.one)
    one.claim([F001], ClaimOptions(commit=True))
    git(story.one, "push", "-q", "origin", "HEAD:main")
    git(story.two, "pull", "-q", "origin", "main")
    story.clock.advance(5)
    (elsewhere,) = clones(1)
    git(elsewhere, "config", "user.email", ONE)
    released = story.service(elsewhere).release([F001])
    check_words(str(released.warnings))
    (entry,) = story.at(story.two).queue.queue().entries
    assert (entry.claimable, entry.task.assigned, entry.task.outdated) == (True, (), (ONE,))
    assert story.service(story.two).claim([F001]).status == "claimed"
    assert story.assigned(story.two) == (TWO,)


@pytest.mark.nightly
def test_a_newer_commit_assigns_in_spite_of_a_release(story: Story) -> None:
    one = story.service(story.one)
    one.claim([F001])
    one.release([F001])
    story.clock.advance(5)
    text = TASK.replace("assigned: []", f"assigned: [{ONE}]")
    commit_file(story.two, "tasks/F001.md", text, "assign")
    at = f"@{story.clock.now().wall_ms // 1000} +0000"
    git(story.two, "commit", "-q", "--amend", "--no-edit", f"--date={at}")
    with pytest.raises(LeaseHeld) as refused:
        story.service(story.two).claim([F001])
    assert refused.value.holder == ONE
    git(story.two, "push", "-q", "--force", "origin", "HEAD:main")
    git(story.one, "fetch", "-q")
    git(story.one, "reset", "-q", "--hard", "origin/main")
    story.clock.advance(5)
    (warning,) = story.service(story.one).release([F001]).warnings
    check_words(warning)
    assert story.service(story.two).claim([F001]).status == "claimed"


def test_a_sparse_checkout_ends_what_it_lacks(story: Story) -> None:
    one, two = story.one, story.two
    for name, who in (("F002", TWO), ("F003", ONE)):
        text = TASK.replace("F001", name).replace("[]", f"[{who}]")
        commit_file(one, f"tasks/{name}.md", text, "a task")
    git(one, "push", "-q", "origin", "HEAD:main")
    git(two, "pull", "-q", "origin", "main")
    git(two, "sparse-checkout", "set", "src")
    service = story.service(two)
    own, theirs, typo = map(parse_resource, ("F002", "F003", "F0001"))
    with raises(NotFound):
        service.claim([typo])
    with pytest.raises(LeaseHeld):
        service.complete(theirs)
    with pytest.raises(LeaseHeld):
        service.release([theirs])
    stays = service.release([own])
    assert (stays.edge, stays.edge_in, stays.changed) == ("kept", ("file",), False)
    check_words(stays.warnings)
    assert service.claim([own]).warnings == (), "its file names the claimant"
    check_words(service.claim([F001]).warnings)
    assert service.claim([F001]).warnings == (), "a renewal"
    assert service.release([F001]).warnings == ()
    for _ in range(2):
        done = service.complete(F001)
        assert (done.status, len(done.warnings)) == ("completed", 1)
    git(two, "switch", "-q", "--orphan", "empty")
    with raises(NotFound):
        story.service(two).claim([typo])


def test_what_only_main_says_counts_in_every_view(story: Story) -> None:
    """A stale checkout, one that is sparse, and one without any task."""
    one, two = story.one, story.two
    done, theirs, new = (parse_resource(name) for name in ("F001", "F002", "F003"))
    text = TASK.replace("F001", "F002")
    commit_file(one, "tasks/F002.md", text, "a task")
    git(one, "push", "-q", "origin", "HEAD:main")
    git(two, "pull", "-q", "origin", "main")
    commit_file(one, "tasks/F002.md", text.replace("[]", f"[{ONE}]"), "assign")
    commit_file(one, "tasks/F001.md", TASK.replace("status: todo", "status: done"), "finish")
    commit_file(one, "tasks/F003.md", TASK.replace("F001", "F003"), "a new task")
    git(one, "push", "-q", "origin", "HEAD:main")
    git(two, "fetch", "-q", "origin")

    def states() -> dict[str, WhyNot | None]:
        return {str(x.task.resource): x.why_not for x in story.at(two).queue.queue().entries}

    expected = {"F001": WhyNot.DONE, "F002": WhyNot.ASSIGNED, "F003": WhyNot.ELSEWHERE}
    assert states() == expected
    with pytest.raises(NothingLeft):
        story.at(two).queue.claim_next(ClaimOptions())
    git(two, "sparse-checkout", "set", "src")
    assert states() == expected
    git(two, "sparse-checkout", "disable")
    git(two, "switch", "-q", "--orphan", "bare")
    assert states() == expected
    entry = story.at(two).queue.find(theirs).entry
    assert entry is not None
    assert (entry.task.ref, entry.who) == ("refs/remotes/origin/main", ONE)
    service = story.service(two)
    with pytest.raises(PolicyRefused):
        service.claim([done])
    with pytest.raises(LeaseHeld):
        service.claim([theirs])
    assert service.claim([new]).edge_in == ("record",)
    assert states() == expected | {"F003": WhyNot.YOURS}


@pytest.mark.slow("done-refs/heads/main.lock")
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("verb", "lock"), [("claim", "index.lock"), ("done", "refs/heads/main.lock")]
)
def test_the_lock_of_a_killed_git_is_named_until_it_is_gone(
    story: Story, verb: str, lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S8: it may be a living git's, for all that anyone can tell: a person has to remove it."""
    monkeypatch.setattr(edge_commit, "PATIENCE", 0.0)
    clone = story.one
    git(clone, "config", "core.filesRefLockTimeout", "0")
    left = clone / ".git" / lock

    def act() -> Any:
        if verb == "claim":
            return story.service(clone).claim([F001], ClaimOptions(commit=True))
        return story.service(clone).complete(F001, commit=True)

    def killed(*_: object) -> None:
        left.touch()
        os.kill(os.getpid(), signal.SIGKILL)

    def act_and_be_killed() -> None:
        edge_commit.commit_edges = killed  # type: ignore[assignment]
        act()

    if verb == "done":
        story.service(clone).claim([F001], ClaimOptions(commit=True))
    head = git(clone, "rev-parse", "HEAD")
    assert in_child(act_and_be_killed)
    following: list[Callable[[], Any]] = [
        lambda: story.service(clone).read(),
        lambda: story.service(clone).note(parse_resource("F002"), "seen"),
        act,
        lambda: story.service(clone).read(),
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
    story.service(clone).read()
    assert git(clone, "rev-parse", "HEAD^") == head
    assert git(clone, "status", "--porcelain") == ""
    expected = "status: done\nassigned: []" if verb == "done" else "assigned: [w1@example.com]"
    assert expected in git(clone, "show", "HEAD:tasks/F001.md")
