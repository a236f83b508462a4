"""Which ledger the settings record, in a clone that lacks the file that says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.repos import commit_file, git

from gitlease.kernel.git.files import Unreadable
from gitlease.kernel.git.repository import discover
from gitlease.kernel.settings.schema import recorded_id

pytestmark = pytest.mark.default

LINE = "lease: {ledger: abc-1}\n"


def recorded(folder: Path, text: str, *options: str) -> str | None:
    """The recorded id in a clone of a repository whose main has this ``.gitlease.yaml``."""
    git(folder, "init", "-q", "-b", "main", "seed")
    for key, value in (("name", "Jo"), ("email", "jo@example.com")):
        git(folder / "seed", "config", f"user.{key}", value)
    commit_file(folder / "seed", ".gitlease.yaml", text)
    git(folder, "clone", "-q", "--bare", "seed", "bare.git")
    git(folder / "bare.git", "config", "uploadpack.allowFilter", "true")
    git(folder, "clone", "-q", *options, (folder / "bare.git").as_uri(), "made")
    return recorded_id(discover(str(folder / "made")), ["origin"])


def test_a_file_that_is_not_in_the_clone_may_record_any_ledger(tmp_path: Path) -> None:
    with pytest.raises(Unreadable):
        recorded(tmp_path, LINE, "--filter=blob:none", "--no-checkout")


def test_a_file_that_is_there_records_a_ledger_or_none(tmp_path: Path) -> None:
    for name, text, id in (("one", LINE, "abc-1"), ("other", "lease: {ttl: 20m}\n", None)):
        (tmp_path / name).mkdir()
        assert recorded(tmp_path / name, text) == id
