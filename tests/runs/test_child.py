"""Programs that a command starts for a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitlease.runs import show_in_pager


def test_a_text_is_shown_in_the_pager_of_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\ncat >"$1"\n')
    pager.chmod(0o755)
    monkeypatch.setenv("GIT_PAGER", f"{pager} {tmp_path}/seen")
    assert show_in_pager("a page\n")
    assert (tmp_path / "seen").read_text() == "a page\n"
