"""A file of the main branch is known, proven absent, or unknown; never the one for the other."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.fences import clean_env

from gitlease.kernel.git.mainline import Presence, read_main_file
from gitlease.kernel.git.repository import discover

LIMIT = 1024


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, env=clean_env())


def seeded(folder: Path) -> Path:
    """Make a remote whose main branch has one small and one large file."""
    seed = folder / "seed"
    subprocess.run(["git", "init", "-q", "-b", "main", str(seed)], check=True, env=clean_env())
    git(seed, "config", "user.email", "jo@example.com")
    git(seed, "config", "user.name", "Jo")
    (seed / "tasks").mkdir()
    (seed / "tasks" / "a.md").write_bytes(b"small")
    (seed / "tasks" / "b.md").write_bytes(b"x" * (LIMIT + 1))
    git(seed, "add", ".")
    git(seed, "commit", "-q", "-m", "start")
    bare = folder / "bare.git"
    git(folder, "clone", "-q", "--bare", str(seed), str(bare))
    git(bare, "config", "uploadpack.allowFilter", "true")
    return bare


def clone(folder: Path, bare: Path, *options: str) -> Path:
    made = folder / "clone"
    git(folder, "clone", "-q", *options, bare.as_uri(), str(made))
    return made


def presence(made: Path, path: str) -> Presence:
    return read_main_file(discover(str(made)), ["origin"], path, limit=LIMIT).presence


def test_full_clone_knows_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    made = clone(tmp_path, seeded(tmp_path))
    found = read_main_file(discover(str(made)), ["origin"], "tasks/a.md", limit=LIMIT)
    assert (found.presence, found.data) == (Presence.KNOWN, b"small")
    assert presence(made, "tasks/none.md") is Presence.ABSENT
    assert presence(made, "none/a.md") is Presence.ABSENT


def test_larger_file_is_unknown(tmp_path: Path) -> None:
    made = clone(tmp_path, seeded(tmp_path))
    assert presence(made, "tasks/b.md") is Presence.UNKNOWN


def test_clone_without_blobs_knows_only_what_is_absent(tmp_path: Path) -> None:
    made = clone(tmp_path, seeded(tmp_path), "--filter=blob:none", "--no-checkout")
    assert presence(made, "tasks/a.md") is Presence.UNKNOWN
    assert presence(made, "tasks/none.md") is Presence.ABSENT


def test_clone_without_the_main_branch_knows_nothing(tmp_path: Path) -> None:
    bare = seeded(tmp_path)
    git(bare, "branch", "feature")
    made = clone(tmp_path, bare, "--single-branch", "-b", "feature")
    git(made, "update-ref", "-d", "refs/remotes/origin/HEAD")
    git(made, "update-ref", "refs/remotes/origin/other", "HEAD")
    assert presence(made, "tasks/a.md") is Presence.UNKNOWN


def test_repository_without_a_remote_has_no_main_branch(tmp_path: Path) -> None:
    made = clone(tmp_path, seeded(tmp_path))
    found = read_main_file(discover(str(made)), [], "tasks/a.md", limit=LIMIT)
    assert found.presence is Presence.ABSENT
