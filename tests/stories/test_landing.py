"""What lands on the main branch ends the lease of whoever worked on it, and nobody else's."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.clock import ManualClock
from support.hooked import task_text
from support.repos import git
from support.running import desks_in
from support.session import LeaseService
from support.typed import Typist

from gitlease.guard import entry
from gitlease.guard.opening import HookContext, open_hooks
from gitlease.kernel.git.run import GitResult, run_git
from gitlease.kernel.ledger.chores import in_order
from gitlease.kernel.rules.instant import MS

pytestmark = pytest.mark.slow

Clones = Callable[..., list[Path]]
LANDED = "F001 is done on origin/main: your lease of it is completed"
NAMES = ("F001", "F002", "F003")


@dataclass
class Project:
    """jo, who administers the ledger and lands work, and kim, who holds, each in a clone."""

    clock: ManualClock
    jo: Typist
    kim: Typist

    def lands(self, name: str = "F001", *, assigned: str = "[]") -> None:
        """jo has a task done on the main branch a minute from now; another one passes."""
        self.clock.advance(60)
        clone = self.jo.clone
        text = task_text(name, status="done", assigned=assigned)
        (clone / "tasks" / f"{name}.md").write_text(text, encoding="utf-8")
        commit(clone, self.clock, "tasks", message=f"{name} is done")
        git(clone, "push", "-q", "origin", "HEAD:main")
        self.clock.advance(60)

    def fetches(self) -> None:
        """kim's clone comes to know the main branch; what is checked out there stays."""
        git(self.kim.clone, "fetch", "-q", "origin")

    def state(self, name: str = "F001") -> list[tuple[str, str]]:
        """Every record of a resource, by holder and state, as jo reads it."""
        ledger = self.jo.open(".").ledger
        ledger.chores = in_order()  # it is no contact of jo's
        found = LeaseService(ledger).read().leases
        return [(x.holder.partition("@")[0], x.state) for x in found if x.resource == name]

    def goes_on(self) -> bool:
        """Whether kim's lease is still live after the next command."""
        told = self.kim.ok("brief").err
        live = self.state() == [("kim", "active")]
        assert live is (LANDED not in told), told
        return live


def commit(clone: Path, clock: ManualClock, *names: str, message: str) -> None:
    date = f"@{clock.wall_ms // MS} +0000"
    git(clone, "add", *names)
    dates = {"GIT_COMMITTER_DATE": date, "GIT_AUTHOR_DATE": date}
    git(clone, "commit", "-q", "--allow-empty", "-m", message, env=dates)


@pytest.fixture
def project(clones: Clones) -> Project:
    one, other = clones(2)
    clock = ManualClock()
    (one / "tasks").mkdir()
    for name in NAMES:
        (one / "tasks" / f"{name}.md").write_text(task_text(name), encoding="utf-8")
    commit(one, clock, "tasks", message="tasks")
    git(one, "push", "-q", "origin", "HEAD:main")
    git(other, "pull", "-q", "origin", "main")
    for clone, name in ((one, "jo"), (other, "kim")):
        git(clone, "config", "user.email", f"{name}@example.com")
    made = Project(clock, Typist(one, clock), Typist(other, clock))
    made.jo.ok("config --ledger admins jo@example.com")
    clock.advance(60)
    return made


@pytest.mark.default("brief-True")
@pytest.mark.parametrize(
    ("line", "known"),
    [
        *(("brief", True), ("queue --mine", False), ("renew --all", False), ("list", True)),
        *(("renew F002", True), ("claim F003", False), ("release F002", False)),
    ],
)
def test_the_next_contact_completes_the_lease_and_says_so_once(
    project: Project, line: str, known: bool
) -> None:
    """Whether the person has fetched what landed or not."""
    kim = project.kim
    kim.ok("claim F001 F002 --ttl 2h")
    file = kim.clone / "tasks" / "F001.md"
    before, refs = file.read_bytes(), git(kim.clone, "for-each-ref")
    project.lands()
    if known:
        project.fetches()
        refs = git(kim.clone, "for-each-ref")
    assert LANDED in kim.ok(line).err
    assert git(kim.clone, "for-each-ref") == refs, "what the person fetches is theirs"
    assert project.state() == [("kim", "completed")]
    if line != "release F002":
        assert project.state("F002") == [("kim", "active")]
    assert file.read_bytes() == before, "the file comes with the branch"
    again = kim.ok(line)
    assert LANDED not in again.err
    assert "gitlease claim F001" not in again.err, "it would be refused"


@pytest.mark.parametrize("known", [True, False], ids=["named by the remote", "by nobody"])
def test_the_remote_is_asked_for_a_default_branch_that_is_not_known(
    project: Project, known: bool
) -> None:
    kim, bare = project.kim, Path(git(project.kim.clone, "remote", "get-url", "origin").strip())
    kim.ok("claim F001 --ttl 2h")
    project.lands()
    git(bare, "branch", "-m", "main", "trunk")
    git(bare, "branch", "other", "trunk")
    git(bare, "symbolic-ref", "HEAD", "refs/heads/trunk" if known else "refs/heads/none")
    git(kim.clone, "fetch", "-q", "--prune", "origin")
    git(kim.clone, "remote", "set-head", "-d", "origin")
    status = kim.ok("status")
    assert ("git remote set-head origin -a" in status.err) is not known
    kim.ok("brief")
    assert project.state() == [("kim", "completed" if known else "active")]


def test_never_leaves_it_to_its_holder(project: Project) -> None:
    settings = project.kim.clone / ".gitlease.yaml"
    settings.write_text("landing: {release: never}\n", encoding="utf-8")
    project.kim.ok("claim F001 --ttl 2h")
    project.lands()
    project.fetches()
    assert project.goes_on()


@pytest.mark.nightly
def test_what_is_done_on_another_branch_has_not_landed(project: Project) -> None:
    kim = project.kim.clone
    project.kim.ok("claim F001 --ttl 2h")
    (kim / "tasks" / "F001.md").write_text(task_text("F001", status="done"), encoding="utf-8")
    commit(kim, project.clock, "tasks", message="done")
    git(kim, "push", "-q", "origin", "HEAD:work")
    assert project.goes_on()


@pytest.mark.parametrize("other", ["jo", "kim"])
def test_the_lease_of_another_run_or_person_is_never_touched(project: Project, other: str) -> None:
    """Both work on scopes of one task; only the one whose command it is ends theirs."""
    if other == "jo":
        project.jo.ok("claim F001 --scope api --ttl 2h")
    else:
        project.kim.ok("claim F001 --scope api --ttl 2h --session night-shift")
    project.kim.ok("claim F001 --scope web --ttl 2h")
    project.lands(assigned="[jo@example.com]")
    project.fetches()
    project.kim.ok("brief")
    assert sorted(project.state()) == [(other, "active"), ("kim", "completed")]


def test_a_refusal_says_that_the_work_has_landed(project: Project) -> None:
    project.kim.ok("claim F001 --path src/ --ttl 2h")
    project.lands()
    hint = "F001 is done on origin/main; kim@example.com's clone has not seen it yet"
    assert hint in project.jo.types("claim src/").err
    assert hint not in project.jo.ok("claim F002").err
    assert hint in project.jo.ok("show F001 --json").json["warnings"]


# --- what it costs --------------------------------------------------------------------------------


@pytest.fixture
def contacts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every command of git that asks a remote, from now on."""
    asked: list[str] = []

    def counted(words: Sequence[str], **how: Any) -> GitResult:
        asked.extend(x for x in words if x in ("push", "fetch", "ls-remote"))
        return run_git(words, **how)

    for module in ("kernel.store.transport", "kernel.git.repository"):
        monkeypatch.setattr(f"gitlease.{module}.run_git", counted)
    return asked


def test_a_branch_is_fetched_once_when_it_moved(project: Project, contacts: list[str]) -> None:
    project.kim.ok("claim F001 --ttl 2h")
    for moved in (False, True, False):
        if moved:
            project.lands("F002")
        contacts.clear()
        assert LANDED not in project.kim.ok("renew F001").err
        assert contacts == ["push", *["fetch"] * moved]
    contacts.clear()
    project.kim.ok("list")
    assert contacts == ["ls-remote"]


def test_a_branch_that_cannot_be_fetched_leaves_the_lease(
    project: Project, contacts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.kim.ok("claim F001 --ttl 2h")
    project.lands()
    monkeypatch.setattr("gitlease.tasks.landed.FETCH", 0.0)
    contacts.clear()
    assert LANDED not in project.kim.ok("renew F001").err
    assert LANDED not in project.kim.ok("renew F001").err
    assert contacts == ["push", "fetch", "push"], "tried once a minute"
    monkeypatch.undo()
    project.clock.advance(60)
    assert LANDED in project.kim.ok("renew F001").err


# --- merged ---------------------------------------------------------------------------------------


@dataclass
class Merging:
    """kim works on F001 under a lease, on a branch, where work ends when it is merged."""

    project: Project
    token: int

    def works(self, *, more: str = "", token: int | None = None) -> None:
        """One commit that names the lease, on kim's branch."""
        trailer = f"Gitlease: F001 token={token or self.token}{more}"
        commit(self.project.kim.clone, self.project.clock, message=f"work\n\n{trailer}\n")

    def pushes(self) -> None:
        git(self.project.kim.clone, "push", "-q", "origin", "work")

    def merges(self, message: str | None = None) -> None:
        """jo brings what kim pushed to the main branch with the task's status, or squashed."""
        jo, clock = self.project.jo.clone, self.project.clock
        git(jo, "fetch", "-q", "origin")
        if message is None:
            git(jo, "merge", "-q", "--no-edit", "origin/work")
        else:
            commit(jo, clock, message=message)
        self.project.lands()
        self.project.fetches()


@pytest.fixture
def merging(project: Project) -> Merging:
    kim = project.kim
    (kim.clone / ".gitlease.yaml").write_text("landing: {release: merged}\n", encoding="utf-8")
    git(kim.clone, "checkout", "-q", "-b", "work")
    return Merging(project, kim.ok("claim F001 --ttl 2h --json").json["leases"][0]["token"])


def test_work_that_is_said_to_be_done_and_was_never_merged_goes_on(merging: Merging) -> None:
    merging.works()
    merging.project.lands()
    assert merging.project.goes_on()


@pytest.mark.nightly
@pytest.mark.parametrize("where", ["branch", "remote"])
def test_merged_work_ends_its_lease_unless_some_is_left(merging: Merging, where: str) -> None:
    kim = merging.project.kim.clone
    merging.works()
    merging.pushes()
    merging.works()
    if where == "remote":
        git(kim, "push", "-q", "origin", "HEAD:more")
        git(kim, "reset", "-q", "--hard", "HEAD~1")
    merging.merges()
    assert merging.project.goes_on()
    if where == "remote":
        git(kim, "push", "-q", "origin", ":more")
    else:
        git(kim, "reset", "-q", "--hard", "HEAD~1")
    assert not merging.project.goes_on()


def test_a_squash_ends_the_lease_once_the_branch_is_gone(merging: Merging) -> None:
    kim, token = merging.project.kim.clone, merging.token
    merging.works()
    merging.pushes()
    merging.merges(f"F001 (#7)\n\n* work\n\nGitlease: F001 token={token}\n\n* more work\n")
    assert merging.project.goes_on(), "what it squashed is still there"
    git(kim, "push", "-q", "origin", ":work")
    git(kim, "reset", "-q", "--hard", "origin/main")
    assert not merging.project.goes_on()


@pytest.mark.nightly
def test_commits_of_another_grant_of_the_task_do_not_count(merging: Merging) -> None:
    merging.works(token=merging.token + 1)
    merging.works(more=" scope=api")
    merging.works(more=" layer=other")
    merging.pushes()
    merging.merges()
    assert merging.project.goes_on()


# --- work that begins again -----------------------------------------------------------------------


def test_what_was_done_when_it_was_claimed_goes_on(project: Project) -> None:
    kim = project.kim
    project.lands()
    project.fetches()
    kim.ok("claim F001 --ttl 2h --reopen")
    assert LANDED not in kim.ok("brief").err
    project.lands("F002")
    project.fetches()
    assert LANDED not in kim.ok("renew --all").err
    assert project.state() == [("kim", "active")]


def test_a_shallow_clone_that_cannot_tell_ends_nothing(project: Project) -> None:
    kim = project.kim.clone
    project.kim.ok("claim F001 --ttl 2h")
    project.lands()
    remote = git(kim, "remote", "get-url", "origin")
    git(kim, "remote", "set-url", "origin", f"file://{remote}")
    git(kim, "fetch", "-q", "--depth=1", "origin")
    assert project.goes_on()


# --- in the background ----------------------------------------------------------------------------


def test_the_heartbeat_of_a_hook_completes_it_and_the_next_hook_says_so(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    kim = project.kim
    kim.ok("claim F001 F002")
    project.lands()
    project.fetches()
    project.clock.advance(400)

    def hook(name: str) -> str:
        def opened() -> HookContext:
            return open_hooks(str(kim.clone), environ=kim.env, clock=project.clock)

        assert entry.run_hook([name], opened) == 0
        return capsys.readouterr().err

    hook("beat")
    assert hook("post-merge") == f"gitlease: {LANDED}\n"
    assert project.state() == [("kim", "completed")]
    (renewed,) = project.jo.ok("list --json").json["leases"]
    assert renewed["renewals"] == 1
    assert LANDED not in hook("post-merge")


# --- runs -----------------------------------------------------------------------------------------


def test_a_command_that_runs_under_it_is_not_stopped(project: Project) -> None:
    """Its run gives the lease back when it ends: to complete it before would stop the command."""
    kim = project.kim
    text = task_text("F001", status="done")
    (project.jo.clone / "tasks" / "F001.md").write_text(text, encoding="utf-8")
    git(project.jo.clone, "commit", "-q", "-a", "-m", "done")
    lands = shlex.join(["git", "-C", str(project.jo.clone), "push", "-q", "origin", "HEAD:main"])
    brief = f"{shlex.quote(sys.executable)} -m gitlease brief 2>&1"
    script = f"{lands} && git fetch -q origin && {brief}"
    with desks_in([kim.clone]) as (desk,):
        ran = desk.ask("run", "F001", "--", "sh", "-c", script)
        assert ran.returncode == 0, ran
        assert "F001  live" in ran.stdout
        assert LANDED not in ran.stdout
        assert desk.live() == []
