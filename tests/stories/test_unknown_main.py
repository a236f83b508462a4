"""A clone that cannot read what main says of a task says so, and tries again.

Main's files may be encrypted with a filter that this clone lacks, or be out of its reach.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.clock import ManualClock
from support.repos import git, real_clone
from support.typed import Typist

pytestmark = pytest.mark.slow


def task(id: str, status: str = "todo", assigned: str = "") -> str:
    return f"---\nid: {id}\nstatus: {status}\nassigned: {assigned or '[]'}\n---\n"


class Team:
    """A bare remote with T1 and T2 to do, Ann's clone, and Bob's."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, ManualClock()
        self.bare = folder / "origin.git"
        git(folder, "init", "-q", "--bare", "-b", "main", str(self.bare))
        git(self.bare, "config", "uploadpack.allowFilter", "true")
        self.ann = self.clone("ann", "ann@example.com")
        self.lands({"tasks/T1.md": task("T1"), "tasks/T2.md": task("T2")})

    def clone(self, name: str, email: str = "bob@example.com", *options: str) -> Typist:
        real_clone(f"file://{self.bare}", self.folder / name, email, *options)
        return Typist(self.folder / name, self.clock)

    def lands(self, files: dict[str, str | bytes]) -> None:
        for name, text in files.items():
            file = self.ann.clone / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
        git(self.ann.clone, "add", "-A")
        git(self.ann.clone, "commit", "-q", "-m", "work")
        git(self.ann.clone, "push", "-q", "origin", "HEAD:main")


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return Team(tmp_path)


@pytest.fixture
def no_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No filter is set up in the system's settings either, as Git LFS does."""
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


NEEDS = "needs the filter rot, which is not set up here"


@pytest.mark.usefixtures("no_filters")
@pytest.mark.parametrize("kind", [(), ("--filter=blob:none",)])
def test_filter_that_a_clone_lacks_leaves_tasks_unknown(team: Team, kind: tuple[str, ...]) -> None:
    bob = team.clone("bob", "bob@example.com", *kind)
    # Whatever the filter does to them: these bytes are no task.
    rotten = task("T1", "done").translate(str.maketrans("abcdefghst", "nopqrstufg"))
    team.lands({".gitattributes": "tasks/** filter=rot\n", "tasks/T1.md": rotten})
    git(bob.clone, "fetch", "-q")
    assert f"tasks/T1.md on origin/main cannot be read ({NEEDS})" in bob.ok("claim T1").err
    assert NEEDS in bob.ok("queue").err
    assert NEEDS in bob.ok("status").err
    # Set up since: what was unknown is read.
    bob.ok("release T1")
    git(bob.clone, "checkout", "-q", ".")
    git(bob.clone, "config", "filter.rot.smudge", "tr a-z A-Z | tr A-Z a-z")
    assert NEEDS not in bob.ok("queue").err


@pytest.mark.usefixtures("no_filters")
def test_filter_that_only_cleans_changes_no_checkout(team: Team) -> None:
    bob = team.clone("bob")
    git(bob.clone, "config", "filter.rot.clean", "cat")
    team.lands({".gitattributes": "tasks/** filter=rot\n", "tasks/T1.md": task("T1", "done")})
    git(bob.clone, "fetch", "-q")
    assert bob.types("claim T1").code == 6


@pytest.mark.usefixtures("no_filters")
def test_filter_of_the_settings_leaves_the_place_unknown(team: Team) -> None:
    team.lands({".gitattributes": "*.yaml filter=rot\n", ".gitlease.yaml": "lease.ttl: 10m\n"})
    typed = team.clone("bob").types("claim T1")
    assert typed.code == 7
    assert f"where the ledger is cannot be told: .gitlease.yaml {NEEDS}" in typed.err
    assert "git fetch" not in typed.err, "which would not help"


def test_encrypted_task_is_unknown_without_any_attribute(team: Team) -> None:
    bob = team.clone("bob")
    team.lands({"tasks/T1.md": b"\0GITCRYPT\0" + bytes(range(40))})
    git(bob.clone, "fetch", "-q")
    typed = bob.ok("claim T1")
    assert "tasks/T1.md on origin/main cannot be read (this is encrypted" in typed.err
    assert "unknown" not in bob.ok("claim T2").err


# --- a server that gives no objects by their ids ------------------------------------------------


@pytest.fixture
def bob(team: Team) -> Typist:
    """A clone with no file of main, where T1 is Ann's."""
    team.lands({"tasks/T1.md": task("T1", assigned="ann@example.com")})
    bob = team.clone("bob", "bob@example.com", "--filter=blob:none", "--no-checkout")
    git(bob.clone, "config", "protocol.version", "0")
    return bob


LACKS = "tasks/T1.md on origin/main cannot be read (is not in this clone"


@pytest.mark.parametrize("line", ["wait T1", "queue", "status"])
def test_whoever_reads_hears_that_main_is_unknown(bob: Typist, line: str) -> None:
    assert LACKS in bob.ok(line).err


@pytest.mark.parametrize("line", ["claim T1", "status"])
def test_failure_is_tried_again_by_the_next_command(bob: Typist, line: str) -> None:
    assert LACKS in bob.ok("status").err
    git(bob.clone, "config", "protocol.version", "2")
    assert LACKS not in bob.types(line).err
    assert bob.types("claim T1").code == 1, "which is assigned to Ann"


def test_hint_of_a_clone_without_the_settings_works(team: Team) -> None:
    team.lands({".gitlease.yaml": "lease.ttl: 10m\n"})
    bob = team.clone("bob", "bob@example.com", "--filter=blob:none", "--no-checkout")
    git(bob.clone, "config", "protocol.version", "0")
    typed = bob.types("claim T1")
    assert typed.code == 7
    assert ".gitlease.yaml is not in this clone" in typed.err
    assert "git fetch --refetch --no-filter origin" in typed.err
    git(bob.clone, "fetch", "-q", "--refetch", "--no-filter", "origin")
    assert "unknown" not in bob.ok("claim T1").err
