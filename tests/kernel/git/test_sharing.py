"""Files of gitlease in a clone that a group shares have the modes that git gives its own."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.ledgers import door
from support.repos import common_dir, git

from gitlease.cli.app import run

Clones = Callable[..., list[Path]]


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(private: Path) -> tuple[set[int], set[int], int]:
    """The modes of folders and files below a folder, and that of a lock.

    git's objects, which nobody changes, are read-only and not among the files.
    """
    every = [x for x in private.rglob("*") if not x.name.endswith(".lock") and x.name != "lock"]
    folders = {stat.S_IMODE(x.stat().st_mode) for x in (private, *every) if x.is_dir()}
    kept = [x for x in every if x.is_file()]
    files = {stat.S_IMODE(x.stat().st_mode) for x in kept if "objects" not in x.parts}
    objects = {stat.S_IMODE(x.stat().st_mode) for x in kept if "objects" in x.parts}
    assert objects == {mode & ~0o222 for mode in files}
    return (
        folders,
        files,
        stat.S_IMODE((private / "store.git.lock").stat().st_mode),
    )


@pytest.mark.parametrize(
    ("setting", "folder", "file", "lock", "line"),
    [
        ("", 0o755, 0o644, 0o600, b""),
        ("group", 0o2775, 0o664, 0o660, b"\tsharedrepository = 1\n"),
        ("world", 0o2775, 0o664, 0o664, b"\tsharedrepository = 2\n"),
        ("0640", 0o2750, 0o640, 0o640, b"\tsharedrepository = 0640\n"),
    ],
)
def test_shared_clone_files_have_its_modes(
    clones: Clones, setting: str, folder: int, file: int, lock: int, line: bytes
) -> None:
    [clone] = clones(1)
    if setting:
        git(clone, "config", "core.sharedRepository", setting)
    leases = door(clone)
    leases.claim("F001", any=True)
    leases.release("F001")
    private = Path(common_dir(clone)) / "gitlease"
    folders, files, lock_mode = modes(private)
    assert (folders, files, lock_mode) == ({folder}, {file}, lock)
    config = (private / "store.git" / "config").read_bytes()
    assert (line in config, b"sharedrepository" in config) == (True, bool(line))


def test_hooks_of_a_shared_clone_run_for_its_group(
    clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gitlease.guard.hook_places.git_version", lambda _: (2, 39))
    [clone] = clones(1)
    git(clone, "config", "core.sharedRepository", "group")
    before = os.umask(0o077)
    try:
        assert run(["hooks", "install", "-C", str(clone)]) == 0
    finally:
        os.umask(before)
    common = Path(common_dir(clone))
    assert stat.S_IMODE((common / "hooks" / "pre-push").stat().st_mode) == 0o770
    assert stat.S_IMODE((common / "gitlease" / "program").stat().st_mode) == 0o660
