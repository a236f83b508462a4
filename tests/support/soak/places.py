"""Where the clients of a soak work: clones of their own, a shared one, a linked worktree."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from support.repos import git, real_clone, run_git
from support.soak.disk import Disk
from support.soak.gateway import Gateway

NAMES = ("N0", "N1", "N2", "N3")
TASKS = ("T0", "T1", "T2", "T3")
PATHS = ("src/a/", "src/*/x.py", "docs/guide.md")
USERS = {"jo": "one", "kim": "two", "lee": "three"}
REF = "refs/gitlease/global"
# Leases that run out while the soak goes on; margins as small as its clocks are wrong.
POLICY = {
    "ttl_min": "1s",
    "ttl_max": "1m",
    "skew": "2s",
    "grace": "1s",
    "history": "append",
    "admins": "jo@example.com kim@example.com lee@example.com",
}
_TASK = "---\nid: {}\nstatus: todo\nassigned: []\n---\n\nText.\n"


@dataclass(frozen=True)
class Place:
    """A work tree, and whose it is."""

    name: str
    user: str
    tree: Path
    env: dict[str, str]

    @property
    def holder(self) -> str:
        return f"{self.user}@example.com"

    @property
    def own(self) -> Path:
        """gitlease's folder in the clone's git directory."""
        return self.common / "gitlease"

    @property
    def common(self) -> Path:
        """The clone's git directory."""
        return Path(os.path.realpath(self.tree / git(self.tree, "rev-parse", "--git-common-dir")))


def make_places(folder: Path, gateway: Gateway, small: Disk) -> list[Place]:
    """Clones of three people, one of them on a disk that gets full, and a linked worktree."""
    places = []
    for name, user, parent in (
        ("own", "jo", folder),
        ("shared", "kim", folder),
        ("small", "lee", small.folder),
    ):
        tree = parent / name
        env = gateway.env(user)
        real_clone(gateway.url(user), tree, f"{user}@example.com", env=env)
        git(tree, "checkout", "-q", "-B", f"work-{name}")
        places.append(Place(name, user, tree, env))
    linked = folder / "linked"
    git(places[1].tree, "worktree", "add", "-q", "-b", "work-linked", str(linked))
    return [*places, Place("linked", "kim", linked, places[1].env)]


def seed_tasks(folder: Path, gateway: Gateway) -> None:
    """Give the shared repository its tasks, before it is cloned."""
    tree = real_clone(gateway.bare, folder / "seed", "s@example.com")
    (tree / "tasks").mkdir()
    for task in TASKS:
        (tree / "tasks" / f"{task}.md").write_text(_TASK.format(task), encoding="utf-8")
    (tree / "src" / "a").mkdir(parents=True)
    (tree / "src" / "a" / "x.py").write_text("x = 1\n", encoding="utf-8")
    (tree / ".gitlease.yaml").write_text("tasks: {required: false}\n", encoding="utf-8")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "tasks")
    git(tree, "push", "-q", "origin", "HEAD:main")


def commit_work(place: Place, path: str, text: str) -> bool:
    """Commit a change on the place's branch; False where git could not."""
    try:
        (place.tree / path).parent.mkdir(parents=True, exist_ok=True)
        (place.tree / path).write_text(text, encoding="utf-8")
    except OSError:  # its disk is full
        return False
    added = run_git(place.tree, "add", "--", path)
    words = ("commit", "-q", "--no-verify", "-m", "work", "--", path)
    return added.returncode == 0 and run_git(place.tree, *words).returncode == 0
