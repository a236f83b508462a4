"""A damaged list of cut history in the clone's copy is that of the copy, not of the remote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.running import desks_in

pytestmark = pytest.mark.slow


def test_a_damaged_shallow_file_has_the_copy_made_anew(clones: Callable[..., list[Path]]) -> None:
    with desks_in(clones(1)) as (jo,):
        assert jo.ask("claim", "deploy").returncode == 0
        shallow = jo.clone / ".git" / "gitlease" / "store.git" / "shallow"
        for words in (("list",), ("renew", "deploy"), ("claim", "build")):
            shallow.write_text("garbage\n")
            told = jo.ask(*words)
            assert told.returncode == 0, told.stderr
            told = jo.ask("list")
            assert told.returncode == 0, told.stderr
            assert not shallow.exists()
