"""A hook that asks no remote takes no lock: it keeps a file of its own, moved into place."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import run_gitlease
from support.ledgers import door
from support.repos import git

from gitlease.guard.service import FACTS

pytestmark = pytest.mark.default


def test_commit_by_a_young_copy_takes_no_lock(clones: Callable[..., list[Path]]) -> None:
    ada, bob = clones(2)
    assert run_gitlease(["hooks", "install"], ada).returncode == 0
    with door(bob) as leases:
        leases.claim("path:theirs.txt")
    with door(ada) as leases:
        assert leases.list()
    (ada / "mine.txt").write_text("mine\n")
    git(ada, "add", "mine.txt")
    done = subprocess.run(
        ["git", "commit", "-q", "-m", "mine"],
        cwd=ada,
        env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "gitlease.guard.service" in loaded, "the hook had nothing to do"
    assert "filelock" not in loaded
    assert (ada / ".git/gitlease/state/default/global" / FACTS).is_file(), "it kept nothing"
