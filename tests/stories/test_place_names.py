"""What a clone knows of a ledger is kept for its URL, whoever speaks to it there."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.repos import git, make_repository

from gitlease.kernel.git.repository import discover
from gitlease.wiring.ledger import open_place

pytestmark = pytest.mark.default


def test_credentials_in_a_url_make_no_other_place(tmp_path: Path) -> None:
    clone = make_repository(tmp_path / "clone")
    git(clone, "remote", "add", "origin", "https://host.example/team/repo.git")

    def place(url: str) -> str:
        git(clone, "remote", "set-url", "origin", url)
        return open_place(discover(str(clone)), {}, keeps=False).place_name

    usual = place("https://host.example/team/repo.git")
    assert place("https://jo:s3cret@host.example/team/repo.git") == usual
    assert place("https://kim:t0ken@host.example/team/repo.git") == usual
    assert "s3cret" not in usual
    assert place("https://host.example/team/other.git") != usual
