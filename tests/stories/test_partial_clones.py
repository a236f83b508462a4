"""What a clone lacks of the main branch is unknown to it, and not absent: it learns it, or says so.

Each clone answers as a full one does.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.remotes import Remote, Servers, open_remote
from support.repos import git, real_clone
from support.typed import Typed, Typist

from gitlease.guard import entry
from gitlease.guard.opening import open_hooks
from gitlease.kernel.git.mainline import learn_main

pytestmark = pytest.mark.slow

KINDS = {  # options of git clone
    "full": [],
    "blobless": ["--filter=blob:none"],
    "treeless": ["--filter=tree:0"],
    "one branch": ["--single-branch", "-b", "feature"],
    "shallow": ["--depth=1", "-b", "feature"],
    "bare": ["--bare"],
}
PARTIAL = [kind for kind in KINDS if kind not in ("full", "bare")]
OTHER = "ffffffffffffffffffff"


def task(id: str, status: str = "todo", assigned: str = "", more: str = "") -> str:
    return f"---\nid: {id}\nstatus: {status}\nassigned: {assigned or '[]'}\n{more}---\n"


@dataclass
class Project:
    """A remote that serves parts of its objects, and the clone of whoever works on its main."""

    folder: Path
    remote: Remote
    clock: ManualClock
    made: int = 0

    @property
    def ann(self) -> Typist:
        return Typist(self.folder / "ann", self.clock)

    def lands(self, **files: str | bytes) -> None:
        """Put task files, by the names of their tasks, or others by their paths, onto main."""
        for name, text in files.items():
            file = self.ann.clone / (name if "/" in name or "." in name else f"tasks/{name}.md")
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.push()

    def push(self) -> None:
        git(self.ann.clone, "add", "-A")
        git(self.ann.clone, "commit", "-q", "-m", "work")
        git(self.ann.clone, "push", "-q", "origin", "HEAD:main")

    def clone(self, kind: str) -> Typist:
        self.made += 1
        path = self.folder / f"clone{self.made}"
        real_clone(self.remote.url, path, "bob@example.com", *KINDS[kind])
        if kind == "bare":
            git(path, "config", "user.email", "bob@example.com")
        return Typist(path, self.clock)


@pytest.fixture
def project(tmp_path: Path, servers: Servers) -> Project:
    """Main, and a branch ``feature`` that has what main had at first: T1, T2 and T3, to do."""
    with open_remote("file", tmp_path, servers=servers) as remote:
        return made(tmp_path, remote)


def made(folder: Path, remote: Remote) -> Project:
    git(remote.bare, "config", "uploadpack.allowFilter", "true")
    real_clone(remote.url, folder / "ann", "ann@example.com")
    project = Project(folder, remote, ManualClock())
    project.lands(T1=task("T1"), T2=task("T2"), T3=task("T3"))
    git(project.ann.clone, "push", "-q", "origin", "HEAD:feature")
    return project


def claimed(who: Typist, line: str) -> tuple[int, str]:
    """How a claim ends: its status, and the code of its error."""
    typed = who.types(f"{line} --json")
    return typed.code, "" if typed.code == 0 else typed.json["error"]["code"]


def moved_on(project: Project, who: Typist) -> None:
    """On main T2 is done, T3 is Zoe's, and N1 is new; the clone fetches, as a person does."""
    zoes = task("T3", "in_progress", "zoe@example.com")
    project.lands(T2=task("T2", "done"), T3=zoes, N1=task("N1"))
    git(who.clone, "fetch", "-q")


@pytest.mark.parametrize("kind", ["full", *PARTIAL])
def test_claims_know_what_main_says_of_tasks(project: Project, kind: str) -> None:
    bob = project.clone(kind)
    moved_on(project, bob)
    assert claimed(bob, "claim T2") == (6, "policy"), "done on main"
    assert claimed(bob, "claim T3") == (1, "held"), "assigned on main"
    assert claimed(bob, "claim N1") == (0, ""), "new on main"
    assert claimed(bob, "claim N2") == (7, "not_found"), "no task"
    assert "unknown" not in bob.ok("claim T1").err


def test_clone_without_blobs_over_http(tmp_path: Path, servers: Servers) -> None:
    with open_remote("http", tmp_path, servers=servers) as remote:
        project = made(tmp_path, remote)
        bob = project.clone("blobless")
        moved_on(project, bob)
        assert claimed(bob, "claim T3") == (1, "held")
        # Once for a new main.
        before = remote.connections
        assert claimed(bob, "claim T2") == (6, "policy")
        assert remote.connections == before, "what was learnt is kept"


@pytest.mark.parametrize("kind", ["full", *PARTIAL])
def test_paths_of_a_task_on_main_are_those_of_its_lease(project: Project, kind: str) -> None:
    bob = project.clone(kind)
    project.lands(P1=task("P1", more="paths: [src/app]\n"))
    git(bob.clone, "fetch", "-q")
    project.ann.ok("claim src/app --any")
    assert claimed(bob, "claim P1") == (1, "held")


@pytest.mark.parametrize("kind", ["full", "blobless", "one branch"])
def test_queue_and_next_read_main(project: Project, kind: str) -> None:
    bob = project.clone(kind)
    moved_on(project, bob)
    found = {x["resource"]: x["why_not"] for x in bob.ok("queue --all --json").json["tasks"]}
    assert found == {"T1": None, "T2": "done", "T3": "assigned", "N1": "elsewhere"}
    assert bob.ok("next --claim --json").json["lease"]["resource"] == "T1"


@pytest.mark.parametrize("kind", ["full", *PARTIAL])
def test_deleted_ledger_is_not_made_anew(project: Project, kind: str) -> None:
    """Also where only main, as it was fetched last, records which ledger it is."""
    bob = project.clone(kind)
    project.ann.ok("init")
    project.push()
    git(bob.clone, "fetch", "-q")
    project.ann.ok("claim T1")
    git(project.remote.bare, "update-ref", "-d", "refs/gitlease/global")
    typed = bob.types("claim T1")
    assert typed.code == 7
    assert ".gitlease.yaml records the ledger" in typed.err
    assert git(project.remote.bare, "for-each-ref", "refs/gitlease") == ""


@pytest.mark.parametrize("kind", ["full", "blobless"])
def test_hook_claims_no_task_that_main_assigns(
    project: Project, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = project.clone(kind)
    project.ann.ok("claim other --any")
    moved_on(project, bob)
    for name in ("T1", "T3"):
        text = task(name, "in_progress").replace("assigned: []\n", "")
        (bob.clone / "tasks" / f"{name}.md").write_text(text, encoding="utf-8")
    git(bob.clone, "config", "lease.guardOffline", "block")
    limits = list[float]()

    def noted(*args: object, seconds: float, **options: object) -> object:
        limits.append(seconds)
        return learn_main(*args, seconds=seconds, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("gitlease.wiring.ledger.learn_main", noted)

    def committed(name: str) -> int:
        git(bob.clone, "reset", "-q")
        git(bob.clone, "add", f"tasks/{name}.md")
        opened = partial(open_hooks, str(bob.clone), environ={}, clock=bob.clock)
        return entry.run_hook(["pre-commit"], opened)

    assert committed("T3") == 1
    assert committed("T1") == 0
    assert limits
    assert max(limits) <= 5, "guard.timeout"
    leases = project.ann.ok("list --json").json["leases"]
    assert {x["resource"] for x in leases} == {"other", "T1"}


@pytest.mark.parametrize("kind", ["full", *PARTIAL])
def test_settings_that_main_got_since_are_no_obstacle(project: Project, kind: str) -> None:
    bob = project.clone(kind)
    project.ann.ok("init")
    project.push()
    git(bob.clone, "fetch", "-q")
    assert claimed(bob, "claim T1") == (0, "")


def test_bare_repository_learns_main_from_the_remote(project: Project) -> None:
    bob = project.clone("bare")
    project.ann.ok("init")
    project.push()
    git(project.remote.bare, "update-ref", "-d", "refs/gitlease/global")
    assert claimed(bob, "claim deploy --any") == (7, "invalid")


def test_the_users_repository_stays_as_it_is(project: Project) -> None:
    bob = project.clone("blobless")
    moved_on(project, bob)
    objects = bob.clone / ".git" / "objects"

    def picture() -> tuple[str, str, list[str]]:
        config = (bob.clone / ".git" / "config").read_text(encoding="utf-8")
        files = sorted(str(x) for x in objects.rglob("*"))
        return config, git(bob.clone, "for-each-ref"), files

    before = picture()
    assert claimed(bob, "claim T3") == (1, "held")
    assert picture() == before
    assert not (bob.clone / ".git" / "shallow").exists()


# --- a remote that does not give the rest -------------------------------------------------------


@pytest.fixture
def refusing(project: Project) -> tuple[Project, Typist]:
    """A clone without blobs of a server that serves no objects by their ids."""
    bob = project.clone("blobless")
    git(bob.clone, "config", "protocol.version", "0")
    return project, bob


def test_refused_objects_are_unknown_and_said_so(refusing: tuple[Project, Typist]) -> None:
    project, bob = refusing
    moved_on(project, bob)
    typed = bob.ok("claim T2")
    assert "tasks/T2.md on origin/main cannot be read (is not in this clone" in typed.err
    assert "is not in this clone" in bob.ok("status").err
    checks = json.loads(bob.types("doctor --json").out)["checks"]
    assert any("only a part of origin/main" in x["what"] for x in checks)


def test_no_ledger_is_made_while_it_is_unknown_which_is_recorded(
    refusing: tuple[Project, Typist],
) -> None:
    project, bob = refusing
    project.ann.ok("init")
    project.push()
    git(bob.clone, "fetch", "-q")
    git(project.remote.bare, "update-ref", "-d", "refs/gitlease/global")
    for line in ("claim T1", "run T1 -- true", "init"):
        typed = bob.types(line)
        assert typed.code not in (0, 70), line
        assert ".gitlease.yaml is not in this clone" in typed.err, line
        assert "--new-ledger" not in typed.err
    assert git(project.remote.bare, "for-each-ref", "refs/gitlease") == ""
    git(bob.clone, "-c", "protocol.version=2", "show", "origin/main:.gitlease.yaml")
    assert claimed(bob, "claim T1") == (7, "invalid")
    assert "is not in this clone" not in bob.types("claim T1").err


def test_unreachable_remote_leaves_main_unknown(project: Project) -> None:
    bob = project.clone("one branch")
    bob.ok("claim other --any")
    (bob.clone / ".git" / "gitlease" / "notes.json").unlink()
    os.rename(project.remote.bare, project.remote.bare.with_suffix(".away"))
    typed = bob.types("queue --cached")
    assert typed.code == 0
    assert "the default branch of origin is not in this clone" in typed.err


# --- the branch itself --------------------------------------------------------------------------


def test_renamed_and_pruned_default_branch(project: Project) -> None:
    """Its name comes from the remote's HEAD, and not from the only branch that is left."""
    bob = project.clone("full")
    bare = project.remote.bare
    git(bare, "branch", "-m", "main", "trunk")
    git(bare, "symbolic-ref", "HEAD", "refs/heads/trunk")
    git(project.ann.clone, "push", "-q", "origin", "HEAD:trunk")
    (project.ann.clone / "tasks" / "T2.md").write_text(task("T2", "done"), encoding="utf-8")
    git(project.ann.clone, "commit", "-qam", "done")
    git(project.ann.clone, "push", "-q", "origin", "HEAD:trunk")
    git(bob.clone, "fetch", "-q", "--prune")
    assert claimed(bob, "claim T2") == (6, "policy")


def test_renamed_default_branch_whose_old_name_is_still_tracked(project: Project) -> None:
    bob = project.clone("full")
    bob.ok("claim other --any")
    bare, ann = project.remote.bare, project.ann.clone
    git(bare, "branch", "trunk", "main")
    git(bare, "symbolic-ref", "HEAD", "refs/heads/trunk")
    (ann / "tasks" / "T2.md").write_text(task("T2", "done"), encoding="utf-8")
    git(ann, "commit", "-qam", "done")
    git(ann, "push", "-q", "origin", "HEAD:trunk")
    git(bob.clone, "fetch", "-q")
    bob.clock.advance(3_601)
    assert claimed(bob, "claim T2") == (6, "policy")


def test_narrowed_refspec(project: Project) -> None:
    bob = project.clone("full")
    narrow = "+refs/heads/feature:refs/remotes/origin/feature"
    git(bob.clone, "config", "remote.origin.fetch", narrow)
    git(bob.clone, "remote", "set-head", "-d", "origin")
    git(bob.clone, "update-ref", "-d", "refs/remotes/origin/main")
    moved_on(project, bob)
    assert claimed(bob, "claim T2") == (6, "policy")
    # Main moves on, and no fetch of the person's brings it.
    project.lands(T1=task("T1", "done"))
    bob.clock.advance(61)
    assert claimed(bob, "claim T1") == (6, "policy")


def test_remote_without_any_branch_has_no_main(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "empty.git")
    git(tmp_path, "init", "-q", "-b", "main", "here")
    here = tmp_path / "here"
    git(here, "remote", "add", "origin", str(tmp_path / "empty.git"))
    git(here, "config", "user.email", "bob@example.com")
    typed = Typist(here, ManualClock()).ok("claim deploy")
    assert "unknown" not in typed.err


# --- files that cannot be read ------------------------------------------------------------------

UNREADABLE: dict[str, bytes] = {
    "conflict": b"---\nid: T2\n<<<<<<< a\nstatus: todo\n=======\nstatus: done\n>>>>>>> b\n---\n",
    "duplicate keys": b"---\nid: T2\nstatus: todo\nstatus: done\n---\n",
    "front matter of 64 KiB": b"---\nid: T2\nnote: " + b"x" * 70_000 + b"\nstatus: done\n---\n",
    "UTF-16": task("T2", "done").encode("utf-16"),
    "unknown status": task("T2", "pondering").encode(),
}


@pytest.mark.parametrize("kind", ["full", "blobless"])
def test_unreadable_task_on_main_is_a_warning(project: Project, kind: str) -> None:
    bob = project.clone(kind)
    for what, data in UNREADABLE.items():
        project.lands(T2=data)
        git(bob.clone, "fetch", "-q")
        bob.clock.advance(61)
        typed = bob.ok("claim T2")
        assert "tasks/T2.md on origin/main" in typed.err, what
        assert "unknown" in typed.err, what
        assert "unknown" not in bob.ok("claim T1").err, "which is another task"
        if what != "unknown status":
            assert "tasks/T2.md on origin/main" in bob.ok("status").err, what
        bob.ok("release T1 T2")
        git(bob.clone, "checkout", "-q", ".")


def test_link_in_the_place_of_a_task_on_main_is_a_warning(project: Project) -> None:
    bob = project.clone("full")
    file = project.ann.clone / "tasks" / "T2.md"
    file.unlink()
    file.symlink_to("../elsewhere/T2.md")
    project.push()
    git(bob.clone, "fetch", "-q")
    assert "tasks/T2.md on origin/main cannot be read" in bob.ok("claim T2").err


# --- filters ------------------------------------------------------------------------------------

ROT = "tr a-zA-Z n-za-mN-ZA-M"


@pytest.mark.parametrize("kind", ["full", "blobless", "one branch"])
def test_filters_are_applied_as_by_a_checkout(project: Project, kind: str) -> None:
    bob = project.clone(kind)
    encrypted(project)
    git(bob.clone, "fetch", "-q")
    git(bob.clone, "config", "filter.rot.smudge", ROT)
    assert claimed(bob, "claim T2") == (6, "policy")
    assert claimed(bob, "claim T3") == (1, "held")
    assert not (bob.clone / ".gitattributes").exists(), "the attributes are main's"


def test_filter_that_is_missing_or_fails_leaves_files_unknown(project: Project) -> None:
    bob = project.clone("full")
    encrypted(project)
    git(bob.clone, "fetch", "-q")
    git(bob.clone, "config", "filter.rot.required", "true")
    typed = bob.ok("claim T2")
    assert "tasks/T2.md on origin/main cannot be read (needs the filter rot" in typed.err
    git(bob.clone, "config", "filter.rot.smudge", "false")
    assert "has a filter that fails" in bob.ok("claim T3").err
    git(bob.clone, "config", "filter.rot.smudge", ROT)
    assert claimed(bob, "claim N1") == (7, "not_found"), "what failed was not kept"
    assert {x["why_not"] for x in tasks_of(bob) if x["resource"] == "T1"} == {None}


def tasks_of(who: Typist) -> list[dict[str, object]]:
    found: list[dict[str, object]] = who.ok("queue --all --json").json["tasks"]
    return found


def encrypted(project: Project) -> None:
    """Main keeps its task files through a filter from now on; T2 is done, and T3 is Zoe's."""
    ann = project.ann.clone
    git(ann, "config", "filter.rot.clean", ROT)
    git(ann, "config", "filter.rot.smudge", ROT)
    (ann / ".gitattributes").write_text("tasks/*.md filter=rot\n", encoding="utf-8")
    (ann / "tasks/T2.md").write_text(task("T2", "done"), encoding="utf-8")
    zoes = task("T3", "in_progress", "zoe@example.com")
    (ann / "tasks/T3.md").write_text(zoes, encoding="utf-8")
    git(ann, "add", "--renormalize", ".")
    project.push()
    assert "vq: G2" in git(ann, "show", "HEAD:tasks/T2.md")


# --- a clone whose remote was removed -----------------------------------------------------------


@pytest.fixture
def left_alone(project: Project) -> Typist:
    """A clone whose commit records a ledger, and whose remote was removed."""
    project.ann.ok("init")
    project.push()
    bob = project.clone("full")
    git(bob.clone, "remote", "remove", "origin")
    return bob


def refused(typed: Typed) -> None:
    assert typed.code not in (0, 70), typed
    assert "records the ledger" in typed.out + typed.err
    assert "--local" not in typed.err
    assert "--new-ledger" not in typed.err


@pytest.mark.default
@pytest.mark.parametrize(
    "line",
    [
        *("claim T1", "claim deploy --any", "next --claim", "run T1 -- true", "start T1"),
        *("init", "init --new-ledger", "claim T1 --layer mine"),
    ],
)
def test_removed_remote_is_no_reason_for_a_ledger_of_ones_own(
    left_alone: Typist, line: str
) -> None:
    refused(left_alone.types(line))


def test_local_alone_means_a_local_ledger(left_alone: Typist) -> None:
    assert claimed(left_alone, "claim T1 --local") == (0, "")


def test_known_ledger_counts_as_well_as_a_recorded_one(project: Project) -> None:
    bob = project.clone("full")
    bob.ok("claim T1")
    git(bob.clone, "remote", "remove", "origin")
    assert claimed(bob, "claim T2") == (7, "invalid")
    assert bob.types("init").code == 7
    assert claimed(bob, "claim T2") == (7, "invalid"), "init has not accepted it"


def test_clone_that_never_had_a_remote_uses_the_local_ledger(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main", "here")
    git(tmp_path / "here", "config", "user.email", "bob@example.com")
    typed = Typist(tmp_path / "here", ManualClock()).ok("claim deploy")
    assert "there is no remote" in typed.err
